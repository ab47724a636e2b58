// What devices do beside tasks: copies, what they do together, and what ends the step.

Object.assign(Painter.prototype, {
  /// What is done behind the last task.
  closing(rows) {
    const { context, timeline, colours } = this;
    const { closing } = timeline.model.picture;
    if (!closing) return;
    const [from, to] = [this.x(closing.start), this.x(closing.end)];
    context.fillStyle = colours.closing;
    context.globalAlpha = 0.45;
    for (const row of rows) context.fillRect(from, row.y, Math.max(1, to - from), row.taskHeight);
    context.globalAlpha = 1;
  },

  /// Copies or collectives: those that touch are one bar, where they are narrower than pixels.
  queue(row, { queue, y }) {
    const { context, timeline, colours } = this;
    const { model, view } = timeline;
    const own = queue.devices[row.device];
    const tall = timeline.queueHeight - 1;
    context.fillStyle = colours.idle;
    context.fillRect(GUTTER, y, timeline.width - GUTTER, tall);
    context.fillStyle = colours[queue.name];
    let [from, to] = [0, -1];
    const draw = () => to >= from && context.fillRect(from, y, Math.max(1, to - from), tall);
    for (let place = model.firstInQueue(queue, row.device, view.from); place < own.length && own[place].start <= view.to; place++) {
      const { start, end } = own[place];
      if (end < view.from) continue;
      const [left, right] = [this.x(start), this.x(end) - 0.5];
      if (left > to + 0.5) {
        draw();
        from = left;
      }
      to = Math.max(to, right);
    }
    draw();
  },
});

Object.assign(Timeline.prototype, {
  /// What is in a queue at a moment, or within two pixels of it.
  inQueue(queue, device, moment, model) {
    const near = (2 * (this.view.to - this.view.from)) / (this.width - GUTTER);
    const own = queue.devices[device];
    const parts = [];
    for (let place = model.firstInQueue(queue, device, moment - near); place < own.length && own[place].start <= moment + near; place++) {
      if (own[place].end >= moment - near) parts.push(own[place]);
    }
    return { queue, parts, device, moment };
  },
});
