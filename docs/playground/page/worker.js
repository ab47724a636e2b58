// The compiler, beside the page, so that typing never waits for it.

let exports = null;

function read(bytes) {
  return new TextDecoder().decode(new Uint8Array(exports.memory.buffer, exports.output(), bytes));
}

/// Has one of the functions of the compiler answer a question.
function answer(name, question) {
  const bytes = new TextEncoder().encode(JSON.stringify(question));
  new Uint8Array(exports.memory.buffer, exports.input(bytes.length), bytes.length).set(bytes);
  return read(exports[name]());
}

/// The page carries the compiler packed by gzip, a third of its size.
async function load(packed) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const wasm = await new Response(stream).arrayBuffer();
  const page = { now: () => performance.now() / 1000, improved: (bytes) => postMessage({ news: read(bytes) }) };
  exports = (await WebAssembly.instantiate(wasm, { page })).instance.exports;
}

onmessage = async ({ data }) => {
  if (data.packed) {
    try {
      await load(data.packed);
      postMessage({ gallery: read(exports.gallery()) });
    } catch (error) {
      postMessage({ unusable: String(error) });
    }
    return;
  }
  try {
    postMessage({ id: data.id, answer: answer(data.by, data.question) });
  } catch (error) {
    // The compiler is left in the middle of something: the page starts another one.
    postMessage({ id: data.id, bug: read(exports.complaint()) || String(error) });
  }
};
