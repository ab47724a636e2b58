// A selected range of time: what devices do in it, and why they are idle.

/// The ends of a range snap to edges of tasks within so many pixels.
const SNAP = 6;

/// What every device does between two moments: time in each kind of task, and idle time by cause. Two tasks that share
/// the device count half of their time each.
function sumsBetween(model, from, to) {
  const { kinds, causes } = model.picture;
  return model.picture.devices.map((_, device) => {
    const busy = new Float64Array(kinds.length), idle = new Float64Array(causes.length);
    const [first, count] = model.tasksOf(device);
    const overlap = (start, end) => Math.max(0, Math.min(end, to) - Math.max(start, from));
    for (let task = model.firstEndingAfter(device, from); task < first + count && model.start[task] < to; task++) {
      if (model.never[task]) break;
      const partner = model.partner(task);
      const isShared = partner >= 0 && model.start[partner] === model.start[task];
      busy[model.kind[task]] += overlap(model.start[task], model.end[task]) * (isShared ? 0.5 : 1);
    }
    const { gaps } = model;
    for (let gap = gaps.first[device]; gap < gaps.first[device + 1] && gaps.start[gap] < to; gap++) idle[gaps.cause[gap]] += overlap(gaps.start[gap], gaps.end[gap]);
    const inTasks = busy.reduce((sum, one) => sum + one, 0);
    return { device, name: model.deviceName(device), busy, idle, inTasks, none: Math.max(0, to - from - inTasks) };
  });
}

/// A row for every device and one for all of them, with what there is anything of.
function rangeTable(model, { from, to }) {
  const rows = sumsBetween(model, from, to);
  const total = (of) => rows.reduce((sum, row) => sum + of(row), 0);
  const kinds = model.picture.kinds.map(({ letters, words }, kind) => ({ name: letters, title: words, of: (row) => row.busy[kind] })).filter(({ of }) => total(of) > 0);
  const causes = CAUSES.map(([cause, name, title]) => ({ name, title, of: (row) => row.idle[model.picture.causes.indexOf(cause)] })).filter(({ of }) => total(of) > 0);
  const columns = [...kinds, { name: "in tasks", of: (row) => row.inTasks, isSum: true }, ...causes, { name: "idle", of: (row) => row.none, isSum: true }];
  const wide = to - from;
  const told = (ticks, isSum, of) => (ticks > 0 || isSum ? [model.time(ticks), isSum && h("small", {}, percent(ticks / of))] : "");
  const cells = (of, devices) => columns.map(({ of: own, isSum }) => h("td", { class: isSum ? "sum" : "" }, ...[told(of(own), isSum, wide * devices)].flat().filter(Boolean)));
  const head = h("tr", {}, h("th", { scope: "col" }, "device"), columns.map(({ name, title }) => h("th", { scope: "col", title }, name)));
  const body = rows.map((row) => h("tr", {}, h("th", { scope: "row" }, row.name), cells((of) => of(row), 1)));
  const foot = h("tr", {}, h("th", { scope: "row" }, "all"), cells(total, rows.length));
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Sums of the range" }, h("table", { class: "range" }, h("thead", {}, head), h("tbody", {}, body), h("tfoot", {}, foot)));
}

/// The causes of a stretch in which a device runs no task, if there are several.
function partsOfIdle(model, device, from, to) {
  const { gaps, picture } = model;
  const found = [];
  for (let gap = gaps.first[device]; gap < gaps.first[device + 1] && gaps.start[gap] < to; gap++) if (gaps.end[gap] > from) found.push(gap);
  const name = (gap) => CAUSES.find(([cause]) => cause === picture.causes[gaps.cause[gap]])[1];
  const parts = found.map((gap) => `${name(gap)} ${model.time(gaps.end[gap] - gaps.start[gap])}`);
  return parts.length > 1 ? [parts.join(", ")] : [];
}

Object.assign(Timeline.prototype, {
  /// Looks at the time between two moments, or at none.
  measureRange(from, to) {
    const [start, end] = [Math.max(0, Math.min(from, to)), Math.min(this.makespan, Math.max(from, to))];
    this.range = end > start ? { from: start, to: end } : null;
    if (this.range) this.selected = -1;
    this.panels.saySubject();
    this.invalidate();
  },

  /// The moment under the pointer, or the edge of a task or of the step that is meant.
  edge(x, y) {
    const moment = this.moment(x);
    const perPixel = (this.view.to - this.view.from) / (this.width - GUTTER);
    const { task, model = this.model } = this.at(x, Math.max(AXIS + 1, y));
    const edges = [0, model.makespan, ...(task === undefined ? [] : [model.start[task], model.end[task]])];
    return edges.find((edge) => Math.abs(edge - moment) <= SNAP * perPixel) ?? moment;
  },
});

Object.assign(Painter.prototype, {
  /// The range over the lanes, with its length on the axis.
  range() {
    const { context, timeline, colours } = this;
    const { range, model } = timeline;
    if (!range) return;
    const [from, to] = [this.x(range.from), this.x(range.to)];
    context.fillStyle = colours.focus;
    context.globalAlpha = 0.13;
    context.fillRect(from, AXIS, to - from, timeline.height);
    context.globalAlpha = 1;
    context.fillRect(from - 0.75, AXIS - 6, 1.5, timeline.height);
    context.fillRect(to - 0.75, AXIS - 6, 1.5, timeline.height);
    context.fillRect(from, AXIS - 4, to - from, 4);
    const text = model.time(range.to - range.from);
    context.font = "600 11px system-ui, sans-serif";
    const wide = context.measureText(text).width + 10;
    const middle = Math.max(GUTTER + wide / 2, Math.min(timeline.width - wide / 2, (from + to) / 2));
    context.fillStyle = colours.sheet;
    context.fillRect(middle - wide / 2, 2, wide, AXIS - 8);
    context.fillStyle = colours.focus;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(text, middle, AXIS / 2 - 1);
  },
});
