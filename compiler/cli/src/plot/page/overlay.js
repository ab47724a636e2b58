// What is drawn over the tasks: the critical path, transfers, and what is selected; and sums of narrow tasks, pixel by pixel.

Object.assign(Painter.prototype, {
  middle(task) {
    const row = this.timeline.rows[this.timeline.model.device[task]];
    const [y, height] = this.share(row, task);
    return y + height / 2;
  },

  critical(rows) {
    const { context, timeline, colours } = this;
    const { model, view } = timeline;
    const path = model.critical;
    const isShown = new Uint8Array(model.nDevices);
    for (const row of rows) isShown[row.device] = 1;
    let index = 0;
    while (index < path.length && model.end[path[index]] < view.from) index++;
    if (index > 0) index--;
    const bars = new Path2D(), links = new Path2D();
    for (; index < path.length && model.start[path[index]] <= view.to; index++) {
      const task = path[index];
      const row = timeline.rows[model.device[task]];
      const [y, height] = [row.y, row.taskHeight];
      const [from, to] = [this.x(model.start[task]), this.x(model.end[task])];
      if (isShown[row.device]) bars.rect(from, y + height - 2.5, Math.max(0.5, to - from), 2.5);
      const next = path[index + 1];
      if (next === undefined || model.device[next] === model.device[task]) continue;
      const there = timeline.rows[model.device[next]];
      const up = there.y < row.y;
      links.moveTo(to, up ? y : y + height);
      links.lineTo(this.x(model.start[next]), up ? there.y + there.taskHeight : there.y);
    }
    context.fillStyle = colours.accent;
    context.fill(bars);
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.25;
    context.stroke(links);
  },

  transfers() {
    const { timeline, context, colours } = this;
    const { model, view } = timeline;
    const own = [timeline.selected, timeline.hovered].filter((task) => task >= 0);
    const all = timeline.show.transfers ? model.transfersBetween(view.from, view.to, timeline.width / ARROW) : null;
    const rowsAreTall = timeline.rows.length === 0 || timeline.rows[0].taskHeight >= 10;
    if (all && rowsAreTall) {
      context.globalAlpha = 0.5;
      for (const index of all) this.arrow(index, 1);
    }
    context.globalAlpha = 1;
    for (const task of own) {
      const { incoming, outgoing } = timeline.transfersOf(task);
      for (const index of [...incoming, ...outgoing]) this.arrow(index, 2);
      const after = model.afterOf(task);
      if (after >= 0 && incoming.every((index) => model.from[index] !== after)) {
        context.strokeStyle = colours.focus;
        context.lineWidth = 1.5;
        context.setLineDash([3, 3]);
        context.beginPath();
        context.moveTo(this.x(model.end[after]) - 1, this.middle(after));
        context.lineTo(this.x(model.start[task]) + 1, this.middle(task));
        context.stroke();
        context.setLineDash([]);
      }
    }
  },

  /// From the end of the task that sends to the moment at which the other device has it.
  arrow(index, lineWidth) {
    const { context, colours, timeline } = this;
    const { model } = timeline;
    const [from, to] = [model.from[index], model.to[index]];
    const [x0, x1] = [this.x(model.leaves[index]) - 2, this.x(model.arrives[index])];
    const [y0, y1] = [this.middle(from), this.middle(to)];
    const colour = colours[model.picture.classes[model.class[index]]];
    const down = y1 > y0 ? 1 : -1;
    const end = y1 - down * timeline.rows[model.device[to]].taskHeight * 0.28;
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = lineWidth;
    context.beginPath();
    context.moveTo(x0, y0);
    const bend = Math.max(6, Math.min(30, (x1 - x0) / 2));
    context.bezierCurveTo(x0 + bend, y0, x1 - (x1 - x0 > 12 ? bend : -4), end - down * 12, x1 + 2, end - down * 4);
    context.stroke();
    context.beginPath();
    context.moveTo(x1 + 2, end);
    context.lineTo(x1 - 1.5 - lineWidth / 2, end - down * (5 + lineWidth));
    context.lineTo(x1 + 5.5 + lineWidth / 2, end - down * (5 + lineWidth));
    context.fill();
  },

  /// What is selected and what is under the pointer.
  marks() {
    const { context, timeline, colours } = this;
    const { model } = timeline;
    const outline = (task, colour, lineWidth) => {
      const [y, height] = this.share(timeline.rows[model.device[task]], task);
      const from = this.x(model.start[task]);
      const wide = Math.max(2, this.x(model.end[task]) - from);
      context.strokeStyle = colours.sheet;
      context.lineWidth = lineWidth + 2;
      context.strokeRect(from, y, wide, height);
      context.strokeStyle = colour;
      context.lineWidth = lineWidth;
      context.strokeRect(from, y, wide, height);
    };
    if (timeline.hovered >= 0 && timeline.hovered !== timeline.selected) outline(timeline.hovered, colours.ink, 1.25);
    if (timeline.selected >= 0) outline(timeline.selected, colours.focus, 2.25);
  },
});

/// Adds the colours of a device's tasks to the pixels that they are in, each by how much of the pixel it fills.
function addUp(model, fills, { low, high }, { from, scale, wide, half }, sums) {
  sums.fill(0);
  const { start, end, kind, nth, share } = model;
  for (let task = low; task < high; task++) {
    if (half > 0 && share[task] !== 0 && share[task] !== half) continue;
    let left = (start[task] - from) * scale;
    let right = (end[task] - from) * scale;
    right -= Math.min(1, (right - left) * 0.15);
    if (left < 0) left = 0;
    if (right > wide) right = wide;
    if (right <= left) continue;
    const [red, green, blue] = fills[kind[task]][nth[task]].parts;
    const last = Math.min(wide - 1, Math.floor(right));
    for (let pixel = Math.floor(left); pixel <= last; pixel++) {
      const part = Math.min(right, pixel + 1) - Math.max(left, pixel);
      if (part <= 0) continue;
      const at = pixel * 4;
      sums[at] += red * part;
      sums[at + 1] += green * part;
      sums[at + 2] += blue * part;
      sums[at + 3] += part;
    }
  }
}

/// Means of what was added up; what no task fills shows what is behind.
function settle(sums, data, offset, wide) {
  for (let at = 0; at < wide * 4; at += 4) {
    const whole = sums[at + 3];
    if (whole === 0) continue;
    data[offset + at] = sums[at] / whole;
    data[offset + at + 1] = sums[at + 1] / whole;
    data[offset + at + 2] = sums[at + 2] / whole;
    data[offset + at + 3] = Math.min(1, whole) * 255;
  }
}

/// A kind's colour for each stage of a device, lighter for later ones, with an ink that can be read on it.
function shades(colour, nStages) {
  const parts = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return Array.from({ length: nStages }, (_, nth) => {
    const white = nStages > 1 ? (0.55 * nth) / (nStages - 1) : 0;
    const mixed = parts.map((part) => Math.trunc(part + (255 - part) * white));
    const light = (0.299 * mixed[0] + 0.587 * mixed[1] + 0.114 * mixed[2]) / 255;
    return { parts: mixed, fill: `rgb(${mixed.join(",")})`, ink: light > 0.56 ? "#1f2933" : "#ffffff" };
  });
}

/// The first of 1, 2, 5, 10, 20, .. that is no less.
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1e-9)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * 0.999999) ?? least;
}

/// The first place of ascending numbers with more than a limit.
function lowerBound(numbers, limit) {
  let low = 0, high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] > limit) high = middle; else low = middle + 1;
  }
  return low;
}

/// `activations s1 m2`
function lifespanName(one, model) {
  const slices = model.picture.microbatches[1];
  const stage = one.stage === undefined ? "" : ` s${one.stage}`;
  if (one.microbatch === undefined) return one.what + stage;
  const at = slices > 1 ? `${Math.floor(one.microbatch / slices)} q${one.microbatch % slices}` : one.microbatch;
  return `${one.what}${stage} m${at}`;
}
