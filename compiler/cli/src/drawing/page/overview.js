// The whole step as a strip, with the part that is in view.

class Overview {
  constructor(timeline, canvas) {
    this.timeline = timeline;
    this.canvas = canvas;
    this.image = null;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.go(event);
    });
    canvas.addEventListener("pointermove", (event) => event.buttons === 1 && this.go(event));
  }

  go(event) {
    const { timeline } = this;
    if (!timeline.model) return;
    const { left, width } = this.canvas.getBoundingClientRect();
    const at = ((event.clientX - left - GUTTER) / (width - GUTTER)) * timeline.makespan;
    const half = (timeline.view.to - timeline.view.from) / 2;
    timeline.look(at - half, at + half);
  }

  resize() {
    const { width, ratio } = this.timeline;
    this.tall = Math.min(48, Math.max(24, this.timeline.model.nDevices * 4));
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(this.tall * ratio);
    this.canvas.style.height = `${this.tall}px`;
    this.forget();
  }

  forget() { this.image = null; }

  paint() {
    const { timeline, canvas } = this;
    const { makespan, view, width, ratio, painter } = timeline;
    if (!this.image) this.image = this.whole();
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, this.tall);
    context.imageSmoothingEnabled = this.image.height > this.tall / 3;
    context.drawImage(this.image, GUTTER, 0, width - GUTTER, this.tall);
    const lit = timeline.tasksLit();
    if (lit) this.marks(lit);
    const x = (moment) => GUTTER + (Math.max(0, Math.min(moment, makespan)) / makespan) * (width - GUTTER);
    const [from, to] = [x(view.from), x(view.to)];
    context.fillStyle = painter.colours.sheet;
    context.globalAlpha = 0.72;
    context.fillRect(GUTTER, 0, from - GUTTER, this.tall);
    context.fillRect(to, 0, width - to, this.tall);
    context.globalAlpha = 1;
    if (timeline.isWhole()) return;
    context.strokeStyle = painter.colours.focus;
    context.lineWidth = 1.5;
    context.strokeRect(from, 0.75, Math.max(3, to - from), this.tall - 1.5);
  }

  /// Where the tasks are that are lit.
  marks(tasks) {
    const { width, makespan, model, painter } = this.timeline;
    const wide = width - GUTTER;
    const isMarked = new Uint8Array(wide + 1);
    for (const task of tasks) isMarked.fill(1, Math.floor((model.start[task] / makespan) * wide), Math.max(1, Math.ceil((model.end[task] / makespan) * wide)));
    const context = this.canvas.getContext("2d");
    context.fillStyle = painter.colours.sheet;
    context.fillRect(GUTTER, 0, wide, 5);
    context.fillStyle = painter.colours.focus;
    for (let pixel = 0; pixel < wide; pixel++) if (isMarked[pixel]) context.fillRect(GUTTER + pixel, 0, 1, 4);
  }

  /// All tasks of all devices, a row of pixels for each of them and each version.
  whole() {
    const { model, shown, makespan, width, ratio, painter } = this.timeline;
    const wide = Math.max(1, Math.round((width - GUTTER) * ratio));
    const image = new ImageData(wide, model.nDevices * shown.length);
    const sums = new Float32Array(wide * 4);
    const place = { from: 0, scale: wide / makespan, wide, half: model.hasPairs ? 1 : 0 };
    for (let row = 0; row < image.height; row++) {
      const version = shown[row % shown.length];
      const [first, count] = version.tasksOf(Math.floor(row / shown.length));
      addUp(version, painter, { low: first, high: first + count }, place, sums);
      settle(sums, image.data, row * wide * 4, wide);
    }
    const canvas = document.createElement("canvas");
    canvas.width = wide;
    canvas.height = image.height;
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
  }
}
