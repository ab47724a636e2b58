// What is drawn over the tasks: the critical path, transfers, and what is selected; and sums of narrow tasks, pixel by pixel.

Object.assign(Painter.prototype, {
  middle(task, { model, rows }) {
    const row = rows[model.device[task]];
    const [y, height] = this.share(row, task);
    return y + height / 2;
  },

  critical({ model, rows, visible }) {
    const { context, colours } = this;
    const { view } = this.timeline;
    const path = model.critical;
    const isShown = new Uint8Array(model.nDevices);
    for (const row of visible) isShown[row.device] = 1;
    let index = 0;
    while (index < path.length && model.end[path[index]] < view.from) index++;
    if (index > 0) index--;
    const bars = new Path2D(), links = new Path2D();
    for (; index < path.length && model.start[path[index]] <= view.to; index++) {
      const task = path[index];
      const row = rows[model.device[task]];
      const [y, height] = [row.y, row.taskHeight];
      const [from, to] = [this.x(model.start[task]), this.x(model.end[task])];
      if (isShown[row.device]) bars.rect(from, y + height - 2.5, Math.max(0.5, to - from), 2.5);
      const next = path[index + 1];
      if (next === undefined || model.device[next] === model.device[task]) continue;
      const there = rows[model.device[next]];
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

  /// Those of the last version, and in every one those of the tasks that are looked at.
  transfers(bands) {
    const { timeline, context } = this;
    const { model, view } = timeline;
    const own = [timeline.selected, timeline.hovered].filter((task) => task >= 0);
    const all = timeline.show.transfers ? model.transfersBetween(view.from, view.to, timeline.width / ARROW) : null;
    const rowsAreTall = timeline.rows.length === 0 || timeline.rows[0].taskHeight >= 10;
    if (all && rowsAreTall) {
      context.globalAlpha = 0.5;
      for (const index of all) this.arrow(index, 1, bands[bands.length - 1]);
    }
    context.globalAlpha = 1;
    for (const task of own) for (const band of bands) this.around(task, band);
  },

  /// What a task receives and sends, and what it waited for.
  around(task, band) {
    const { timeline, context, colours } = this;
    const { model } = band;
    const { incoming, outgoing } = timeline.transfersOf(task);
    for (const index of [...incoming, ...outgoing]) this.arrow(index, band.isAbove ? 1.25 : 2, band);
    const after = model.afterOf(task);
    if (after < 0 || incoming.some((index) => model.from[index] === after)) return;
    context.strokeStyle = colours.focus;
    context.lineWidth = 1.5;
    context.setLineDash([3, 3]);
    context.beginPath();
    context.moveTo(this.x(model.end[after]) - 1, this.middle(after, band));
    context.lineTo(this.x(model.start[task]) + 1, this.middle(task, band));
    context.stroke();
    context.setLineDash([]);
  },

  /// From the end of the task that sends to the moment at which the other device has it.
  arrow(index, lineWidth, band) {
    const { context, colours } = this;
    const { model } = band;
    const [from, to] = [model.from[index], model.to[index]];
    const [x0, x1] = [this.x(model.leaves[index]) - 2, this.x(model.arrives[index])];
    const [y0, y1] = [this.middle(from, band), this.middle(to, band)];
    const colour = colours[model.picture.classes[model.class[index]]];
    const down = y1 > y0 ? 1 : -1;
    const end = y1 - down * band.rows[model.device[to]].taskHeight * 0.28;
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

  /// What is selected and what is under the pointer, in every version.
  marks(bands) {
    const { context, timeline, colours } = this;
    const outline = (task, colour, lineWidth) => {
      const places = bands.map(({ model, rows }) => {
        const [y, height] = this.share(rows[model.device[task]], task);
        const from = this.x(model.start[task]);
        return { y, height, from, wide: Math.max(2, this.x(model.end[task]) - from) };
      });
      places.slice(1).forEach((below, place) => this.link(places[place], below, colour));
      for (const { y, height, from, wide } of places) {
        context.strokeStyle = colours.sheet;
        context.lineWidth = lineWidth + 2;
        context.strokeRect(from, y, wide, height);
        context.strokeStyle = colour;
        context.lineWidth = lineWidth;
        context.strokeRect(from, y, wide, height);
      }
    };
    if (timeline.hovered >= 0 && timeline.hovered !== timeline.selected) outline(timeline.hovered, colours.ink, 1.25);
    if (timeline.selected >= 0) outline(timeline.selected, colours.focus, 2.25);
  },

  /// From a task in one version to the same one in the version below.
  link(above, below, colour) {
    const { context } = this;
    const [top, bottom] = [above.y + above.height, below.y];
    context.fillStyle = context.strokeStyle = colour;
    context.beginPath();
    context.moveTo(above.from, top);
    context.lineTo(above.from + above.wide, top);
    context.lineTo(below.from + below.wide, bottom);
    context.lineTo(below.from, bottom);
    context.closePath();
    context.globalAlpha = 0.22;
    context.fill();
    context.globalAlpha = 0.8;
    context.lineWidth = 1;
    context.stroke();
    context.globalAlpha = 1;
  },
});

/// Adds the colours of a device's tasks to the pixels that they are in, each by how much of the pixel it fills; before those that started late, that of late starts.
function addUp(model, { fills, late, neverParts }, { low, high }, { from, scale, wide, half }, sums) {
  sums.fill(0);
  const { start, end, kind, nth, share } = model;
  for (let task = low; task < high; task++) {
    if (half > 0 && share[task] !== 0 && share[task] !== half) continue;
    const left = (start[task] - from) * scale;
    const right = (end[task] - from) * scale;
    if (model.late[task] > 0) spread(sums, left - model.late[task] * scale, left, wide, late);
    spread(sums, left, right - Math.min(1, (right - left) * 0.15), wide, model.never[task] === 1 ? neverParts : fills[kind[task]][nth[task]].parts);
  }
}

function spread(sums, left, right, wide, [red, green, blue]) {
  if (left < 0) left = 0;
  if (right > wide) right = wide;
  if (right <= left) return;
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

/// Red, green and blue of `#1d4499`.
function rgb(colour) { return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)); }

/// A kind's colours for each stage of a device, on a light or dark ground, with an ink that can be read on them. Where a
/// task with two halves is too narrow to show both, its colour is their mean.
function shades(kinds, kind, ground, nStages) {
  const [first, last] = kind[ground].map(rgb);
  return Array.from({ length: nStages }, (_, nth) => {
    const parts = mixed(first, last, nth / Math.max(1, nStages - 1));
    const halves = kind.halves?.map((half) => shades(kinds, kinds[half], ground, nStages)[nth].fill) ?? null;
    return { parts, fill: css(parts), ink: inkOn(parts), halves };
  });
}

/// What is on the way from one colour to another: the first at 0, the second at 1.
function mixed(one, other, share) { return one.map((part, place) => Math.trunc(part + (other[place] - part) * share)); }

function css(parts) { return `rgb(${parts.join(",")})`; }

/// Black or white, whichever has more contrast (WCAG 2.2).
function inkOn(parts) {
  const [red, green, blue] = parts.map((part) => (part <= 10 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  const light = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return 1.05 / (light + 0.05) > (light + 0.05) / 0.05 ? "#ffffff" : "#000000";
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
