// What the book adds to mdBook: colours for `pipe`, links into the playground, and code that fits its page.
"use strict";

// The keywords of grammar/pipe.pest; a test compares them.
const KEYWORDS = `
  activation all and at auto behind block bubble checkpoint clip_norm cost cut data decay device devices else every
  fill for from frozen host if import in init input lane layer let loss memory microbatches minimum model none normal
  not numbers of offload on ones optimizer or order output over param part parts peak phase pipeline place precision
  reads recompute reorder repeat require schedule seed slices slots speed split stages steps swap synthetic tensor
  then to tokenizer train trained validation warmup weight weight_decay weights with zero zeros
`;
/// Smallest letters of code that is made narrower, in pixels.
const SMALLEST = 9.5;
/// Letters of tables, and the smallest ones.
const LETTERS = 16;
const SMALLEST_OF_TABLES = 12;
/// Pictures that are wider can be moved in a narrow window.
const WIDE = 720;

hljs.registerLanguage("pipe", () => ({
  name: "pipe",
  // It takes words apart at spaces, not at line ends.
  keywords: KEYWORDS.trim().replace(/\s+/g, " "),
  contains: [
    { className: "comment", begin: /\/\//, end: /$/ },
    { className: "string", begin: /"/, end: /"/, illegal: /\n/ },
    { className: "task", begin: /\b(?:F|BW|B|W|R|U|evict|fetch|reduce|update|gather)(?=\s*\[)/ },
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

/// The name of a file that the text above a source gives it.
const nameOf = (code) => code.closest("pre").previousElementSibling?.querySelector("code")?.textContent;

/// A source with the schedules that it imports from files, where the page shows them before it. One that imports itself
/// does so under the name that it has in the playground.
const whole = (code) => code.source.replace(/^import "(\w+)\.pipe"\n/gm, (line, name) => {
  const before = sources.slice(0, sources.indexOf(code));
  const imported = before.findLast(({ source }) => new RegExp(`^schedule ${name}\\b`, "m").test(source))?.source;
  return imported ?? (nameOf(code) === `${name}.pipe` ? `import "playground.pipe"\n` : line);
});

/// Whether the playground can compile a source: it has the standard library and the models of the book, no other files
/// than the source itself.
const isComplete = (source) => !/^\s*import\s+"(?!playground\.pipe")/m.test(source);

/// The first stop of the Tab key: past the list of pages.
const past = document.createElement("a");
past.className = "skip-link";
past.href = "#mdbook-content";
past.textContent = "Skip to the page";
document.getElementById("mdbook-content").tabIndex = -1;
document.body.prepend(past);
// The list of pages has scrolled to this page, from where newer browsers would go on.
if (!location.hash) {
  document.body.tabIndex = -1;
  document.body.focus({ preventScroll: true });
  document.body.removeAttribute("tabindex");
}

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

const isNarrow = () => matchMedia("(max-width: 700px)").matches;

/// Marks what can be moved sideways: its edge fades, and Tab reaches it.
function mayMove(element, isLong) {
  element.classList.toggle("is-long", isLong);
  if (isLong) element.tabIndex = 0;
}

/// Makes letters of code smaller until its longest line fits. What is still too long is wrapped; in a narrow window,
/// where tables would fall apart, it can be moved.
function fit(code) {
  const pre = code.closest("pre");
  code.style.fontSize = "";
  code.classList.remove("is-long");
  pre.classList.remove("is-wrapped");
  const { clientWidth, scrollWidth } = code;
  if (clientWidth === 0 || scrollWidth <= clientWidth) return;
  const size = parseFloat(getComputedStyle(code).fontSize) * (clientWidth - 36) / (scrollWidth - 36);
  if (size < SMALLEST && !isNarrow()) return pre.classList.add("is-wrapped");
  code.style.fontSize = `${Math.max(SMALLEST, Math.floor(size * 10) / 10)}px`;
  mayMove(code, code.scrollWidth > code.clientWidth + 1);
}

/// Moves the columns of a table closer together, and then makes its letters smaller, where not all columns are seen.
/// What is still too wide can be moved.
function fitTable(wrapper) {
  wrapper.style.fontSize = "";
  wrapper.classList.remove("is-long", "is-tight");
  wrapper.classList.toggle("is-tight", wrapper.scrollWidth > wrapper.clientWidth);
  const { clientWidth, scrollWidth } = wrapper;
  if (scrollWidth > clientWidth) wrapper.style.fontSize = `${Math.max(SMALLEST_OF_TABLES, Math.floor(10 * LETTERS * clientWidth / scrollWidth) / 10)}px`;
  mayMove(wrapper, wrapper.scrollWidth > wrapper.clientWidth + 1);
}

/// In a narrow window, a wide picture keeps a size at which its text can be read, and can be moved.
function fitPicture(image) {
  // The style has another picture for the first page.
  const isWide = isNarrow() && image.naturalWidth > WIDE && getComputedStyle(image).content === "normal";
  image.classList.toggle("is-wide", isWide);
  image.closest("p")?.classList.toggle("can-be-moved", isWide);
}

/// Longest word of code that has no line break at its hyphens, so that it fits in any window.
const LONGEST_WORD = 30;
for (const code of document.querySelectorAll("main :not(pre) > code")) code.classList.toggle("is-word", code.textContent.length <= LONGEST_WORD && !code.textContent.includes(" "));

const blocks = [...document.querySelectorAll("main pre > code")];
const tables = [...document.querySelectorAll("main .table-wrapper")];
const pictures = [...document.querySelectorAll("main img")].filter((image) => !image.closest(".img-wrapper"));
let width = 0;
new ResizeObserver(([main]) => {
  if (main.contentRect.width === width) return;
  width = main.contentRect.width;
  blocks.forEach(fit);
  tables.forEach(fitTable);
  for (const image of pictures) image.decode().then(() => fitPicture(image), () => {});
}).observe(document.querySelector("main"));
