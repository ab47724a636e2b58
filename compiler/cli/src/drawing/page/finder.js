// Finding tasks: words such as `F3`, `d2 B7` or `stage 3`, of which a task has all.

/// Words that stand before a number.
const FIELDS = {
  device: ["d", "device"], stage: ["s", "stage"], microbatch: ["m", "mb", "microbatch"], slice: ["q", "slice"], line: ["line"],
};
/// Words that say something of a task themselves.
const STATES = { critical: "isCritical", late: "late", never: "never" };
/// Words that mean nothing here, as in `F s1 m2 of d0`.
const SILENT = ["of", "on", "task", "tasks"];

/// What a text asks of tasks, as functions that all have to hold, and the word that is not understood.
function conditions(text, model) {
  const words = text.toLowerCase().split(/[\s,]+/).filter(Boolean);
  const asked = [];
  for (let place = 0; place < words.length; place++) {
    const word = words[place];
    const [, letters, number] = word.match(/^([a-z]*)([\d.:]*)$/) ?? [];
    if (letters === undefined) return { wrong: word };
    const field = Object.keys(FIELDS).find((name) => FIELDS[name].includes(letters));
    if (field && !(number === "" && kindsOf(letters, model).length > 0)) {
      const value = number || words[++place];
      if (value === undefined) break;
      const test = fieldTest(field, value, model);
      if (!test) return { wrong: value };
      asked.push(test);
    } else if (Object.hasOwn(STATES, letters) && number === "") {
      const column = model[STATES[letters]];
      asked.push((task) => column[task] > 0);
    } else if (!SILENT.includes(letters) || number !== "") {
      const kinds = letters === "" ? null : kindsOf(letters, model);
      const test = number === "" ? () => true : fieldTest("microbatch", number, model);
      if (kinds?.length === 0 || !test) return { wrong: word };
      asked.push((task) => (kinds === null || kinds.includes(model.kind[task])) && test(task));
    }
  }
  return { asked };
}

/// Kinds with these letters, or that have such a half, as `B` is one of `BW`; or whose words begin with these.
function kindsOf(letters, model) {
  const { kinds } = model.picture;
  const has = ({ letters: own, words }) => own.toLowerCase() === letters || (letters.length === 1 && own.toLowerCase().includes(letters)) || (letters.length > 3 && words.startsWith(letters));
  return [...kinds.keys()].filter((kind) => has(kinds[kind]));
}

/// `3`, of a microbatch also `3.1` with its slice, of a line `6` or `6:9` with its column.
function fieldTest(field, value, model) {
  const [, first, mark, second] = value.match(/^(\d+)(?:([.:])(\d+))?$/)?.map((part, place) => (place === 2 ? part : Number(part))) ?? [];
  if (first === undefined || (mark !== undefined && mark !== { microbatch: ".", line: ":" }[field])) return null;
  if (field === "line") {
    const { line, column, ofTask } = model.statements;
    return (task) => ofTask[task] > 0 && line[ofTask[task] - 1] === first && (mark === undefined || column[ofTask[task] - 1] === second);
  }
  const own = model[field];
  return (task) => own[task] === first && (mark === undefined || model.slice[task] === second);
}

/// The field, and what it has found.
class Finder {
  constructor(timeline) {
    this.timeline = timeline;
    this.query = "";
    this.hits = null;
    const button = (label, title, action) => h("button", { type: "button", title, "aria-label": title, click: action }, label);
    this.field = h("input", {
      type: "search", placeholder: "F3, d2 B7, stage 3, line 6", "aria-label": "Find tasks", spellcheck: "false", autocomplete: "off", autocapitalize: "off",
      input: () => this.find(this.field.value), keydown: (event) => this.key(event),
    });
    this.count = h("output", { "aria-live": "polite" });
    this.root = h("div", { class: "find", role: "search", hidden: true }, this.field, this.count,
      button("‹", "Previous one (Shift Enter)", () => this.step(-1)), button("›", "Next one (Enter)", () => this.step(1)), button("×", "End the search (Esc)", () => this.close()));
  }

  /// Opens the field, with something in it if that is said.
  open(query, focus = query === undefined) {
    this.root.hidden = false;
    if (query !== undefined) {
      this.field.value = query;
      this.find(query);
    }
    if (!focus) return;
    this.field.focus();
    this.field.select();
  }

  close() {
    const hadFocus = this.root.contains(document.activeElement);
    this.root.hidden = true;
    this.field.value = "";
    this.find("");
    if (hadFocus) this.timeline.canvas.focus({ preventScroll: true });
  }

  /// Finds the tasks of a text: all that are said to have everything it asks for.
  find(text) {
    const { timeline } = this;
    const { model } = timeline;
    this.query = text.trim();
    this.wrong = null;
    this.hits = null;
    if (model && this.query !== "") {
      const { asked, wrong } = conditions(this.query, timeline.models[timeline.models.length - 1]);
      this.wrong = wrong ?? null;
      const all = asked?.length > 0 ? [...Array(model.n).keys()].filter((task) => asked.every((test) => test(task))) : [];
      this.hits = asked?.length === 0 ? null : Int32Array.from(all);
    }
    this.say();
    timeline.panels.listing.say();
    timeline.invalidate();
  }

  /// Goes on to the next one behind what is selected, and around.
  step(direction) {
    const { hits, timeline } = this;
    if (!hits || hits.length === 0) return;
    const behind = lowerBound(hits, timeline.selected);
    const place = direction > 0 ? behind : (hits[behind - 1] === timeline.selected ? behind - 2 : behind - 1);
    timeline.select(hits[(place + hits.length) % hits.length]);
  }

  key(event) {
    const keys = { Enter: () => this.step(event.shiftKey ? -1 : 1), Escape: () => this.close() };
    event.stopPropagation();
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  }

  /// How many there are, and which of them is selected.
  say() {
    const { hits, wrong, timeline } = this;
    const place = hits ? lowerBound(hits, timeline.selected) - 1 : -1;
    const selected = place >= 0 && hits[place] === timeline.selected ? place : -1;
    this.count.textContent = wrong ? `what is ${wrong}?` : !hits ? "" : hits.length === 0 ? "no such task"
      : selected >= 0 ? `${selected + 1} of ${hits.length}` : plural(hits.length, "task");
    this.field.setAttribute("aria-invalid", String(Boolean(wrong)));
  }
}

Object.assign(Timeline.prototype, {
  /// The highlighted tasks, ascending: those of the statement under the pointer, or those that were found, or those of
  /// the statement at the cursor of an editor.
  tasksLit() {
    const { hits } = this.panels.finder;
    const statement = this.pointed >= 0 || hits ? this.pointed : this.atCursor;
    return statement >= 0 ? this.models[this.models.length - 1].statements.tasksOf(statement) : hits;
  },

  /// How pale the others are: a cursor is mostly somewhere, and the picture is read meanwhile.
  paleness() { return this.pointed >= 0 || this.panels.finder.hits ? 0.72 : 0.5; },
});

Object.assign(Painter.prototype, {
  /// Makes all tasks pale but those that are lit.
  lit({ model, visible, isAbove }, tasks) {
    const { context, timeline, colours } = this;
    const { view, width, ratio } = timeline;
    for (const row of visible) {
      context.globalAlpha = timeline.paleness();
      context.fillStyle = colours.sheet;
      context.fillRect(GUTTER, row.y, width - GUTTER, row.taskHeight);
      context.globalAlpha = 1;
      const [first, count] = model.tasksOf(row.device);
      this.readyText(row);
      let drawn = -1;
      for (let place = lowerBound(tasks, model.firstEndingAfter(row.device, view.from) - 2); place < tasks.length; place++) {
        const task = tasks[place];
        if (task >= first + count || model.start[task] > view.to) break;
        if (task < first || model.end[task] < view.from) continue;
        const from = this.x(model.start[task]);
        const wide = this.x(model.end[task]) - from;
        if (wide * ratio >= DETAIL) {
          this.block(task, row, model, isAbove);
          const [y, height] = this.share(row, task);
          context.strokeStyle = colours.ink;
          context.lineWidth = 1.25;
          context.strokeRect(from + 0.6, y + 0.6, Math.max(0.5, wide - 1.8), height - 1.2);
          continue;
        }
        // Of those in one pixel, one.
        if (Math.floor((from + wide) * ratio) === drawn) continue;
        drawn = Math.floor((from + wide) * ratio);
        context.fillStyle = this.fills[model.kind[task]][model.nth[task]].fill;
        context.fillRect(from, row.y, Math.max(1 / ratio, wide), row.taskHeight);
      }
    }
    context.globalAlpha = isAbove ? ABOVE : 1;
  },
});
