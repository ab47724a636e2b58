// Where tasks come from: the statements of the source, and the texts that they stand in.

class Statements {
  /// `ofTask` says of every task which statement it comes from, plus one.
  constructor({ statements = { count: 0 }, sources = [] }, ofTask) {
    this.count = statements.count;
    this.ofTask = ofTask;
    [this.source, this.line, this.column, this.endLine, this.endColumn] =
      ["source", "line", "column", "end_line", "end_column"].map((name) => column(statements, name, Int32Array));
    this.sources = sources.map(({ name, text }) => ({ name, lines: text?.split("\n") ?? null }));
  }

  /// The statement of a task, or -1.
  of(task) { return task < 0 ? -1 : this.ofTask[task] - 1; }

  /// The statement at a place of a text: the last to begin of those around it, or else the only one on its line; -1 if
  /// there is none.
  at(source, line, column) {
    let around = -1;
    const onLine = [];
    for (let statement = 0; statement < this.count; statement++) {
      const [from, to] = [this.line[statement], this.endLine[statement]];
      if (this.source[statement] !== source || from > line || to < line) continue;
      onLine.push(statement);
      if ((from < line || this.column[statement] <= column) && (to > line || this.endColumn[statement] >= column)) around = statement;
    }
    return around >= 0 || onLine.length !== 1 ? around : onLine[0];
  }

  /// Where it stands, in the form in which findings say it.
  span(statement) {
    return { line: this.line[statement], column: this.column[statement], end_line: this.endLine[statement], end_column: this.endColumn[statement] };
  }

  /// Its tasks, ascending.
  tasksOf(statement) {
    this.tasks ??= this.sorted();
    return this.tasks[statement] ?? new Int32Array(0);
  }

  sorted() {
    const found = Array.from({ length: this.count }, () => []);
    this.ofTask.forEach((one, task) => one > 0 && found[one - 1].push(task));
    return found.map((tasks) => Int32Array.from(tasks));
  }

  /// The statements of a text, in its order, each from where to where; one that begins in another one is left out.
  inText(source) {
    const { lines } = this.sources[source];
    const offset = (line, column) => [...lines[line - 1]].slice(0, column - 1).join("").length;
    const found = [];
    for (let statement = 0; statement < this.count; statement++) {
      if (this.source[statement] !== source) continue;
      const [line, endLine] = [this.line[statement], this.endLine[statement]];
      const last = found[found.length - 1];
      const from = offset(line, this.column[statement]);
      if (last && (line < last.endLine || (line === last.endLine && from < last.to))) continue;
      found.push({ statement, line, from, endLine, to: offset(endLine, this.endColumn[statement]) });
    }
    return found;
  }

  /// What it says, on one line; nothing where the text is not there.
  text(statement) {
    const { lines } = this.sources[this.source[statement]];
    const [first, last] = [this.line[statement], this.endLine[statement]];
    const cut = (line) => [...lines[line - 1]].slice(line === first ? this.column[statement] - 1 : 0, line === last ? this.endColumn[statement] - 1 : undefined).join("");
    return lines ? Array.from({ length: last - first + 1 }, (_, place) => cut(first + place).trim()).join(" ") : "";
  }

  /// `line 6 of std:1f1b`
  place(statement) { return `line ${this.line[statement]} of ${this.sources[this.source[statement]].name}`; }

  /// What finds its tasks: `line 6`, and `line 6:9` where there are others on that line.
  query(statement) {
    const line = this.line[statement];
    this.onLine ??= this.line.reduce((counts, one) => counts.set(one, (counts.get(one) ?? 0) + 1), new Map());
    const isAlone = this.onLine.get(line) === 1;
    return isAlone ? `line ${line}` : `line ${line}:${this.column[statement]}`;
  }
}
