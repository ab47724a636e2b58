// The timeline: what is shown of the picture, and how that is changed by wheel, pointer and keys.

/// What keys do, as the page says it.
const KEYS = [
  ["← →", "task before and behind"],
  ["↑ ↓", "task of the device above and below"],
  ["Enter", "task that the selected one waited for"],
  ["n p", "next and previous task of the critical path"],
  ["Shift ← → ↑ ↓", "move the view"],
  ["+ −", "zoom in and out; also the wheel"],
  ["0", "everything"],
  ["z", "the selected task and what is around it"],
  ["c t m", "critical path, transfers, memory: show and hide"],
  ["l", "what is alive at the peak of the device"],
  ["d", "light and dark"],
  ["Esc", "select nothing"],
  ["?", "these keys"],
];

class Timeline {
  constructor(root) {
    this.root = root;
    this.show = { critical: true, transfers: true, memory: true };
    this.measure = -1;
    this.selected = this.hovered = this.peakOf = -1;
    this.pointers = new Map();
    this.panels = new Panels(this);
    this.canvas = this.panels.canvas;
    this.painter = new Painter(this);
    this.frames = [];
    new ResizeObserver(() => this.resize()).observe(this.panels.stage);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.repaint());
    this.listen();
  }

  /// Shows a picture. With `keep`, what was looked at stays in view.
  draw(picture, keep = false) {
    const before = keep && this.model ? this.state() : null;
    this.model = new Model(picture);
    this.measure = this.model.memories.length - 1;
    this.selected = this.hovered = this.peakOf = -1;
    this.top = 0;
    // Of many devices, all of them are worth more than their memory, at first.
    if (!before) this.show.memory = this.model.nDevices <= 20;
    this.view = null;
    this.panels.fill();
    this.resize();
    this.fit();
    if (before) this.restore(before);
    this.repaint();
  }

  get memory() { return this.model.memories[this.measure]; }

  /// What is looked at, in words that hold for another picture of the same schedule.
  state() {
    const { model, view } = this;
    return {
      isWhole: this.isWhole(),
      view: [view.from / model.perUnit, view.to / model.perUnit],
      top: this.top,
      selected: this.selected < 0 ? null : [model.name(this.selected), model.device[this.selected]],
      peakOf: this.peakOf,
      unit: this.memory.unit,
    };
  }

  restore(state) {
    const { model } = this;
    this.measure = Math.max(0, model.memories.findIndex((memory) => memory.unit === state.unit));
    if (!state.isWhole) this.look(state.view[0] * model.perUnit, state.view[1] * model.perUnit);
    if (state.selected) this.select(model.find(...state.selected), false);
    if (state.peakOf >= 0 && state.peakOf < model.nDevices) this.showPeak(state.peakOf, false);
    this.scroll(state.top);
  }

  isWhole() { return this.view.from <= 0 && this.view.to >= this.model.makespan; }

  /// Sizes of the canvas and the rows.
  resize() {
    if (!this.model) return;
    const { nDevices } = this.model;
    const most = Math.max(320, Math.min(900, window.innerHeight * 0.72));
    const withMemory = this.show.memory;
    // Rows get lower the more there are, down to what can be told apart.
    const pitch = Math.max(withMemory ? 15 : 9, Math.min(withMemory ? 74 : 40, (most - AXIS - 8) / nDevices));
    const gap = pitch > 24 ? 6 : pitch > 12 ? 2 : 1;
    this.pitch = pitch;
    this.taskHeight = withMemory ? Math.round((pitch - gap) * 0.58) : Math.floor(pitch - gap);
    this.memoryHeight = withMemory ? Math.floor(pitch - gap - this.taskHeight - 1) : 0;
    this.contentHeight = AXIS + 4 + nDevices * pitch + (this.peakOf >= 0 ? this.peakHeight() : 0) + 6;
    this.width = Math.max(260, this.panels.stage.clientWidth);
    this.height = Math.round(Math.min(this.contentHeight, most));
    this.ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.height * this.ratio);
    this.canvas.style.height = `${this.height}px`;
    this.scroll(this.top);
    this.panels.overview.resize();
    this.repaint();
  }

  /// How much higher the memory lane is whose peak is looked at.
  peakHeight() { return Math.max(0, 132 - this.memoryHeight); }

  scroll(top) {
    this.top = Math.max(0, Math.min(top, this.contentHeight - this.height));
    const extra = this.peakOf >= 0 ? this.peakHeight() : 0;
    this.rows = this.model.picture.devices.map((_, device) => {
      const y = AXIS + 4 + device * this.pitch + (this.peakOf >= 0 && device > this.peakOf ? extra : 0) - this.top;
      const own = device === this.peakOf ? extra : 0;
      return {
        device, y, height: this.pitch + own, taskHeight: this.taskHeight,
        memoryY: y + this.taskHeight + 1, memoryHeight: this.memoryHeight + own,
      };
    });
    this.invalidate();
  }

  /// The canvas is drawn once per frame, however often something changes.
  invalidate() {
    if (this.isDue || !this.view) return;
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
    this.panels.overview.forget();
    this.invalidate();
  }

  fit() { this.look(0, this.model.makespan); }

  /// Shows the time between two moments, as far as there is something.
  look(from, to) {
    const { makespan, shortest } = this.model;
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

  /// What is at a place of the canvas: a task, a moment without one, or the memory of a device.
  at(x, y) {
    if (x < GUTTER || y < AXIS) return {};
    const row = this.rows.find((row) => y >= row.y && y < row.y + row.height);
    if (!row) return {};
    const moment = this.moment(x);
    if (moment < 0 || moment > this.model.makespan) return {};
    if (y >= row.memoryY && row.memoryHeight > 0) return { memory: row.device, moment };
    const half = y > row.y + row.taskHeight / 2 ? 1 : 0;
    return { ...this.model.at(row.device, moment, half), device: row.device, moment };
  }

  transfersOf(task) {
    if (this.known?.task !== task || this.known.model !== this.model) {
      this.known = { task, model: this.model, found: this.model.transfersOf(task) };
    }
    return this.known.found;
  }

  /// Selects a task, and brings it into view.
  select(task, reveal = true) {
    this.selected = task;
    if (task >= 0 && reveal) this.reveal(task);
    this.panels.sayTask(task);
    this.invalidate();
  }

  reveal(task) {
    const { model, view } = this;
    const span = view.to - view.from;
    const wide = model.end[task] - model.start[task];
    if (model.start[task] < view.from || model.end[task] > view.to) {
      const middle = (model.start[task] + model.end[task]) / 2;
      this.look(middle - Math.max(span, wide) / 2, middle + Math.max(span, wide) / 2);
    }
    const row = this.rows[model.device[task]];
    if (row.y < AXIS) this.scroll(this.top + row.y - AXIS - 8);
    if (row.y + row.height > this.height) this.scroll(this.top + row.y + row.height - this.height);
  }

  /// Shows what is alive at the peak of a device.
  showPeak(device, reveal = true) {
    this.peakOf = this.peakOf === device && reveal ? -1 : device;
    if (this.peakOf >= 0 && !this.show.memory) this.toggle("memory");
    this.resize();
    if (this.peakOf >= 0 && reveal) {
      const row = this.rows[device];
      if (row.y + row.height > this.height) this.scroll(this.top + row.y + row.height - this.height);
      if (row.y < AXIS) this.scroll(this.top + row.y - AXIS - 8);
    }
    this.panels.sayPeak();
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
    this.panels.sayToggles();
    this.repaint();
  }
}
