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
    const at = ((event.clientX - left - GUTTER) / (width - GUTTER)) * timeline.model.makespan;
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
    const { model, view, width, ratio, painter } = timeline;
    if (!this.image) this.image = this.whole();
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, this.tall);
    context.imageSmoothingEnabled = timeline.model.nDevices > this.tall / 3;
    context.drawImage(this.image, GUTTER, 0, width - GUTTER, this.tall);
    const x = (moment) => GUTTER + (Math.max(0, Math.min(moment, model.makespan)) / model.makespan) * (width - GUTTER);
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

  /// All tasks of all devices, a row of pixels each.
  whole() {
    const { model, width, ratio, painter } = this.timeline;
    const wide = Math.max(1, Math.round((width - GUTTER) * ratio));
    const image = new ImageData(wide, model.nDevices);
    const sums = new Float32Array(wide * 4);
    const place = { from: 0, scale: wide / model.makespan, wide, half: model.hasPairs ? 1 : 0 };
    for (let device = 0; device < model.nDevices; device++) {
      const [first, count] = model.tasksOf(device);
      addUp(model, painter.fills, { low: first, high: first + count }, place, sums);
      settle(sums, image.data, device * wide * 4, wide);
    }
    const canvas = document.createElement("canvas");
    canvas.width = wide;
    canvas.height = model.nDevices;
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
  }
}
