// Targets that cannot run: where devices are stuck and who waits for whom, and from when on memory does not suffice.

Object.assign(Painter.prototype, {
  /// The outline of a task that never runs; of a cycle in red.
  never(from, y, wide, height, isInCycle) {
    const { context, colours } = this;
    context.save();
    context.fillStyle = colours.sheet;
    context.fillRect(from, y, wide, height);
    context.strokeStyle = isInCycle ? colours.over : colours.faint;
    context.lineWidth = isInCycle ? 2 : 1;
    if (!isInCycle) context.setLineDash([3, 2]);
    const inset = Math.min(1, wide / 4);
    context.strokeRect(from + inset, y + inset, Math.max(0.5, wide - 2 * inset), height - 2 * inset);
    context.restore();
  },

  /// Dots before a task, where others are left out.
  leftOut(model, task, y) {
    this.context.fillStyle = this.colours.faint;
    this.context.fillText("…", (this.x(model.end[task - 1]) + this.x(model.start[task])) / 2, y);
  },

  /// The moment at which nothing runs any more, and the cycles of waits.
  stop({ model, rows }) {
    const { context, colours, timeline } = this;
    const { stop } = model;
    if (!stop) return;
    const at = Math.round(this.x(stop.at)) + 0.5;
    context.save();
    context.strokeStyle = context.fillStyle = colours.over;
    context.lineWidth = 2;
    context.setLineDash([2, 3]);
    context.beginPath();
    context.moveTo(at, AXIS);
    context.lineTo(at, timeline.height);
    context.stroke();
    context.setLineDash([]);
    for (const cycle of stop.cycles) cycle.forEach((wait, place) => this.waits(wait, cycle[(place + 1) % cycle.length], model, rows));
    context.restore();
  },

  /// An arrow from a task to the one that it needs, and from that to the one behind which it stands.
  waits({ task, needs }, next, model, rows) {
    const middle = (task) => (this.x(model.start[task]) + this.x(model.end[task])) / 2;
    const [at, other] = [rows[model.device[task]], rows[model.device[needs]]];
    const [from, to] = [middle(task), middle(needs)];
    const down = other.y > at.y ? 1 : -1;
    const edge = (row, side) => (side > 0 ? row.y + row.taskHeight : row.y);
    if (at === other) {
      this.path((path) => { path.moveTo(from, at.y); path.bezierCurveTo(from, at.y - 14, to, at.y - 14, to, at.y - 2); }, to, at.y, 1);
    } else {
      const [start, end] = [edge(at, down), edge(other, -down)];
      const bend = (end - start) / 2;
      this.path((path) => { path.moveTo(from, start); path.bezierCurveTo(from, start + bend, to, end - bend, to, end - 4 * down); }, to, end, down);
    }
    if (model.device[next.task] !== model.device[needs] || model.start[next.task] >= model.start[needs]) return;
    const behind = middle(next.task);
    // On the side on which no arrow comes.
    const side = at === other ? 1 : down;
    const [begin, away] = [edge(other, side), 9 * side];
    this.path((path) => { path.moveTo(to, begin); path.lineTo(to, begin + away); path.lineTo(behind, begin + away); path.lineTo(behind, begin + 4 * side); }, behind, begin, -side);
  },

  /// A line with a head at its end, which points up or down.
  path(draw, x, y, down) {
    const { context } = this;
    context.beginPath();
    draw(context);
    context.stroke();
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x - 4.5, y - 7 * down);
    context.lineTo(x + 4.5, y - 7 * down);
    context.fill();
  },

  /// Where the memory of a device stops to suffice.
  misfits(row, model) {
    const { context, colours, timeline } = this;
    const own = model.picture.misfits?.find(({ device, unit }) => device === row.device && unit === timeline.memory?.unit);
    if (!own) return;
    const x = this.x(own.from);
    const bottom = row.memoryHeight > 0 ? row.memoryY + row.memoryHeight : row.y + row.taskHeight;
    context.fillStyle = colours.over;
    context.fillRect(x - 0.75, row.y, 1.5, bottom - row.y);
    context.beginPath();
    context.moveTo(x, row.y + 7);
    context.lineTo(x - 5, row.y - 1);
    context.lineTo(x + 5, row.y - 1);
    context.fill();
  },
});

/// A wait of a cycle, as a sentence with links to tasks and to where they stand in the source.
function waitOf(panels, { task, needs, meets, line, needs_line: other }) {
  const { model } = panels.timeline;
  const device = model.deviceName(model.device[task]);
  const where = (task, line) => [" (", panels.lineOf(task, `line ${line}`), ")"];
  const until = meets ? [`${model.deviceName(model.device[needs])} to come to it`] : [panels.jump(needs)];
  return [`${device} at `, panels.jump(task, model.name(task)), ...where(task, line), " waits for ", ...until, ...where(needs, other)];
}

/// Why a task does not run, as a sentence.
function whyNever(panels, task) {
  const { model } = panels.timeline;
  const wait = model.stop.cycles.flat().find((one) => one.task === task);
  if (wait) return waitOf(panels, wait);
  const [first] = model.tasksOf(model.device[task]);
  const stand = first + model.stop.ran[model.device[task]];
  const device = model.deviceName(model.device[task]);
  return task === stand ? [`${device} stands at it: what it needs never comes`] : [`${device} stands before it, at `, panels.jump(stand, model.name(stand))];
}

/// From when on a device holds too much, and how much.
function misfitWords(model, { device, unit, limit, from, over }) {
  const memory = model.memories.find((one) => one.unit === unit);
  return `d${device} exceeds its ${memory.say(limit)} from ${model.time(from)} on, by up to ${memory.say(over)}`;
}

/// Title, subtitle and figures of a schedule that is stuck.
function headOfStop(model) {
  const { picture, stop } = model;
  const { report } = picture;
  const sum = (numbers) => numbers.reduce((total, one) => total + one, 0);
  const [ran, all] = [sum(stop.ran), model.n + sum(stop.hidden)];
  return {
    title: picture.title,
    subtitle: [report.pipeline && report.schedule ? `schedule ${report.schedule}` : report.target,
      plural(model.nOwn, "device"), plural(report.stages, "stage"), plural(picture.microbatches[0], "microbatch", "es")],
    cards: [["stuck at", model.time(stop.at), null, true], ["tasks that run", `${ran} of ${all}`, percent(ran / Math.max(1, all))]],
  };
}

/// Who waits for whom, and where every device stands.
function stopTables(timeline) {
  const { model, panels } = timeline;
  const { stop } = model;
  const waits = stop.cycles.map((cycle) => h("ol", {}, cycle.map((wait) => h("li", {}, waitOf(panels, wait)))));
  const rows = model.picture.devices.map(({ tasks: [first, shown], stages }, device) => {
    const rest = shown - stop.ran[device] + stop.hidden[device];
    const stand = first + stop.ran[device];
    return [model.deviceName(device), stages.map((stage) => model.stageName(stage)).join(" "), `${stop.ran[device]}`, `${rest}`, rest > 0 ? panels.jump(stand, model.name(stand)) : "runs to its end"];
  });
  return [
    h("section", { class: "waits" }, h("h2", {}, "Who waits for whom", h("small", {}, "none of these tasks ever runs")), waits),
    h("section", { class: "devices" }, h("h2", {}, "Where devices stand"), table(["device", "stages", "tasks that run", "that never run", "stands at"], rows)),
  ];
}
