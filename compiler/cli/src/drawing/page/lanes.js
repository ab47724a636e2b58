// Where lanes are: a row for every device, and where versions of a timeline are shown above each other, a band of rows for each of them.

Object.assign(Timeline.prototype, {
  /// Sizes of the canvas and the rows.
  resize() {
    if (!this.model) return;
    const { nDevices } = this.model;
    const most = Math.max(320, Math.min(900, window.innerHeight * 0.72));
    const withMemory = this.show.memory && this.memory !== undefined;
    const nAbove = this.shown.length - 1;
    const nQueues = this.show.queues ? this.model.queues.length : 0;
    // Rows get lower the more there are, down to what can be told apart.
    const [low, high] = withMemory ? [15 + 6 * nAbove, 74 + 26 * nAbove] : [9 + 4 * nAbove, 40 + 20 * nAbove];
    // Arrows of a cycle go between the rows.
    const room = this.model.stop ? 26 : 0;
    const [lowest, highest] = [low + 3 * nQueues, high + 8 * nQueues + room];
    // Lanes hold no memory: their rows are lower.
    const nLanes = withMemory ? this.model.picture.devices.filter((_, row) => this.model.isLane(row)).length : 0;
    const pitch = Math.max(lowest, Math.min(highest, (most - AXIS - 8) / (nDevices - 0.4 * nLanes)));
    const gap = Math.min(pitch / 3, room) || (pitch > 24 ? 6 : pitch > 12 ? 2 : 1);
    this.queueHeight = pitch >= 60 ? 8 : pitch >= 30 ? 5 : 3;
    const own = pitch - gap - nQueues * this.queueHeight;
    const tall = withMemory ? Math.round(own * (nAbove > 0 ? 0.68 : 0.58)) : Math.floor(own);
    this.pitch = pitch;
    this.slit = nAbove > 0 ? (tall > 34 ? 5 : 1) : 0;
    this.aboveHeight = nAbove > 0 ? Math.floor(((tall - nAbove * this.slit) * 0.42) / nAbove) : 0;
    this.taskHeight = tall - nAbove * (this.aboveHeight + this.slit);
    this.memoryHeight = withMemory ? Math.floor(own - tall - 1) : 0;
    this.lead = room > 0 ? 14 : 4;
    this.contentHeight = AXIS + this.lead + nDevices * pitch - nLanes * this.memoryHeight + (this.peakOf >= 0 ? this.peakHeight() : 0) + 6;
    this.width = Math.max(260, this.panels.stage.clientWidth);
    this.height = Math.round(Math.min(this.contentHeight, most));
    this.ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.height * this.ratio);
    this.canvas.style.height = `${this.height}px`;
    this.scroll(this.top);
    this.panels.overview.resize();
    this.repaint();
  },

  /// How much higher the memory lane is whose peak is looked at.
  peakHeight() { return Math.max(0, 132 - this.memoryHeight); },

  scroll(top) {
    this.top = Math.max(0, Math.min(top, this.contentHeight - this.height));
    const { pitch, aboveHeight, slit, taskHeight, peakOf } = this;
    const extra = peakOf >= 0 ? this.peakHeight() : 0;
    const nAbove = this.shown.length - 1;
    const queues = this.show.queues ? this.model.queues : [];
    const lower = (device) => (this.model.isLane(device) ? this.memoryHeight : 0);
    const tops = [];
    for (let device = 0, y = AXIS + this.lead - this.top; device < this.model.nDevices; device++) {
      tops.push(y);
      y += pitch - lower(device) + (device === peakOf ? extra : 0);
    }
    this.bands = this.shown.map((model, place) => {
      const rows = model.picture.devices.map((_, device) => {
        const y = tops[device] + place * (aboveHeight + slit);
        if (place < nAbove) return { device, y, height: aboveHeight + slit, taskHeight: aboveHeight, queues: [], memoryY: y + aboveHeight, memoryHeight: 0 };
        const own = device === peakOf ? extra : 0;
        return {
          device, y, height: pitch - lower(device) + own - nAbove * (aboveHeight + slit), taskHeight,
          queues: queues.map((queue, place) => ({ queue, y: y + taskHeight + 1 + place * this.queueHeight })),
          memoryY: y + taskHeight + 1 + queues.length * this.queueHeight, memoryHeight: this.memoryHeight - lower(device) + own,
        };
      });
      return { model, rows, isAbove: place < nAbove };
    });
    this.rows = this.bands[nAbove].rows;
    this.invalidate();
  },

  /// What is at a place of the canvas: a task, a moment without one, or the memory of a device.
  at(x, y) {
    if (x < GUTTER || y < AXIS) return {};
    const moment = this.moment(x);
    for (const { model, rows } of this.bands) {
      const row = rows.find((row) => y >= row.y && y < row.y + row.height);
      if (!row) continue;
      if (moment < 0 || moment > model.makespan) return {};
      if (y >= row.memoryY && row.memoryHeight > 0) return { memory: row.device, moment };
      const lane = row.queues.find((lane) => y >= lane.y && y < lane.y + this.queueHeight);
      if (lane) return this.inQueue(lane.queue, row.device, moment, model);
      const half = y > row.y + row.taskHeight / 2 ? 1 : 0;
      return { ...model.at(row.device, moment, half), model, device: row.device, moment };
    }
    return {};
  },

  /// Scrolls a device into view.
  revealRow(device) {
    const [first, last] = [this.bands[0].rows[device], this.rows[device]];
    if (last.y + last.height > this.height) this.scroll(this.top + last.y + last.height - this.height);
    if (first.y < AXIS) this.scroll(this.top + first.y - AXIS - 8);
  },

  reveal(task) {
    const { model, view } = this;
    const span = view.to - view.from;
    const wide = model.end[task] - model.start[task];
    if (model.start[task] < view.from || model.end[task] > view.to) {
      const middle = (model.start[task] + model.end[task]) / 2;
      this.look(middle - Math.max(span, wide) / 2, middle + Math.max(span, wide) / 2);
    }
    this.revealRow(model.device[task]);
  },

  /// Shows what is alive at the peak of a device.
  showPeak(device, reveal = true) {
    if (!this.memory) return;
    device = this.model.rowOfLane(device);
    this.peakOf = this.peakOf === device && reveal ? -1 : device;
    if (this.peakOf >= 0 && !this.show.memory) this.toggle("memory");
    this.resize();
    if (this.peakOf >= 0 && reveal) this.revealRow(device);
    this.panels.sayPeak();
    if (this.peakOf >= 0 && reveal) this.panels.uncover(this.rows[device]);
  },
});
