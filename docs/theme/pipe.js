// What the book adds to mdBook: colours for `pipe`, links into the playground, and code that fits its page.
"use strict";

// The keywords of grammar/pipe.pest; a test compares them.
const KEYWORDS = `
  activation all and at auto block bubble checkpoint cost data devices else every fill for from host if import in
  input layer let loss memory microbatches minimum model normal not of offload on ones optimizer or order output
  param peak pipeline place precision recompute reorder repeat require schedule seed slices slots stages steps
  synthetic then train warmup weight weights with zero zeros
`;
/// Smallest letters of code that is made narrower, in pixels.
const SMALLEST = 9.5;

hljs.registerLanguage("pipe", () => ({
  name: "pipe",
  // It takes words apart at spaces, not at line ends.
  keywords: KEYWORDS.trim().replace(/\s+/g, " "),
  contains: [
    { className: "comment", begin: /\/\//, end: /$/ },
    { className: "string", begin: /"/, end: /"/, illegal: /\n/ },
    { className: "task", begin: /\b(?:F|BW|B|W|R|U)(?=\s*\[)/ },
    { className: "number", begin: /\b\d[\d_.]*(?:e-?\d+)?(?:[KMGT]i)?B?\b/ },
  ],
}));

const sources = [...document.querySelectorAll("code.language-pipe")];
for (const code of sources) {
  const text = code.textContent;
  code.textContent = text;
  code.classList.remove("hljs");
  hljs.highlightBlock(code);
  code.source = text;
}

/// A source as the fragment that the playground reads: JSON, deflated, in base64 for addresses.
async function fragment(source) {
  const stream = new Blob([JSON.stringify({ source })]).stream().pipeThrough(new CompressionStream("deflate"));
  let letters = "";
  for (const byte of new Uint8Array(await new Response(stream).arrayBuffer())) letters += String.fromCharCode(byte);
  return `z.${btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`;
}

/// A source with the schedules that it imports from files, where the page shows them before it.
const whole = (code) => code.source.replace(/^import "(\w+)\.pipe"\n/gm, (line, name) => {
  const before = sources.slice(0, sources.indexOf(code));
  return before.findLast(({ source }) => new RegExp(`^schedule ${name}\\b`, "m").test(source))?.source ?? line;
});

/// Whether the playground can compile a source: it has the standard library, and no files.
const isComplete = (source) => !/^\s*(?:import|model)\s+"/m.test(source);

function link(text, href) {
  const a = document.createElement("a");
  Object.assign(a, { textContent: text, href, className: "playground-link" });
  return a;
}

/// Links to the playground, where the book was built with it.
async function playground() {
  const home = `${path_to_root}playground/dist/index.html`;
  document.querySelector(".right-buttons")?.prepend(Object.assign(link("Playground", home), { title: "Write schedules in this browser" }));
  for (const door of document.querySelectorAll(".playground-door")) door.replaceChildren(link(door.dataset.text ?? "Open the playground", home));
  for (const code of sources.filter((code) => isComplete(whole(code)))) {
    const line = document.createElement("div");
    line.className = "playground-line";
    line.append(link("open in playground", `${home}#${await fragment(whole(code))}`));
    code.closest("pre").after(line);
  }
}

// docs/playground/build.sh writes this script beside the playground: a page in a folder cannot ask for files otherwise.
const built = document.createElement("script");
built.src = `${path_to_root}playground/dist/built.js`;
built.onload = playground;
built.onerror = () => document.querySelectorAll(".playground-door").forEach((door) => {
  door.textContent = "This copy of the book was built without the playground: docs/playground/build.sh builds it.";
});
document.head.append(built);

/// Makes letters of code smaller until its longest line fits. What is still too long is wrapped; in a narrow window,
/// where tables would fall apart, it can be moved.
function fit(code) {
  const pre = code.closest("pre");
  code.style.fontSize = "";
  pre.classList.remove("is-long", "is-wrapped");
  const { clientWidth, scrollWidth } = code;
  if (clientWidth === 0 || scrollWidth <= clientWidth) return;
  const size = parseFloat(getComputedStyle(code).fontSize) * (clientWidth - 36) / (scrollWidth - 36);
  if (size < SMALLEST && matchMedia("(min-width: 701px)").matches) return pre.classList.add("is-wrapped");
  code.style.fontSize = `${Math.max(SMALLEST, Math.floor(size * 10) / 10)}px`;
  pre.classList.toggle("is-long", code.scrollWidth > code.clientWidth + 1);
}

const blocks = [...document.querySelectorAll("main pre > code")];
let width = 0;
new ResizeObserver(([main]) => {
  if (main.contentRect.width === width) return;
  width = main.contentRect.width;
  for (const code of blocks) {
    fit(code);
    if (code.scrollWidth > code.clientWidth) code.tabIndex = 0;
  }
}).observe(document.querySelector("main"));
