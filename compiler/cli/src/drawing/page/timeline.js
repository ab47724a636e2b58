// The timeline: what is shown of the picture, and how that is changed by wheel, pointer and keys.

/// What keys do, as the page says it.
const KEYS = [
  ["← →", "task before and behind"],
  ["↑ ↓", "task of the device above and below"],
  ["Enter", "task that the selected one waited for"],
  ["n p", "next and previous task of the critical path", "critical"],
  ["/", "find tasks, such as F3, d2 B7, stage 3; then Enter and Shift Enter"],
  ["w s", "zoom in and out; also + and −, and the wheel"],
  ["a d", "move in time; also Shift ← →, and Shift ↑ ↓ through the devices"],
  ["f", "the selected task and what is around it, or the range"],
  ["0", "everything"],
  ["r", "sums of the time in view; of any other range, drag with Shift"],
  ["g", "go to the statement that the selected task comes from", "text"],
  ["o", "source: show and hide", "source"],
  ["c", "critical path: show and hide", "critical"],
  ["t", "transfers: show and hide"],
  ["m", "memory: show and hide", "memory"],
  ["q", "copies and what devices do together: show and hide", "queues"],
  ["v", "plan and run, run alone, plan alone", "versions"],
  ["l", "what is alive at the peak of the device", "memory"],
  ["b", "light and dark"],
  ["Esc", "select nothing, then find nothing"],
  ["?", "these keys"],
];

/// From this width of the window on, the source stands beside the lanes at first.
const WIDE = 1280;

class Timeline {
  constructor(root) {
    this.root = root;
    this.show = { critical: true, transfers: true, queues: true, memory: true, source: window.innerWidth >= WIDE };
    this.measure = -1;
    this.selected = this.hovered = this.peakOf = this.pointed = this.atCursor = -1;
    this.range = null;
    this.letters = "timeline";
    this.pointers = new Map();
    // Versions of the timeline, and those of them that are shown: the last one is what keys and memory are about.
    this.models = this.shown = [];
    this.panels = new Panels(this);
    this.canvas = this.panels.canvas;
    this.painter = new Painter(this);
    this.frames = [];
    new ResizeObserver(() => this.resize()).observe(this.panels.stage);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.repaint());
    this.listen();
  }

  /// Shows a picture, or versions of the same tasks above each other. With `keep`, what was looked at stays in view.
  draw(data, keep = false) {
    const before = keep && this.model ? this.state() : null;
    const { versions, diff } = data.versions ? data : { versions: [{ name: "", picture: data }], diff: null };
    this.models = this.shown = versions.map(({ name, picture }) => new Model(picture, name));
    this.diff = diff;
    this.makespan = Math.max(...this.models.map((model) => model.makespan));
    this.shortest = Math.min(...this.models.map((model) => model.shortest));
    this.measure = this.model.memories.length - 1;
    this.selected = this.hovered = this.peakOf = this.pointed = this.atCursor = -1;
    this.range = null;
    this.top = 0;
    // Of many devices, all of them are worth more than their memory, at first.
    if (!before) this.show.memory = this.model.nDevices * versions.length <= 20;
    this.view = null;
    this.panels.fill();
    this.resize();
    this.fit();
    if (before) this.restore(before);
    this.repaint();
  }

  get model() { return this.shown[this.shown.length - 1]; }
  get memory() { return this.model.memories[this.measure]; }

  /// Shows one version alone, or all of them.
  only(name) {
    const shown = this.models.filter((model) => model.version === name);
    this.shown = shown.length > 0 ? shown : this.models;
    this.hovered = -1;
    this.panels.sayToggles();
    this.panels.sayPeak();
    this.resize();
  }

  /// All, the last one, .. , the first one, all.
  turn() {
    const { models, shown, model } = this;
    if (models.length > 1) this.only(shown.length > 1 ? model.version : models[models.indexOf(model) - 1]?.version);
  }

  /// What is looked at, in words that hold for another picture of the same schedule.
  state() {
    const { model, view } = this;
    return {
      isWhole: this.isWhole(),
      view: [view.from / model.perUnit, view.to / model.perUnit],
      top: this.top,
      selected: this.selected < 0 ? null : [model.name(this.selected), model.device[this.selected]],
      peakOf: this.peakOf,
      range: this.range && [this.range.from / model.perUnit, this.range.to / model.perUnit],
      unit: this.memory?.unit,
    };
  }

  restore(state) {
    const { model } = this;
    const measure = model.memories.findIndex((memory) => memory.unit === state.unit);
    if (measure >= 0) this.measure = measure;
    if (!state.isWhole) this.look(state.view[0] * model.perUnit, state.view[1] * model.perUnit);
    if (state.selected) this.select(model.find(...state.selected), false);
    if (state.peakOf >= 0 && state.peakOf < model.nDevices) this.showPeak(state.peakOf, false);
    if (state.range) this.measureRange(state.range[0] * model.perUnit, state.range[1] * model.perUnit);
    this.scroll(state.top);
  }

  isWhole() { return this.view.from <= 0 && this.view.to >= this.makespan; }

  /// The canvas is drawn once per frame, however often something changes.
  invalidate() {
    if (this.isDue || !this.view) return;
    this.link?.note();
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      const begin = performance.now();
      this.painter.paint();
      this.panels.overview.paint();
      this.frames.push(performance.now() - begin);
      if (this.frames.length > 600) this.frames.shift();
    });
  }

  /// After a change of theme or picture.
  repaint() {
    if (!this.model) return;
    this.painter.readColours();
    this.panels.fillLegend();
    this.panels.overview.forget();
    this.invalidate();
  }

  fit() { this.look(0, this.makespan); }

  /// Shows the time between two moments, as far as there is something.
  look(from, to) {
    const { makespan, shortest } = this;
    const margin = makespan * 0.02;
    const span = Math.max(Math.min(to - from, makespan + 2 * margin), Math.min(shortest, makespan) / 2);
    const middle = (from + to) / 2;
    let begin = Math.max(-margin, middle - span / 2);
    begin = Math.min(begin, makespan + margin - span);
    if (span >= makespan + 2 * margin) begin = -margin;
    this.view = from <= 0 && to >= makespan && to - from <= makespan ? { from: 0, to: makespan * 1.004 } : { from: begin, to: begin + span };
    this.panels.sayView();
    this.invalidate();
  }

  /// Zooms around a place of the canvas, or its middle.
  zoom(factor, x = GUTTER + (this.width - GUTTER) / 2) {
    const { from, to } = this.view;
    const at = this.moment(x);
    this.look(at - (at - from) * factor, at + (to - at) * factor);
  }

  pan(moments) { this.look(this.view.from + moments, this.view.to + moments); }

  moment(x) {
    const { from, to } = this.view;
    return from + ((x - GUTTER) / (this.width - GUTTER)) * (to - from);
  }

  /// The same in every version.
  transfersOf(task) {
    if (this.known?.task !== task || this.known.models !== this.models) {
      this.known = { task, models: this.models, found: this.model.transfersOf(task) };
    }
    return this.known.found;
  }

  /// Selects a task, and brings it into view.
  select(task, reveal = true) {
    this.selected = task;
    this.range = null;
    if (task >= 0 && reveal) this.reveal(task);
    this.panels.sayTask(task);
    if (task >= 0 && reveal) this.panels.uncover(this.rows[this.model.device[task]]);
    this.invalidate();
  }

  toggle(what) {
    this.show[what] = !this.show[what];
    this.panels.sayToggles();
    this.resize();
  }

  /// Light, dark, or what the system says.
  theme(name) {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = this.root.dataset.theme ?? (dark ? "dark" : "light");
    document.documentElement.dataset.theme = this.root.dataset.theme = name ?? (now === "dark" ? "light" : "dark");
    if (!this.model) return;
    this.panels.sayToggles();
    this.repaint();
  }
}
