// The source beside the timeline: a statement under the pointer shows its tasks, and a task shows its statement.

class Listing {
  constructor(timeline) {
    this.timeline = timeline;
    this.text = h("div", { class: "code" });
    this.root = h("section", { class: "listing", "aria-label": "Source", hidden: true }, this.text);
    this.parts = this.order = this.marked = [];
    this.edited = null;
    const of = (event) => Number(event.target.closest?.("[data-statement]")?.dataset.statement ?? -1);
    this.text.addEventListener("pointerover", (event) => timeline.point(of(event)));
    this.text.addEventListener("pointerleave", () => timeline.point(-1));
    this.text.addEventListener("focusin", (event) => timeline.point(of(event)));
    this.text.addEventListener("focusout", () => timeline.point(-1));
    this.text.addEventListener("click", (event) => of(event) >= 0 && this.find(of(event)));
    this.text.addEventListener("keydown", (event) => this.key(event, of(event)));
  }

  get statements() { return this.timeline.models[this.timeline.models.length - 1].statements; }

  /// Whether there is anything to show: a text that is in an editor is shown there.
  get isThere() { return this.statements.count > 0 && this.statements.sources.some((_, source) => this.shows(source)); }

  shows(source) { return Boolean(this.statements.sources[source].lines) && !this.edited?.has(source); }

  /// Whether one can go to the text of a statement, here or in its editor.
  hasText(statement) { return statement >= 0 && (this.isThere || Boolean(this.edited?.has(this.statements.source[statement]))); }

  /// Goes to the text of a statement.
  go(statement) {
    if (!this.hasText(statement)) return;
    if (this.edited?.has(this.statements.source[statement])) {
      this.edited.go(statement);
      return;
    }
    if (!this.timeline.show.source) this.timeline.toggle("source");
    this.focus(statement);
  }

  /// Writes the texts of another picture.
  fill() {
    const { statements } = this;
    // Of a statement, its pieces line by line.
    this.parts = Array.from({ length: statements.count }, () => []);
    const texts = statements.sources.map(({ name, lines }, source) => this.shows(source) && [h("h3", {}, name), this.written(lines, statements.inText(source))]);
    this.text.replaceChildren(...texts.flat().filter(Boolean));
    this.order = this.parts.flatMap(([first]) => first ?? []);
    this.order[0]?.setAttribute("tabindex", "0");
    this.marked = [];
    this.say();
    this.edited?.follow();
    this.isNew = true;
  }

  /// Shows it or folds it away; at first, with its first statement.
  show(isShown) {
    this.root.hidden = !isShown;
    if (!isShown || !this.isNew || this.order.length === 0) return;
    this.isNew = false;
    // The lanes beside it have their height by then.
    requestAnimationFrame(() => this.timeline.selected < 0 && (this.root.scrollTop = this.order[0].offsetTop - this.root.clientHeight / 3));
  }

  written(lines, found) {
    let next = 0;
    // What follows the last line break is no line.
    const rows = (lines.at(-1) === "" ? lines.slice(0, -1) : lines).map((text, index) => {
      const line = index + 1;
      const pieces = [];
      let at = 0;
      for (; next < found.length && found[next].line <= line; next++) {
        const one = found[next];
        const from = one.line === line ? one.from : text.length - text.trimStart().length;
        const to = one.endLine === line ? one.to : text.length;
        pieces.push(...plain(text.slice(at, from)), this.piece(one.statement, text.slice(from, to)));
        at = to;
        if (one.endLine > line) break;
      }
      pieces.push(...plain(text.slice(at)));
      return h("span", { class: "line", style: `--in: ${text.length - text.trimStart().length + 2}ch` }, pieces, "\n");
    });
    return h("pre", {}, rows);
  }

  /// A statement, or the part of it that stands on a line.
  piece(statement, text) {
    const parts = this.parts[statement];
    const own = parts.length > 0 ? {} : { role: "button", tabindex: "-1", "aria-pressed": "false", title: `${plural(this.statements.tasksOf(statement).length, "task")}: click to find them` };
    const element = h("span", { class: "statement", "data-statement": `${statement}`, ...own }, text);
    parts.push(element);
    return element;
  }

  /// Finds the tasks of a statement, or ends that.
  find(statement) {
    const { finder } = this.timeline.panels;
    const query = this.statements.query(statement);
    if (finder.query === query) finder.close(); else finder.open(query);
  }

  key(event, statement) {
    if (statement < 0) return;
    const place = this.order.indexOf(this.parts[statement][0]);
    const go = (other) => this.focus(Number(this.order[Math.max(0, Math.min(this.order.length - 1, other))].dataset.statement));
    const keys = {
      ArrowUp: () => go(place - 1), ArrowDown: () => go(place + 1), Home: () => go(0), End: () => go(this.order.length - 1),
      Enter: () => this.find(statement), " ": () => this.find(statement),
      Escape: () => this.timeline.canvas.focus({ preventScroll: true }),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  }

  /// Makes a statement the one that keys are about.
  focus(statement) {
    const [first] = this.parts[statement] ?? [];
    if (!first) return;
    for (const one of this.order) one.setAttribute("tabindex", one === first ? "0" : "-1");
    first.focus({ preventScroll: true });
    this.reveal(first);
  }

  /// Scrolls the panel, and nothing around it.
  reveal(element) {
    const { root } = this;
    const [top, bottom] = [element.offsetTop, element.offsetTop + element.offsetHeight];
    if (top < root.scrollTop + 30 || bottom > root.scrollTop + root.clientHeight - 10) root.scrollTop = top - root.clientHeight / 3;
  }

  /// Marks the statements of what is selected, of what is under the pointer, and of what is searched for.
  say() {
    const { timeline, statements } = this;
    const own = statements.of(timeline.selected), under = statements.of(timeline.hovered);
    const query = timeline.panels.finder?.query ?? "";
    this.edited?.mark(own, under);
    const marks = [["own", own], ["under", under]];
    for (const part of this.marked) part.classList.remove("own", "under");
    this.marked = marks.flatMap(([name, statement]) => (this.parts[statement] ?? []).map((part) => {
      part.classList.add(name);
      return part;
    }));
    if (query !== this.query) {
      this.query = query;
      for (const first of this.order) {
        const isFound = query !== "" && statements.query(Number(first.dataset.statement)) === query;
        if (String(isFound) === first.getAttribute("aria-pressed")) continue;
        for (const part of this.parts[Number(first.dataset.statement)]) part.classList.toggle("found", isFound);
        first.setAttribute("aria-pressed", String(isFound));
      }
    }
    if (own >= 0 && own !== this.shown && this.parts[own][0] && !this.root.hidden) this.reveal(this.parts[own][0]);
    this.shown = own;
  }
}

/// A text between statements, with its comment.
function plain(text) {
  const at = text.indexOf("//");
  return at < 0 ? [text] : [text.slice(0, at), h("i", {}, text.slice(at))];
}

Object.assign(Timeline.prototype, {
  /// Shows the tasks of a statement for as long as one points at it.
  point(statement) {
    if (!this.model || statement === this.pointed) return;
    this.pointed = statement;
    this.invalidate();
  },
});
