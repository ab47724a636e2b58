// The playground: a source and its options on one side, what the compiler makes of them on the other.

/// How long typing pauses before it is compiled, and how long the compiler may take for a source that is old by then.
const PAUSE = 120;
const PATIENCE = 4000;
/// What one sees first.
const FIRST = "v_half";
/// What the compiler calls the source that is written here.
const ROOT = "playground.pipe";
const OPTIONS = [
  ["devices", "number", "4"],
  ["microbatches", "number", "8"],
  ["cost", "text", "F=1,B=2,comm=0.1"],
  ["memory", "text", "units, such as 3.5"],
  ["activation", "text", "W=0.366"],
  ["recompute", "text", "all, or 0..2"],
];

/// What keys do in the editor, as the page says it.
const EDITOR_KEYS = [
  ["Ctrl+Space", "in the editor: what can be written here"],
  ["Ctrl+I", "in the editor: what the word at the cursor means"],
  ["Ctrl+Enter", "in the editor: to the tasks of the statement at the cursor"],
  ["Esc Tab", "in the editor: on to the next control; Tab alone indents"],
];
const HINT = "Ctrl Space offers what can be written, Ctrl I says what a word means, Ctrl Enter goes to the tasks of a statement; Esc and then Tab leave the editor.";
/// How long nothing is compiled before its verdict is spoken.
const SPEAK = 900;
KEYS.push(...EDITOR_KEYS);

/// A text as the fragment of an address: deflated, in base64 for addresses.
async function pack(text) {
  const packed = await through(new TextEncoder().encode(text), new CompressionStream("deflate"));
  let letters = "";
  for (const byte of packed) letters += String.fromCharCode(byte);
  return `z.${btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`;
}

/// The text of a fragment, also of one that is not deflated, as links had it before.
async function unpack(fragment) {
  const isSmall = fragment.startsWith("z.");
  const letters = atob(fragment.slice(isSmall ? 2 : 0).replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
  return new TextDecoder().decode(isSmall ? await through(bytes, new DecompressionStream("deflate")) : bytes);
}

async function through(bytes, stream) {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
}

class Playground {
  constructor(root) {
    this.packed = Uint8Array.from(atob(WASM), (letter) => letter.charCodeAt(0));
    this.timeline = new SharedTimeline(h("div", { class: "timeline waiting" }));
    this.timeline.show.source = false;
    this.beside = new Beside(this.timeline);
    this.gallery = h("select", { "aria-label": "Standard schedules", change: () => this.choose(this.gallery.value) });
    this.examples = h("select", { "aria-label": "Examples", change: () => this.chooseExample(this.examples.value) });
    this.versus = h("select", { "aria-label": "Compare with", change: () => this.ask() });
    this.fields = Object.fromEntries(OPTIONS.map(([name, type, hint]) => [name, h("input", { type, placeholder: hint, min: type === "number" && "1", "aria-label": name, input: () => this.changed() })]));
    this.findings = h("ol", { id: "findings", class: "findings", "aria-live": "polite" });
    // Times and seconds change with every key: what comes of it is spoken when typing pauses, and only if it is new.
    this.status = h("output", { class: "status", "aria-live": "off" }, "the compiler is loading");
    this.spoken = h("div", { class: "hidden", role: "status" });
    this.hint = h("p", { class: "hint", id: "editor-hint" }, HINT);
    this.share = h("button", { type: "button", click: () => this.copy() }, "copy link");
    this.finder = h("button", { type: "button", title: "Search a shorter schedule with these stages, places, costs and memory, as pipec search does", click: () => this.search() }, "search");
    this.save = h("button", { type: "button", title: "Download the source", click: () => this.download(`${this.schedule()}.pipe`, "text/plain", this.editor.text) }, "save .pipe");
    this.draw = h("button", { type: "button", title: "Download the picture, as pipec plot -o x.svg writes it", click: () => this.saveFigure() }, "save .svg");
    this.side = h("div", { class: "side" });
    root.classList.add("playground");
    root.append(
      h("header", {}, h("h1", {}, "pipec playground"), h("p", {}, "Pipeline-parallel training schedules, proved and drawn as you type. Everything happens in this page.")),
      this.side, this.timeline.root);
    this.question = null;
    this.isFresh = true;
    this.start();
  }

  start() {
    this.worker?.terminate();
    for (const answer of this.aside?.values() ?? []) answer(null);
    this.aside = new Map();
    this.worker = this.newWorker();
    this.worker.onmessage = ({ data }) => {
      const aside = this.aside.get(data.id);
      this.aside.delete(data.id);
      if (aside) aside(data.bug ? null : JSON.parse(data.answer));
      if (aside && !data.bug) return;
      if (aside) this.told({ id: this.asked, bug: data.bug });
      else if (data.gallery) this.ready(JSON.parse(data.gallery));
      else if (data.unusable) this.side.replaceChildren(h("p", { class: "status" }, `the compiler cannot be loaded: ${data.unusable}`));
      else this.told(data);
    };
    this.worker.onerror = (event) => this.told({ id: this.asked, bug: event.message });
    this.isReady = this.isBusy = false;
    this.worker.postMessage({ packed: this.packed });
  }

  newWorker() { return new Worker(this.code ??= URL.createObjectURL(new Blob([WORKER], { type: "text/javascript" }))); }

  /// The compiler is there.
  ready({ schedules, examples, keywords }) {
    this.isReady = true;
    if (!this.editor) {
      this.schedules = new Map(schedules);
      this.editor = new Editor(keywords, () => this.changed());
      this.edited = this.connect();
      this.assistant = new Assistant(this.editor, (question) => this.askAside("assist", question));
      this.gallery.append(h("option", { value: "" }, "your own"), ...schedules.map(([name]) => h("option", { value: name }, name)));
      this.versus.append(h("option", { value: "" }, "nothing"), ...schedules.map(([name]) => h("option", { value: name }, name)));
      this.exampleGroups = examples;
      this.sources = new Map(examples.flatMap((group) => group.examples).map((example) => [example.shows, example.source]));
      const group = ({ subject, examples }) => h("optgroup", { label: subject }, examples.map(({ shows }) => h("option", { value: shows }, shows)));
      this.examples.append(h("option", { value: "" }, "choose"), ...examples.map(group));
      this.side.append(
        h("div", { class: "menus" }, h("label", {}, "from the gallery", this.gallery), h("label", {}, "an example", this.examples), h("label", {}, "compare with", this.versus)),
        h("div", { class: "actions" }, this.finder, this.share, this.save, this.draw, this.status, this.spoken),
        this.editor.root, this.hint,
        h("div", { class: "options" }, OPTIONS.map(([name]) => h("label", {}, name, this.fields[name]))),
        this.findings);
      this.fromLink().then((isThere) => isThere || this.choose(FIRST));
      addEventListener("hashchange", () => location.hash.slice(1) !== this.link && this.fromLink());
      return;
    }
    this.ask();
  }

  /// Editor and timeline: a task marks its statement, the cursor and the pointer light the tasks of theirs.
  connect() {
    const { editor } = this;
    const { area } = editor;
    const edited = new Edited(this.timeline, {
      name: ROOT, isAs: (text) => text === editor.text, mark: (marks) => editor.light(marks), go: (place) => editor.go(place),
    });
    const look = () => edited.look(document.activeElement === area ? editor.cursor() : null);
    document.addEventListener("selectionchange", look);
    for (const name of ["focus", "blur"]) area.addEventListener(name, look);
    area.addEventListener("input", () => edited.changed());
    area.addEventListener("pointermove", (event) => {
      const at = event.buttons > 0 || event.pointerType === "touch" ? null : editor.at(event);
      edited.point(at === null ? null : editor.spot(at));
    });
    area.addEventListener("pointerleave", () => edited.point(null));
    area.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      edited.select();
    }, { capture: true });
    return edited;
  }

  /// Shows a schedule of the standard library.
  choose(name) {
    if (this.schedules.has(name)) this.open(this.schedules.get(name));
  }

  /// Shows an example, which is meant without options.
  chooseExample(shows) {
    if (!this.sources.has(shows)) return;
    for (const [name] of OPTIONS) this.fields[name].value = "";
    this.open(this.sources.get(shows));
  }

  /// Shows a source that was not typed.
  open(source) {
    this.editor.text = source;
    this.sayMenus();
    this.isFresh = true;
    this.ask();
  }

  /// Menus say where the source is from, if it is as it was there.
  sayMenus() {
    const named = (menu, sources) => {
      if (sources.get(menu.value) !== this.editor.text) menu.value = [...sources].find(([, text]) => text === this.editor.text)?.[0] ?? "";
    };
    named(this.gallery, this.schedules);
    named(this.examples, this.sources);
  }

  /// What a link carries: the source and the options.
  async fromLink() {
    try {
      const { source, settings = {}, beside = "", ...options } = JSON.parse(await unpack(location.hash.slice(1)));
      if (typeof source !== "string") return false;
      for (const [name] of OPTIONS) this.fields[name].value = settings[name] ?? options[name] ?? "";
      this.versus.value = this.schedules.has(beside) ? beside : "";
      this.open(source);
      return true;
    } catch {
      return false;
    }
  }

  /// Puts the link to what is there where links are, unless there is something newer by then.
  async remember() {
    const turn = this.turn = (this.turn ?? 0) + 1;
    const link = await pack(JSON.stringify({ ...this.current(), ...(this.versus.value && { beside: this.versus.value }) }));
    if (turn !== this.turn) return;
    this.link = link;
    history.replaceState(null, "", `#${link}`);
  }

  async copy() {
    await this.remember();
    try {
      await navigator.clipboard.writeText(location.href);
      this.tell("copied");
    } catch {
      this.tell("the link is in the address bar");
    }
  }

  /// Begins a search for something shorter, or ends it.
  search() {
    if (this.searching) return this.endSearch("the search was stopped");
    const question = this.current();
    this.finder.textContent = "stop";
    const done = (told) => this.endSearch(this.found(told, question));
    this.searching = new Search(this.newWorker(), this.packed, question, (words) => this.status.textContent = words, done);
    return undefined;
  }

  endSearch(words) {
    this.searching.stop();
    this.searching = null;
    this.finder.textContent = "search";
    this.tell(words);
  }

  /// Says something, once also in speech.
  tell(words) {
    this.status.textContent = words;
    clearTimeout(this.speaking);
    this.spoken.textContent = words;
  }

  /// Says what the compiler made of the source, in speech when typing pauses.
  tellVerdict(report) {
    if (this.searching) return;
    const verdict = report?.ok ? "accepted" : "rejected";
    this.status.textContent = `${verdict}, ${Math.max(1, Math.round(this.took))} ms`;
    const nErrors = (report?.diagnostics ?? []).filter((one) => one.severity === "error").length;
    const figures = report?.ok && report.makespan !== null ? `: makespan ${say(report.makespan)}, mean bubble ${percent(report.bubble_mean)}, peak ${sayUnits(report.peak_activation)}` : "";
    const words = `${verdict}${figures}${nErrors > 0 ? `: ${plural(nErrors, "error")}` : ""}`;
    clearTimeout(this.speaking);
    this.speaking = setTimeout(() => words === this.spoken.textContent || (this.spoken.textContent = words), SPEAK);
  }

  /// Writes what a search found into the editor, in one step that Ctrl Z takes back, if it is better than what is there.
  found({ report, source, proved, bug, refused, mistakes }, searched) {
    if (JSON.stringify(this.current()) !== JSON.stringify(searched)) return "the source or its options have changed since the search began";
    if (bug || refused) return `the search failed: ${bug ?? refused}`;
    if (Object.keys(mistakes).length > 0 || (report && !source)) return "this cannot be searched: see below";
    if (!source) return "there was no time to find any schedule";
    if (!report.ok) return "nothing was found that fits";
    const own = this.answered;
    const isBetter = !own?.ok || report.makespan < own.makespan;
    if (!isBetter) return proved ? `nothing is shorter than ${say(own.makespan)}: proved` : `nothing shorter was found; at least ${say(report.lower_bound)}`;
    this.editor.replace(0, searched.source.length, source);
    return "found";
  }

  /// What the last picture is of, as the name of a file.
  schedule() { return this.timeline.model?.picture.title.replace(/[^A-Za-z0-9_-]/g, "_") || "schedule"; }

  /// Downloads the picture as `pipec plot` draws it.
  async saveFigure() {
    const told = await this.askAside("svg", this.current());
    if (told?.svg) this.download(`${this.schedule()}.svg`, "image/svg+xml", told.svg);
    else this.tell(told?.refused ?? "the compiler is not ready");
  }

  download(name, type, text) {
    const href = URL.createObjectURL(new Blob([text], { type }));
    h("a", { href, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(href), 1000);
  }

  current() {
    const settings = {}, options = {};
    for (const [name, type] of OPTIONS) {
      const value = this.fields[name].value.trim();
      if (value === "") continue;
      if (type === "number") settings[name] = Math.trunc(Number(value)); else options[name] = value;
    }
    return { source: this.editor.text, settings, ...options };
  }

  changed() {
    this.sayMenus();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), PAUSE);
  }

  /// The answer to a question beside what is compiled; null if there is none.
  askAside(by, question) {
    if (!this.isReady) return Promise.resolve(null);
    const id = `aside ${this.nAside = (this.nAside ?? 0) + 1}`;
    return new Promise((answer) => {
      this.aside.set(id, answer);
      this.worker.postMessage({ id, by, question });
    });
  }

  /// Compiles what is there now, or as soon as the compiler is free. One that takes too long for a source that has changed is left.
  ask() {
    clearTimeout(this.timer);
    this.question = this.current();
    this.remembered = this.remember();
    if (this.isBusy && performance.now() - this.since > PATIENCE) this.start();
    if (this.isBusy || !this.isReady) {
      clearTimeout(this.impatience);
      this.impatience = setTimeout(() => this.question && this.isBusy && this.ask(), PATIENCE);
      return;
    }
    this.isBusy = true;
    this.since = performance.now();
    this.asked = (this.asked ?? 0) + 1;
    this.compiled = this.question.source;
    this.worker.postMessage({ id: this.asked, by: "compile", question: this.question });
    this.question = null;
    if (!this.searching) this.status.textContent = "compiling";
  }

  told({ id, answer, bug }) {
    if (id !== this.asked) return;
    this.isBusy = false;
    this.took = performance.now() - this.since;
    if (bug) {
      this.status.textContent = "";
      this.say([{ severity: "error", message: `this is a bug in pipec, please report it with the source: ${bug}` }]);
      this.start();
      return;
    }
    this.show(JSON.parse(answer));
    if (this.question) this.ask();
  }

  show({ report, picture, mistakes, refused }) {
    const wrong = Object.entries(mistakes ?? {}).map(([name, message]) => ({ severity: "error", option: name, message }));
    for (const [name] of OPTIONS) this.fields[name].setAttribute("aria-invalid", String(Boolean(mistakes?.[name])));
    if (refused) wrong.push({ severity: "error", message: refused });
    const own = report?.diagnostics ?? [];
    this.answered = report;
    this.editor.mark(own.filter((one) => one.file === ROOT));
    this.say([...wrong, ...own]);
    this.tellVerdict(report);
    this.timeline.root.classList.toggle("stale", !picture);
    if (!picture) {
      this.edited.forget();
      return;
    }
    this.timeline.root.classList.remove("waiting");
    this.timeline.draw(picture, !this.isFresh);
    this.isFresh = false;
    this.compare();
  }

  /// Draws what the schedule is compared with: the same under another schedule.
  async compare() {
    const name = this.versus.value;
    if (!name) return this.beside.close();
    const { asked } = this;
    const told = await this.askAside("compile", { ...this.current(), source: this.compiled, under: name });
    if (told && asked === this.asked && name === this.versus.value) this.beside.show(told.picture, name);
    return undefined;
  }

  say(findings) {
    this.findings.replaceChildren(...findings.map((one) => h("li", { class: one.severity },
      one.line ? h("button", { type: "button", class: "jump", click: () => this.editor.go(one) }, `line ${one.line}`) : h("b", {}, one.option ?? ""),
      h("span", {}, `${one.code ? `${one.severity}[${one.code}]: ` : ""}${one.message}`),
      (one.notes ?? []).map((note) => h("small", {}, note)), one.help ? h("small", { class: "help" }, `help: ${one.help}`) : null, this.remedy(one))));
  }

  /// A button that makes the edits of a finding, where it has some and they are in this source.
  remedy({ fix = [], message }) {
    if (fix.length === 0 || fix.some((edit) => edit.file !== ROOT)) return null;
    return h("button", { type: "button", class: "apply", "aria-label": `apply the fix of: ${message}`, click: () => this.compiled === this.editor.text && this.editor.apply(fix) }, "apply");
  }
}

document.title = "pipec playground";
const playground = new Playground(document.getElementById("timeline"));
const timeline = playground.timeline;
