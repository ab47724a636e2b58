// Wheel, pointers and keys.

/// Where the browser remembers where letters are keys.
const LETTERS = "pipec.letters";

/// What was chosen in this browser; some viewers of files remember nothing.
function lettersChosen() {
  try {
    return localStorage.getItem(LETTERS);
  } catch {
    return null;
  }
}

Object.assign(Timeline.prototype, {
  listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => {
      this.pointerX = undefined;
      this.hover({});
    });
    canvas.addEventListener("dblclick", (event) => this.zoom(0.4, this.place(event)[0]));
    canvas.addEventListener("keydown", (event) => this.key(event));
  },

  /// Keys with letters and signs work wherever the focus is, but where one writes; unless they were turned off, as for
  /// a screen reader or for who speaks to the computer.
  listenToPage() {
    this.panels.offerLetters("everywhere");
    document.addEventListener("keydown", (event) => {
      const { target, key } = event;
      if (this.letters !== "everywhere" || target === this.canvas || key.length !== 1 || key === " " || event.defaultPrevented) return;
      if (!target.closest?.("input, select, textarea, dialog, [contenteditable]")) this.key(event);
    });
  },

  /// Letters and signs are keys everywhere, on the timeline, or nowhere.
  useLetters(where) {
    this.letters = where;
    try {
      localStorage.setItem(LETTERS, where);
    } catch {
      // Then it holds as long as the page is open.
    }
  },

  place(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  },

  wheel(event) {
    if (!this.model) return;
    event.preventDefault();
    const scale = event.deltaMode === 1 ? 18 : 1;
    const [dx, dy] = [event.deltaX * scale, event.deltaY * scale];
    const perPixel = (this.view.to - this.view.from) / (this.width - GUTTER);
    if (event.shiftKey) this.pan((dx || dy) * perPixel);
    else if (event.altKey) this.scroll(this.top + dy);
    else if (Math.abs(dx) > Math.abs(dy)) this.pan(dx * perPixel);
    else this.zoom(Math.exp(Math.max(-1, Math.min(1, dy * (event.ctrlKey ? 0.01 : 0.0022)))), this.place(event)[0]);
  },

  down(event) {
    if (event.button !== 0 || !this.model) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, this.place(event));
    this.dragged = 0;
    const [x, y] = this.place(event);
    this.rangeFrom = event.shiftKey && x >= GUTTER ? this.edge(x, y) : null;
  },

  move(event) {
    if (!this.model) return;
    const [x, y] = this.place(event);
    const before = this.pointers.get(event.pointerId);
    this.pointerX = x >= GUTTER ? x : undefined;
    if (!before) {
      this.hover(this.at(x, y), x, y);
      return;
    }
    if (this.pointers.size === 2) this.pinch(event.pointerId, [x, y]);
    this.pointers.set(event.pointerId, [x, y]);
    if (this.pointers.size > 1) return;
    this.dragged += Math.abs(x - before[0]) + Math.abs(y - before[1]);
    if (this.dragged < 4) return;
    this.hover({});
    if (this.rangeFrom !== null) {
      this.measureRange(this.rangeFrom, this.edge(x, y));
      return;
    }
    this.canvas.classList.add("dragging");
    this.pan(((before[0] - x) * (this.view.to - this.view.from)) / (this.width - GUTTER));
    this.scroll(this.top + before[1] - y);
  },

  /// Two fingers: what is under each stays under it.
  pinch(pointer, [x]) {
    const other = [...this.pointers].find(([id]) => id !== pointer)[1][0];
    const [old, own] = [this.moment(this.pointers.get(pointer)[0]), this.moment(other)];
    if (Math.abs(x - other) < 8 || old === own) return;
    const perPixel = (old - own) / (x - other);
    const from = own - (other - GUTTER) * perPixel;
    this.dragged = 99;
    if (perPixel > 0) this.look(from, from + perPixel * (this.width - GUTTER));
  },

  up(event) {
    const isClick = this.pointers.delete(event.pointerId) && this.dragged < 4 && this.pointers.size === 0;
    this.canvas.classList.remove("dragging");
    if (!isClick) return;
    const found = this.at(...this.place(event));
    this.canvas.focus({ preventScroll: true });
    if (found.memory !== undefined) this.showPeak(found.memory);
    else {
      this.select(found.task ?? -1, false);
      if (found.task !== undefined) this.panels.uncover(this.rows[found.device]);
    }
  },

  hover(found, x, y) {
    const task = found.task ?? -1;
    if (task !== this.hovered) {
      this.hovered = task;
      this.panels.listing.say();
      this.invalidate();
    }
    this.canvas.style.cursor = task >= 0 || found.memory !== undefined ? "pointer" : "";
    this.panels.sayTip(found, x, y);
  },

  key(event) {
    if (!this.model || event.ctrlKey || event.metaKey || event.altKey) return;
    if (this.letters === "nowhere" && event.key.length === 1) return;
    const step = (this.view.to - this.view.from) / 8;
    const moves = event.shiftKey
      ? {
          ArrowLeft: () => this.pan(-step), ArrowRight: () => this.pan(step),
          ArrowUp: () => this.scroll(this.top - 60), ArrowDown: () => this.scroll(this.top + 60),
        }
      : {
          ArrowLeft: () => this.beside(-1), ArrowRight: () => this.beside(1),
          ArrowUp: () => this.across(-1), ArrowDown: () => this.across(1),
        };
    const keys = {
      ...moves,
      Enter: () => this.selected >= 0 && this.model.afterOf(this.selected) >= 0 && this.select(this.model.afterOf(this.selected)),
      Home: () => this.select(this.model.tasksOf(this.ownDevice())[0]),
      End: () => this.select(this.model.tasksOf(this.ownDevice()).reduce((sum, part) => sum + part) - 1),
      w: () => this.zoom(0.75, this.pointerX), s: () => this.zoom(1 / 0.75, this.pointerX),
      a: () => this.pan(-step), d: () => this.pan(step),
      "/": () => this.panels.finder.open(),
      "+": () => this.zoom(0.6), "=": () => this.zoom(0.6), "-": () => this.zoom(1 / 0.6), "_": () => this.zoom(1 / 0.6),
      0: () => this.fit(),
      f: () => this.around(), z: () => this.around(),
      r: () => this.measureRange(this.view.from, this.view.to),
      o: () => this.panels.toggles.source.hidden || this.toggle("source"),
      g: () => this.panels.listing.go(this.panels.listing.statements.of(this.selected)),
      n: () => this.alongPath(1), p: () => this.alongPath(-1),
      v: () => this.turn(),
      q: () => this.toggle("queues"),
      c: () => this.toggle("critical"), t: () => this.toggle("transfers"), m: () => this.toggle("memory"),
      l: () => this.showPeak(this.ownDevice()),
      b: () => this.theme(),
      Escape: () => this.escape(),
      "?": () => this.panels.showKeys(),
    };
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const action = Object.hasOwn(keys, key) && keys[key];
    if (!action) return;
    event.preventDefault();
    action();
  },

  escape() {
    const hadNone = this.selected < 0 && this.peakOf < 0 && !this.range;
    if (this.peakOf >= 0) this.showPeak(this.peakOf);
    this.select(-1);
    if (hadNone) this.panels.finder.close();
  },

  ownDevice() { return this.selected >= 0 ? this.model.device[this.selected] : Math.max(0, this.peakOf); },

  /// The first task in view, where none is selected.
  first(device) {
    const [first, count] = this.model.tasksOf(device);
    return Math.min(first + count - 1, this.model.firstEndingAfter(device, this.view.from));
  },

  beside(step) {
    if (this.selected < 0) {
      this.select(this.first(this.rows.find((row) => row.y >= AXIS)?.device ?? 0));
      return;
    }
    const [first, count] = this.model.tasksOf(this.ownDevice());
    this.select(Math.max(first, Math.min(first + count - 1, this.selected + step)));
  },

  /// The task of the next device that is closest in time.
  across(step) {
    if (this.selected < 0) return this.beside(0);
    const { model } = this;
    const partner = model.partner(this.selected);
    if (partner >= 0 && (partner > this.selected) === (step > 0)) return this.select(partner);
    const device = this.ownDevice() + step;
    if (device < 0 || device >= model.nDevices) return undefined;
    const [first, count] = model.tasksOf(device);
    if (count === 0) return undefined;
    const middle = (model.start[this.selected] + model.end[this.selected]) / 2;
    const next = Math.min(first + count - 1, model.firstEndingAfter(device, middle));
    const distance = (task) => Math.max(model.start[task] - middle, middle - model.end[task], 0);
    return this.select(next > first && distance(next - 1) < distance(next) ? next - 1 : next);
  },

  around() {
    const { model, range } = this;
    if (range) this.look(range.from, range.to);
    if (this.selected < 0) return;
    const wide = model.end[this.selected] - model.start[this.selected];
    this.look(model.start[this.selected] - 8 * wide, model.end[this.selected] + 8 * wide);
  },

  alongPath(step) {
    const { model } = this;
    const place = model.critical.indexOf(this.selected);
    const now = this.selected < 0 ? 0 : model.start[this.selected];
    const near = place >= 0 ? place + step : model.critical.findIndex((task) => model.start[task] >= now);
    const task = model.critical[Math.max(0, Math.min(model.critical.length - 1, near))];
    if (task !== undefined) this.select(task);
  },
});
