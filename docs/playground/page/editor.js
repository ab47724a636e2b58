// A text area over its coloured text, with findings at their place.

class Editor {
  constructor(keywords, changed) {
    const words = keywords.join("|");
    this.pattern = new RegExp(`(//[^\\n]*)|("[^"\\n]*")|\\b(F|BW|B|W|R|U)(?=\\s*\\[)|\\b(${words})\\b|\\b(\\d[\\d_.]*(?:[KMGT]i?B)?)\\b`, "g");
    this.area = h("textarea", { spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off", "aria-label": "Source", "aria-describedby": "findings", input: () => {
      this.findings = [];
      this.colour();
      changed();
    } });
    this.paper = h("pre", { class: "paper", "aria-hidden": "true" });
    this.numbers = h("pre", { class: "numbers", "aria-hidden": "true" });
    this.root = h("div", { class: "editor" }, this.numbers, h("div", { class: "sheet" }, this.paper, this.area));
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
    const lines = this.text.split("\n");
    const at = lines.slice(0, finding.line - 1).reduce((sum, line) => sum + line.length + 1, 0) + finding.column - 1;
    this.area.focus();
    this.area.setSelectionRange(at, at);
    this.area.scrollTop = Math.max(0, (finding.line - 6) * 19);
  }

  scroll() {
    this.paper.style.transform = `translate(${-this.area.scrollLeft}px, ${-this.area.scrollTop}px)`;
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
    this.area.setRangeText(text, this.area.selectionStart, this.area.selectionEnd, "end");
    this.area.dispatchEvent(new Event("input"));
  }
}
