// A text area over its coloured text, with findings at their place.

/// How high a line is, and what is free left of and above the text, in pixels: as the style says it.
const LINE = 19;
const MARGIN = [12, 10];

class Editor {
  constructor(keywords, changed) {
    const words = keywords.join("|");
    this.pattern = new RegExp(`(//[^\\n]*)|("[^"\\n]*")|\\b(F|BW|B|W|R|U)(?=\\s*\\[)|\\b(${words})\\b|\\b(\\d[\\d_.]*(?:[KMGT]i?B)?)\\b`, "g");
    this.area = h("textarea", { spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off", "aria-label": "Source", "aria-describedby": "editor-hint findings", input: () => {
      this.findings = [];
      this.lights.replaceChildren();
      this.colour();
      changed();
    } });
    this.lights = h("div", { class: "lights", "aria-hidden": "true" });
    this.paper = h("pre", { class: "paper", "aria-hidden": "true" });
    this.numbers = h("pre", { class: "numbers", "aria-hidden": "true" });
    this.paged = h("div", { class: "editor" }, this.numbers, h("div", { class: "sheet" }, this.lights, this.paper, this.area));
    this.root = h("div", { class: "desk" }, this.paged);
    this.findings = [];
    this.area.addEventListener("scroll", () => this.scroll());
    this.area.addEventListener("keydown", (event) => this.key(event));
  }

  get text() { return this.area.value; }

  set text(text) {
    this.area.value = text;
    this.findings = [];
    this.area.scrollTop = 0;
    this.colour();
  }

  /// Marks what findings are about.
  mark(findings) {
    this.findings = findings;
    this.colour();
  }

  /// Puts the cursor where a finding is.
  go(finding) {
    const at = this.offset(finding.line, finding.column);
    this.area.focus();
    this.area.setSelectionRange(at, at);
    this.area.scrollTop = Math.max(0, (finding.line - 6) * LINE);
  }

  /// Marks statements behind the text: that of the selected task, which is brought into view, and that under the
  /// pointer.
  light({ own, under }) {
    const marks = [["own", own], ["under", under]].filter(([, place]) => place);
    this.lights.replaceChildren(...marks.flatMap(([name, place]) => this.boxes(place).map((style) => h("div", { class: name, style }))));
    if (!own) return;
    const [top, bottom] = [(own.line - 1) * LINE, own.end_line * LINE + 2 * MARGIN[1]];
    const { scrollTop, clientHeight } = this.area;
    if (top < scrollTop || bottom > scrollTop + clientHeight) this.area.scrollTop = Math.max(0, top - clientHeight / 3);
  }

  /// The boxes around the lines of a place of the compiler, as styles.
  boxes({ line: first, column, end_line: last, end_column }) {
    return this.text.split("\n").slice(first - 1, last).map((text, index) => {
      const line = first + index;
      const letters = [...text];
      const from = line === first ? letters.slice(0, column - 1).join("") : text.match(/^\s*/)[0];
      const to = line === last ? letters.slice(0, end_column - 1).join("") : text;
      const left = this.width(from);
      return `left: ${MARGIN[0] + left - 2}px; top: ${MARGIN[1] + (line - 1) * LINE}px; width: ${this.width(to) - left + 4}px`;
    });
  }

  /// Where the cursor is, as the compiler counts.
  cursor() { return this.spot(this.area.selectionDirection === "backward" ? this.area.selectionStart : this.area.selectionEnd); }

  /// A place of the text as the compiler counts: line, and column in characters.
  spot(at) {
    const before = this.text.slice(0, at).split("\n");
    return { line: before.length, column: [...before[before.length - 1]].length + 1 };
  }

  /// Where a place of the compiler is, which counts characters, in the text, which counts UTF-16 units.
  offset(line, column) {
    const lines = this.text.split("\n");
    const before = lines.slice(0, line - 1).reduce((sum, line) => sum + line.length + 1, 0);
    return before + [...lines[line - 1] ?? ""].slice(0, column - 1).join("").length;
  }

  /// Makes edits of places of the compiler, which do not overlap, in one step that Ctrl Z takes back.
  apply(edits) {
    const places = edits.map((one) => ({ from: this.offset(one.line, one.column), to: this.offset(one.end_line, one.end_column), text: one.text }));
    places.sort((one, other) => one.from - other.from || one.to - other.to);
    const [begin, end] = [places[0].from, Math.max(...places.map(({ to }) => to))];
    let text = "", last = begin;
    for (const place of places) {
      text += this.text.slice(last, place.from) + place.text;
      last = place.to;
    }
    this.replace(begin, end, text + this.text.slice(last, end));
  }

  /// Replaces a part of the text as if it were typed: Ctrl Z undoes `insertText`, but not `setRangeText`.
  replace(from, to, text) {
    const { area } = this;
    area.focus();
    area.setSelectionRange(from, to);
    if (from === to && text === "") return;
    const isTyped = document.execCommand(text === "" ? "delete" : "insertText", false, text);
    if (isTyped) return;
    area.setRangeText(text, from, to, "end");
    area.dispatchEvent(new Event("input"));
  }

  /// How wide a text is.
  width(text) {
    this.ruler ??= document.createElement("canvas").getContext("2d");
    this.ruler.font = getComputedStyle(this.area).font;
    return this.ruler.measureText(text).width;
  }

  /// Where a place of the text is on the page, from the corner of the editor.
  box(at) {
    const before = this.text.slice(0, at).split("\n");
    const [sheet, root] = [this.area.getBoundingClientRect(), this.root.getBoundingClientRect()];
    return {
      left: sheet.left - root.left + MARGIN[0] + this.width(before[before.length - 1]) - this.area.scrollLeft,
      top: sheet.top - root.top + MARGIN[1] + (before.length - 1) * LINE - this.area.scrollTop,
      height: LINE,
    };
  }

  /// The letter under the pointer, as a place of the text; null if there is none.
  at(event) {
    const sheet = this.area.getBoundingClientRect();
    const [x, y] = [event.clientX - sheet.left - MARGIN[0] + this.area.scrollLeft, event.clientY - sheet.top - MARGIN[1] + this.area.scrollTop];
    const lines = this.text.split("\n");
    const line = lines[Math.floor(y / LINE)];
    if (line === undefined || x < 0 || x >= this.width(line)) return null;
    let [low, high] = [0, line.length];
    while (low + 1 < high) {
      const middle = (low + high) >> 1;
      if (this.width(line.slice(0, middle)) <= x) low = middle; else high = middle;
    }
    return lines.slice(0, Math.floor(y / LINE)).reduce((sum, one) => sum + one.length + 1, 0) + low;
  }

  scroll() {
    this.lights.style.transform = this.paper.style.transform = `translate(${-this.area.scrollLeft}px, ${-this.area.scrollTop}px)`;
    this.numbers.style.transform = `translateY(${-this.area.scrollTop}px)`;
  }

  colour() {
    const lines = this.text.split("\n");
    this.paper.replaceChildren(...lines.flatMap((line, index) => [...this.line(line, index + 1), "\n"]));
    this.numbers.textContent = lines.map((_, index) => index + 1).join("\n");
    this.scroll();
  }

  /// A line in pieces, with the message of its finding behind it.
  line(text, number) {
    const own = this.findings.filter((one) => one.line <= number && number <= one.end_line);
    const [first] = own.sort((one, other) => (one.severity === "error" ? 0 : 1) - (other.severity === "error" ? 0 : 1));
    if (!first) return this.pieces(text);
    const letters = [...text];
    const from = first.line === number ? first.column - 1 : 0;
    const to = Math.max(from + 1, first.end_line === number ? first.end_column - 1 : letters.length);
    const part = (begin, end) => this.pieces(letters.slice(begin, end).join(""));
    const middle = part(from, to);
    const mark = h("mark", { class: first.severity }, middle.length > 0 ? middle : " ");
    const message = first.line === number ? h("span", { class: `message ${first.severity}` }, `  ${first.message}`) : "";
    return [...part(0, from), mark, ...part(to), message];
  }

  pieces(text) {
    const found = [];
    let last = 0;
    for (const match of text.matchAll(this.pattern)) {
      if (match.index > last) found.push(text.slice(last, match.index));
      const kind = ["comment", "string", "task", "keyword", "number"][match.slice(1).findIndex((part) => part !== undefined)];
      found.push(h("span", { class: kind }, match[0]));
      last = match.index + match[0].length;
    }
    if (last < text.length) found.push(text.slice(last));
    return found;
  }

  /// Tab writes four spaces, unless Escape came before it; Enter keeps the indentation.
  key(event) {
    const { area } = this;
    if (event.key === "Escape") this.leaves = true;
    else if (event.key === "Tab" && !event.shiftKey && !this.leaves) this.write(event, "    ");
    else if (event.key === "Enter") {
      const line = area.value.slice(0, area.selectionStart).split("\n").pop();
      this.write(event, `\n${line.match(/^ */)[0]}${/\{\s*$/.test(line) ? "    " : ""}`);
    }
    if (event.key !== "Escape" && event.key !== "Tab") this.leaves = false;
  }

  write(event, text) {
    event.preventDefault();
    this.replace(this.area.selectionStart, this.area.selectionEnd, text);
  }
}
