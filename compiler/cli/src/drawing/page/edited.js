// A source that is edited beside the timeline: a task marks its statement in the editor, and the cursor lights the tasks
// of its statement.

class Edited {
  /// `editor` has the `name` of its source, and `isAs(text)`, whether its text is this one. It marks statements
  /// (`mark`) and puts its cursor somewhere (`go`); places are those of findings.
  constructor(timeline, editor) {
    Object.assign(this, { timeline, editor, cursor: null, marked: "" });
    this.listing = timeline.panels.listing;
    this.listing.edited = this;
  }

  get statements() { return this.listing.statements; }

  has(source) { return this.statements.sources[source]?.name === this.editor.name; }

  /// The source of the editor, if the picture is that of its text; or -1.
  source() {
    if (!this.timeline.model) return -1;
    const source = this.statements.sources.findIndex((_, source) => this.has(source));
    const { lines } = this.statements.sources[source] ?? {};
    return lines && this.editor.isAs(lines.join("\n")) ? source : -1;
  }

  /// The statement at a place, or -1.
  at(place) {
    const source = place ? this.source() : -1;
    return source < 0 ? -1 : this.statements.at(source, place.line, place.column);
  }

  /// The pointer is at a place of the text, or at none.
  point(place) { this.timeline.point(this.at(place)); }

  /// The cursor is at a place of the text, or no longer in it.
  look(cursor) {
    this.cursor = cursor;
    this.follow();
  }

  /// Lights the tasks of the statement at the cursor. While a text that has changed is compiled, those before stay.
  follow() {
    const { timeline } = this;
    if (!timeline.model || (this.cursor && this.source() < 0)) return;
    const statement = this.at(this.cursor);
    if (statement === timeline.atCursor) return;
    timeline.atCursor = statement;
    timeline.invalidate();
  }

  /// The text has changed: its marks are where they were.
  changed() { this.marked = ""; }

  /// The text has no picture: what was lit goes out.
  forget() {
    this.timeline.atCursor = -1;
    this.timeline.invalidate();
  }

  /// Selects the first task of the statement at the cursor, and goes to it.
  select() {
    const [task] = this.statements.tasksOf(this.at(this.cursor));
    if (task === undefined) return;
    this.timeline.select(task);
    this.timeline.canvas.focus({ preventScroll: true });
  }

  /// Marks the statements of the task that is selected, and of the one under the pointer.
  mark(own, under) {
    const source = this.source();
    const span = (statement) => (statement >= 0 && this.statements.source[statement] === source ? this.statements.span(statement) : null);
    const marks = { own: span(own), under: span(under) };
    const words = JSON.stringify(marks);
    if (words === this.marked) return;
    this.marked = words;
    this.editor.mark(marks);
  }

  /// Puts the cursor where a statement is.
  go(statement) { this.editor.go(this.statements.span(statement)); }
}
