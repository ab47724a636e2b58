// What the editor offers while one types, and what it says of a word: answered by the compiler, as in any editor.

/// How long the pointer rests on a word before it is told what it means.
const REST = 350;
/// What can begin or end a word.
const WORD = /[A-Za-z0-9_]/;

/// Markdown as far as the compiler writes it: paragraphs, headings, code, rules.
function markdown(text) {
  const words = (line) => line.split(/(`[^`]+`|\[[^\]]+\]\([^)]+\))/).map((part) =>
    part.startsWith("`") ? h("code", {}, part.slice(1, -1)) : part.replace(/^\[([^\]]+)\]\([^)]+\)$/, "$1"));
  return text.split(/(```[\s\S]*?```)/).flatMap((part) => {
    if (part.startsWith("```")) return [h("pre", {}, part.replace(/^```\w*\n|\n?```$/g, ""))];
    return part.split(/\n\n+/).map((paragraph) => paragraph.trim()).filter(Boolean).map((paragraph) => {
      if (paragraph === "---") return h("hr");
      const heading = paragraph.match(/^#+ (.*)$/);
      return heading ? h("h3", {}, ...words(heading[1])) : h("p", {}, ...words(paragraph.replaceAll("\n", " ")));
    });
  });
}

/// A list of what can be written, and a card about a word, over an editor. `ask` asks the compiler.
class Assistant {
  constructor(editor, ask) {
    this.editor = editor;
    this.ask = ask;
    this.list = h("ul", { id: "offers", class: "offers", role: "listbox", "aria-label": "What can be written", hidden: true });
    this.card = h("div", { class: "card", role: "status", hidden: true });
    this.offers = [];
    const { area } = editor;
    for (const [name, value] of Object.entries({ "aria-autocomplete": "list", "aria-controls": "offers", "aria-keyshortcuts": "Control+Space Control+I Control+Enter" })) area.setAttribute(name, value);
    editor.root.append(this.list, this.card);
    area.addEventListener("keydown", (event) => this.key(event), { capture: true });
    area.addEventListener("input", (event) => this.typed(event));
    for (const name of ["blur", "scroll", "pointerdown"]) area.addEventListener(name, () => this.close());
    area.addEventListener("pointermove", (event) => this.rest(event));
    area.addEventListener("pointerleave", () => this.leave());
  }

  get isOpen() { return !this.list.hidden; }

  close() {
    this.turn = (this.turn ?? 0) + 1;
    this.list.hidden = this.card.hidden = true;
    this.editor.area.removeAttribute("aria-activedescendant");
    clearTimeout(this.resting);
  }

  /// Letters of a word, or what begins an argument, ask for what fits.
  typed(event) {
    this.close();
    const { area } = this.editor;
    const before = area.value.slice(0, area.selectionStart);
    if (event.inputType === "insertText" && /(?:^|[^A-Za-z0-9_])[A-Za-z_][A-Za-z0-9_]*$|\.$/.test(before)) this.complete(false);
  }

  /// Offers what can be written here; unasked only what begins as what is there, and not if that is all.
  async complete(isAsked) {
    const { area } = this.editor;
    this.close();
    const [turn, at, source] = [this.turn, area.selectionStart, area.value];
    const told = await this.ask({ about: "completion", source, at });
    if (!told?.offers || turn !== this.turn || area.selectionStart !== at || area.value !== source) return;
    const begun = source.slice(told.from, at).toLowerCase();
    this.offers = told.offers.filter(({ label }) => label.toLowerCase().startsWith(begun));
    if (!isAsked && (begun === "" || this.offers.some(({ label }) => label.toLowerCase() === begun))) return;
    if (this.offers.length === 0) return;
    [this.from, this.to, this.chosen] = [told.from, told.to, 0];
    this.list.replaceChildren(...this.offers.map(({ label, kind, detail }, index) =>
      h("li", { id: `offer-${index}`, role: "option", pointerdown: (event) => this.take(event, index) }, h("b", {}, label), h("small", {}, detail || kind))));
    this.list.hidden = false;
    this.place(this.list, told.from);
    this.choose(0);
  }

  choose(index) {
    this.chosen = (index + this.offers.length) % this.offers.length;
    [...this.list.children].forEach((item, place) => item.setAttribute("aria-selected", String(place === this.chosen)));
    this.editor.area.setAttribute("aria-activedescendant", `offer-${this.chosen}`);
    this.list.children[this.chosen].scrollIntoView({ block: "nearest" });
  }

  take(event, index) {
    event.preventDefault();
    const { from, to, offers } = this;
    this.close();
    this.editor.replace(from, to, offers[index].text);
    this.close();
  }

  key(event) {
    const { area } = this.editor;
    const held = event.ctrlKey || event.metaKey;
    const keys = this.isOpen && !held && !event.shiftKey
      ? { ArrowDown: () => this.choose(this.chosen + 1), ArrowUp: () => this.choose(this.chosen - 1), Enter: () => this.take(event, this.chosen), Tab: () => this.take(event, this.chosen), Escape: () => this.close() }
      : held ? { " ": () => this.complete(true), i: () => this.tell(area.selectionStart) }
        : this.card.hidden ? {} : { Escape: () => this.close() };
    const action = keys[event.key];
    if (action) {
      event.preventDefault();
      event.stopImmediatePropagation();
      action();
    } else if (this.isOpen && /^(Arrow|Home|End|Page)/.test(event.key)) this.close();
    else if (!this.card.hidden && !["Control", "Meta", "Shift", "Alt"].includes(event.key)) this.close();
  }

  /// Says what stands at a place.
  async tell(at) {
    this.close();
    const { turn } = this;
    const source = this.editor.text;
    const covers = (one) => this.editor.offset(one.line, one.column) <= at && at <= this.editor.offset(one.end_line, one.end_column);
    const errors = this.editor.findings.filter((one) => one.code && covers(one)).map(({ code }) => code);
    const told = await this.ask({ about: "hover", source, at, errors });
    if (!told?.text || turn !== this.turn || this.editor.text !== source) return;
    this.card.replaceChildren(...markdown(told.text));
    this.card.hidden = false;
    this.place(this.card, told.from);
  }

  /// The pointer rests on a word, or goes on.
  rest(event) {
    if (event.pointerType === "touch" || event.buttons > 0) return;
    clearTimeout(this.resting);
    const at = this.editor.at(event);
    const word = at === null ? null : this.wordAt(at);
    if (this.told !== word) this.leave();
    if (word === null || this.isOpen || this.told === word) return;
    this.resting = setTimeout(() => {
      this.told = word;
      this.tell(at);
    }, REST);
  }

  leave() {
    clearTimeout(this.resting);
    if (this.told === undefined || this.told === null) return;
    this.told = null;
    this.close();
  }

  /// Where the word at a place begins; null if there is none.
  wordAt(at) {
    const { text } = this.editor;
    if (!WORD.test(text[at] ?? "")) return null;
    let start = at;
    while (start > 0 && WORD.test(text[start - 1])) start--;
    return start;
  }

  /// Puts a box below a place of the text, or above it where that has more room.
  place(box, at) {
    const { left, top, height } = this.editor.box(at);
    const { clientWidth } = this.editor.root;
    box.style.left = `${Math.max(4, Math.min(left, clientWidth - box.offsetWidth - 4))}px`;
    const edge = this.editor.root.getBoundingClientRect().top;
    const isBelow = edge + top + height + box.offsetHeight < window.innerHeight || edge + top < box.offsetHeight;
    box.style.top = `${isBelow ? top + height : top - box.offsetHeight}px`;
  }
}
