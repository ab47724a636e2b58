// The compiler, beside the page, so that typing never waits for it.

let exports = null;

function read(bytes) {
  return new TextDecoder().decode(new Uint8Array(exports.memory.buffer, exports.output(), bytes));
}

function compile(question) {
  const bytes = new TextEncoder().encode(JSON.stringify(question));
  new Uint8Array(exports.memory.buffer, exports.input(bytes.length), bytes.length).set(bytes);
  return read(exports.compile());
}

onmessage = async ({ data }) => {
  if (data.wasm) {
    exports = (await WebAssembly.instantiate(data.wasm, {})).instance.exports;
    postMessage({ gallery: read(exports.gallery()) });
    return;
  }
  try {
    postMessage({ id: data.id, answer: compile(data.question) });
  } catch (error) {
    // The compiler is left in the middle of something: the page starts another one.
    postMessage({ id: data.id, bug: read(exports.complaint()) || String(error) });
  }
};
