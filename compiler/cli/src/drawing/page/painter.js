// Drawing the lanes: only what is visible, and where tasks are narrower than some pixels, what they add up to.

const GUTTER = 54;
const AXIS = 26;
/// Narrower tasks, in device pixels on average, are added up pixel by pixel.
const DETAIL = 7;
/// So many pixels of the width for each transfer that is drawn: where there are more, none is.
const ARROW = 7;
/// How strong versions are drawn above the last one.
const ABOVE = 0.66;

class Painter {
  constructor(timeline) {
    this.timeline = timeline;
    this.canvas = timeline.canvas;
    this.context = this.canvas.getContext("2d");
    this.strip = document.createElement("canvas");
  }

  /// Takes over colours of the theme and of the picture's kinds.
  readColours() {
    const style = getComputedStyle(this.timeline.root);
    const names = ["ground", "paper", "sheet", "ink", "faint", "line", "edge", "idle", "idle-line", "accent", "over", "memory", "memory-line",
      "activation", "gradient", "sum", "focus", "h2d", "d2h", "together", "closing", "late"];
    this.colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    const model = this.timeline.model;
    this.late = rgb(this.colours.late);
    this.neverParts = mixed(rgb(this.colours.sheet), rgb(this.colours.faint), 0.25);
    const { kinds } = model.picture;
    this.fills = kinds.map((kind) => shades(kinds, kind, this.colours.ground, model.nStages));
    // Above the last version, what lies behind shows.
    const sheet = rgb(this.colours.sheet);
    for (const shade of this.fills.flat()) shade.inkAbove = inkOn(mixed(sheet, shade.parts, ABOVE));
    this.idlePattern = this.hatch(this.colours.idle, this.colours["idle-line"]);
  }

  hatch(ground, line) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const context = tile.getContext("2d");
    context.fillStyle = ground;
    context.fillRect(0, 0, 8, 8);
    context.strokeStyle = line;
    context.lineWidth = 1.5;
    context.beginPath();
    for (const x of [-8, 0, 8]) { context.moveTo(x, 8); context.lineTo(x + 8, 0); }
    context.stroke();
    return this.context.createPattern(tile, "repeat");
  }

  /// Pixels from the left of the canvas to a moment.
  x(moment) {
    const { view, width } = this.timeline;
    return GUTTER + ((moment - view.from) / (view.to - view.from)) * (width - GUTTER);
  }

  paint() {
    const { context, timeline } = this;
    const { width, height, ratio } = timeline;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = this.colours.sheet;
    context.fillRect(0, 0, width, height);
    const visible = (rows) => rows.filter((row) => row.y + row.height > AXIS && row.y < height);
    const bands = timeline.bands.map((band) => ({ ...band, visible: visible(band.rows) }));
    const rows = bands[bands.length - 1].visible;
    const lit = timeline.tasksLit();
    this.grid();
    context.save();
    context.beginPath();
    context.rect(GUTTER, AXIS, width - GUTTER, height - AXIS);
    context.clip();
    for (const row of rows) if (row.memoryHeight > 0) this.memory(row);
    this.closing(rows);
    for (const row of rows) for (const lane of row.queues) this.queue(row, lane);
    for (const band of bands) {
      for (const row of band.visible) this.ground(row, band);
      context.globalAlpha = band.isAbove ? ABOVE : 1;
      this.tasks(band);
      if (lit) this.lit(band, lit);
      if (timeline.show.critical) this.critical(band);
      context.globalAlpha = 1;
    }
    this.transfers(bands);
    this.stop(bands[bands.length - 1]);
    for (const row of rows) this.misfits(row, timeline.model);
    this.marks(bands);
    context.restore();
    this.range();
    this.labels(bands);
  }

  /// Round moments.
  grid() {
    const { context, timeline, colours } = this;
    const { view, width, height, model } = timeline;
    const perPixel = (view.to - view.from) / (width - GUTTER) / model.perUnit;
    const step = roundStep(perPixel * 90);
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    const first = Math.max(0, Math.ceil(view.from / model.perUnit / step));
    for (let count = first; count * step * model.perUnit <= Math.min(view.to, model.stop?.at ?? Infinity); count++) {
      const x = Math.round(this.x(count * step * model.perUnit)) + 0.5;
      if (x < GUTTER) continue;
      context.fillStyle = colours.line;
      context.fillRect(x - 0.5, AXIS - 5, 1, height);
      context.fillStyle = colours.faint;
      context.fillText(say(count * step), Math.max(x, GUTTER + 8), AXIS / 2 - 1);
    }
  }

  /// What lies under the tasks of a device: the time between its first and its last.
  ground(row, { model }) {
    const [first, count] = model.tasksOf(row.device);
    if (count === 0) return;
    const last = first + (model.stop ? model.stop.ran[row.device] : count) - 1;
    if (last < first) return;
    const [from, to] = [this.x(model.start[first]), this.x(model.end[last])];
    this.context.fillStyle = this.idlePattern;
    this.context.fillRect(from, row.y, to - from, row.taskHeight);
  }

  tasks({ model, visible, isAbove }) {
    const { view, width, ratio } = this.timeline;
    const fine = [], coarse = [];
    for (const row of visible) {
      const [first, count] = model.tasksOf(row.device);
      const low = model.firstEndingAfter(row.device, view.from);
      let high = first + count;
      for (let start = low; start < high;) {
        const middle = (start + high) >> 1;
        if (model.start[middle] < view.to) start = middle + 1; else high = middle;
      }
      const range = { row, low, high, model, isAbove };
      (((width - GUTTER) * ratio) / Math.max(1, high - low) < DETAIL ? coarse : fine).push(range);
    }
    if (coarse.length > 0) this.coarse(coarse, model);
    for (const range of fine) this.fine(range);
  }

  /// Blocks with letters and numbers.
  fine({ row, low, high, model, isAbove }) {
    if (model.hasLate) this.lateStarts(row, low, high, model);
    this.readyText(row);
    for (let task = low; task < high; task++) {
      const isBehindGap = task > low && model.never[task] && model.never[task - 1] && model.start[task] > model.end[task - 1];
      if (isBehindGap) this.leftOut(model, task, row.y + row.taskHeight / 2);
      this.block(task, row, model, isAbove);
    }
  }

  /// Letters as they are in the tasks of a row.
  readyText(row) {
    const { context } = this;
    context.textAlign = "center";
    context.textBaseline = "middle";
    this.fontSize = Math.min(12, Math.max(8, row.taskHeight * 0.5));
    context.font = `500 ${this.fontSize}px system-ui, sans-serif`;
  }

  /// One task.
  block(task, row, model, isAbove) {
    const { context, timeline, colours } = this;
    const from = this.x(model.start[task]);
    const wide = this.x(model.end[task]) - from;
    const [y, height] = this.share(row, task);
    const shade = this.fills[model.kind[task]][model.nth[task]];
    const gap = Math.min(1, wide * 0.15);
    const isNever = model.never[task] === 1;
    if (isNever) this.never(from, y, wide, height, model.inCycle[task] === 1);
    context.fillStyle = isNever ? "#0000" : shade.halves && wide > 4 ? this.divided(shade.halves, from, y, wide, height) : shade.fill;
    if (wide > 9) {
      context.beginPath();
      context.roundRect(from + gap / 2, y, wide - gap, height, Math.min(3, height / 4));
      context.fill();
      context.strokeStyle = colours.edge;
      context.lineWidth = 0.75;
      if (!isNever) context.stroke();
    } else {
      context.fillRect(from, y, wide - gap, height);
    }
    // One task of two neighbours: a bridge over the memory between them.
    if (model.goesOn[task] && !isAbove) {
      const bridge = Math.min(wide * 0.4, 14);
      context.fillRect(from + (wide - bridge) / 2, y + height, bridge, row.height - row.taskHeight);
    }
    if (wide <= 12 || height < 9) return;
    const [left, right] = [Math.max(from, GUTTER), Math.min(from + wide, timeline.width)];
    const [letters, part] = [model.kindOf(task).letters, model.partOf(task)];
    const texts = [...(part ? [`${letters}.${part} ${model.number(task)}`] : []), letters + model.number(task), model.number(task)];
    const text = texts.find((text) => this.inkWidth(text, this.fontSize) + 4 <= right - left);
    if (!text) return;
    context.globalAlpha = 1;
    context.fillStyle = isNever ? colours.faint : isAbove ? shade.inkAbove : shade.ink;
    context.fillText(text, (left + right) / 2, y + height / 2 + 0.5);
    if (isAbove) context.globalAlpha = ABOVE;
  }

  /// Two colours, divided from the lower left to the upper right corner.
  divided([above, below], x, y, wide, height) {
    const [middleX, middleY] = [x + wide / 2, y + height / 2];
    // Along the normal of the diagonal.
    const length = (wide * height) / (wide * wide + height * height);
    const fill = this.context.createLinearGradient(middleX - height * length, middleY - wide * length, middleX + height * length, middleY + wide * length);
    fill.addColorStop(0.5, above);
    fill.addColorStop(0.5, below);
    return fill;
  }

  /// From when a task could have started to when it did.
  lateStarts(row, low, high, model) {
    const { context } = this;
    const tall = Math.max(2, Math.round(row.taskHeight * 0.4));
    context.fillStyle = this.colours.late;
    for (let task = low; task < high; task++) {
      if (model.late[task] === 0) continue;
      const to = this.x(model.start[task]);
      context.fillRect(this.x(model.start[task] - model.late[task]), row.y + (row.taskHeight - tall) / 2, to - this.x(model.start[task] - model.late[task]), tall);
    }
  }

  inkWidth(text, fontSize) { return text.length * fontSize * 0.6; }

  /// Of two tasks that share the device, one is above the other.
  share(row, task) {
    const half = row.taskHeight / 2;
    const share = this.timeline.model.share[task];
    if (share === 0) return [row.y, row.taskHeight];
    return share === 1 ? [row.y, half - 0.5] : [row.y + half + 0.5, half - 0.5];
  }

  /// Every pixel gets the mean colour of what is done in its time.
  coarse(ranges, model) {
    const { context, timeline, strip } = this;
    const { view, width, ratio } = timeline;
    const wide = Math.max(1, Math.round((width - GUTTER) * ratio));
    const halves = model.hasPairs ? 2 : 1;
    if (strip.width !== wide || strip.height < ranges.length * halves) {
      strip.width = wide;
      strip.height = Math.max(strip.height, ranges.length * halves);
      this.sums = new Float32Array(wide * 4);
    }
    const image = new ImageData(wide, ranges.length * halves);
    const scale = wide / (view.to - view.from);
    ranges.forEach((range, index) => {
      for (let half = 0; half < halves; half++) {
        addUp(model, this, range, { from: view.from, scale, wide, half: halves === 2 ? half + 1 : 0 }, this.sums);
        settle(this.sums, image.data, (index * halves + half) * wide * 4, wide);
      }
    });
    const target = strip.getContext("2d");
    target.putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    ranges.forEach(({ row }, index) => {
      const tall = row.taskHeight;
      context.drawImage(strip, 0, index * halves, wide, halves, GUTTER, row.y, width - GUTTER, tall);
    });
  }

  /// Where a moment's memory stands in its lane.
  memoryY(row, amount) {
    const tall = row.memoryHeight - 4;
    return row.memoryY + row.memoryHeight - 1 - (amount / this.timeline.memory.most) * tall;
  }

  memory(row) {
    const { context, timeline, colours } = this;
    const { memory, view, width } = timeline;
    const { moments, parts, limit } = memory.lanes[row.device];
    const bottom = row.memoryY + row.memoryHeight - 1;
    const path = new Path2D();
    const scale = (width - GUTTER) / (view.to - view.from);
    path.moveTo(GUTTER, bottom);
    // From the last change before the view to the first one behind it; of the changes in one pixel, the highest level.
    let index = lowerBound(moments, view.from) - 1;
    let level = index >= 0 ? parts[index] : 0;
    path.lineTo(GUTTER, this.memoryY(row, level * memory.factor));
    for (index += 1; index < moments.length && moments[index] < view.to;) {
      const x = GUTTER + (moments[index] - view.from) * scale;
      path.lineTo(x, this.memoryY(row, level * memory.factor));
      let most = parts[index];
      const pixel = Math.floor(x);
      do {
        level = parts[index];
        most = Math.max(most, level);
        index += 1;
      } while (index < moments.length && Math.floor(GUTTER + (moments[index] - view.from) * scale) === pixel);
      path.lineTo(x, this.memoryY(row, most * memory.factor));
      if (most !== level) path.lineTo(x + 0.5, this.memoryY(row, level * memory.factor));
    }
    path.lineTo(width, this.memoryY(row, level * memory.factor));
    const outline = new Path2D(path);
    path.lineTo(width, bottom);
    path.closePath();
    context.fillStyle = colours.memory;
    context.fill(path);
    context.strokeStyle = colours["memory-line"];
    context.lineWidth = 1;
    context.stroke(outline);
    if (limit !== null) this.limit(row, path, limit);
    if (timeline.peakOf === row.device) this.lifespans(row);
    const peak = memory.lanes[row.device];
    const [x, y] = [this.x(peak.at), this.memoryY(row, peak.peak * memory.factor)];
    context.fillStyle = limit !== null && peak.peak * memory.factor > limit ? colours.over : colours["memory-line"];
    context.beginPath();
    context.arc(x, y, 2.5, 0, 7);
    context.fill();
  }

  /// The limit, and what is above it.
  limit(row, path, limit) {
    const { context, colours } = this;
    const { width } = this.timeline;
    const y = this.memoryY(row, limit);
    context.save();
    context.beginPath();
    context.rect(GUTTER, row.memoryY - 2, width - GUTTER, y - row.memoryY + 2);
    context.clip();
    context.fillStyle = colours.over;
    context.globalAlpha = 0.55;
    context.fill(path);
    context.restore();
    context.strokeStyle = colours.over;
    context.setLineDash([5, 3]);
    context.beginPath();
    context.moveTo(GUTTER, y);
    context.lineTo(width, y);
    context.stroke();
    context.setLineDash([]);
  }

  /// What is alive at the peak of a device: bars from the begin to the end of each lifespan, as high as it counts.
  lifespans(row) {
    const { context, timeline, colours } = this;
    const { memory, model } = timeline;
    const lane = memory.lanes[row.device];
    let base = row.memoryY + row.memoryHeight - 1;
    const unit = (row.memoryHeight - 4) / memory.most;
    context.save();
    lane.alive.forEach((one, index) => {
      const tall = one.parts * memory.factor * unit;
      const from = one.since === undefined ? GUTTER : this.x(one.since);
      const to = one.until === undefined ? timeline.width : this.x(one.until);
      context.globalAlpha = index % 2 === 0 ? 0.8 : 0.55;
      context.fillStyle = colours["memory-line"];
      context.fillRect(from, base - tall + 0.5, Math.max(1, to - from), Math.max(0.6, tall - 1));
      if (tall >= 10 && to - from > 90) {
        context.globalAlpha = 1;
        context.font = "10px system-ui, sans-serif";
        context.textAlign = "left";
        context.textBaseline = "middle";
        context.fillStyle = colours.sheet;
        context.fillText(lifespanName(one, model), Math.max(from, GUTTER) + 5, base - tall / 2 + 0.5);
      }
      base -= tall;
    });
    context.globalAlpha = 1;
    context.strokeStyle = colours.focus;
    const x = Math.round(this.x(lane.at)) + 0.5;
    context.beginPath();
    context.moveTo(x, row.memoryY);
    context.lineTo(x, row.memoryY + row.memoryHeight);
    context.stroke();
    context.restore();
  }

  /// Names of devices, and of versions where there are several, over everything that scrolls.
  labels(bands) {
    const { context, colours, timeline } = this;
    const rows = bands[bands.length - 1].visible;
    const hasNames = bands.length > 1 && timeline.aboveHeight >= 8;
    context.fillStyle = colours.sheet;
    context.fillRect(0, AXIS, GUTTER - 1, timeline.height);
    context.fillStyle = colours.line;
    context.fillRect(GUTTER - 1, AXIS - 5, 1, timeline.height);
    context.save();
    context.beginPath();
    context.rect(0, AXIS, GUTTER, timeline.height);
    context.clip();
    context.textAlign = "right";
    context.textBaseline = "middle";
    const size = Math.min(12.5, Math.max(8, timeline.pitch));
    const every = Math.max(1, Math.ceil(11 / timeline.pitch));
    for (const row of rows) {
      if (row.device % every !== 0) continue;
      const isMarked = timeline.selected >= 0 && timeline.model.device[timeline.selected] === row.device;
      context.font = `${isMarked ? 700 : 600} ${size}px system-ui, sans-serif`;
      context.fillStyle = isMarked ? colours.focus : colours.ink;
      context.fillText(timeline.model.deviceName(row.device).split(" ").pop(), GUTTER - (hasNames ? 32 : 10), row.y + row.taskHeight / 2 + 0.5);
      if (row.memoryHeight >= 16) {
        context.font = "9px system-ui, sans-serif";
        context.fillStyle = colours.faint;
        const lane = timeline.memory.lanes[row.device];
        context.fillText(timeline.memory.amount(lane.peak).replace(/ units?$/, ""), GUTTER - 10, row.memoryY + row.memoryHeight / 2);
      }
    }
    context.font = "9px system-ui, sans-serif";
    context.fillStyle = colours.faint;
    for (const { model, visible } of hasNames ? bands : []) {
      for (const row of visible) context.fillText(model.version, GUTTER - 6, row.y + row.taskHeight / 2 + 0.5);
    }
    context.restore();
    context.textAlign = "right";
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = colours.faint;
    context.fillText(timeline.model.unit.trim() || "time", GUTTER - 10, AXIS / 2 - 1);
  }
}
