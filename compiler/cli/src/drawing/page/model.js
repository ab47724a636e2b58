// The picture as typed arrays, and how its numbers are said.

class Model {
  /// Of several versions of a timeline, each has a name.
  constructor(picture, name = "") {
    this.picture = picture;
    this.version = name;
    this.nDevices = picture.devices.length;
    this.makespan = Math.max(picture.makespan, 1);
    this.perUnit = picture.clock.ticks_per_unit;
    this.unit = picture.clock.unit ? " " + picture.clock.unit : "";
    this.readTasks(picture.tasks);
    this.readTransfers(picture.transfers);
    this.readQueues(picture);
    this.critical = Int32Array.from(picture.critical_path);
    this.isCritical = new Uint8Array(this.n);
    for (const task of this.critical) this.isCritical[task] = 1;
    this.memories = picture.memory.map((memory) => new MemoryModel(memory));
    this.readStop(picture.stop ?? null);
    this.statements = new Statements(picture, column(picture.tasks, "statement", Uint32Array));
    this.readGaps(picture.gaps);
  }

  /// Of a schedule that is stuck, the tasks that never run, and those of its cycles.
  readStop(stop) {
    this.stop = stop;
    this.never = new Uint8Array(this.n);
    this.inCycle = new Uint8Array(this.n);
    if (!stop) return;
    for (let task = 0; task < this.n; task++) this.never[task] = task - this.tasksOf(this.device[task])[0] < stop.ran[this.device[task]] ? 0 : 1;
    for (const { task, needs } of stop.cycles.flat()) this.inCycle[task] = this.inCycle[needs] = 1;
  }

  readTasks(tasks) {
    this.n = tasks.count;
    this.kind = column(tasks, "kind", Uint8Array);
    this.stage = column(tasks, "stage", Int32Array);
    this.microbatch = column(tasks, "microbatch", Int32Array);
    this.slice = column(tasks, "slice", Int32Array);
    this.start = column(tasks, "start", Float64Array);
    this.end = column(tasks, "duration", Float64Array).map((duration, task) => this.start[task] + duration);
    this.share = column(tasks, "share", Uint8Array);
    this.goesOn = column(tasks, "goes_on", Uint8Array);
    this.reason = column(tasks, "reason", Uint8Array);
    this.after = column(tasks, "after", Int32Array);
    this.late = column(tasks, "late", Float64Array);
    this.hasLate = Boolean(tasks.late);
    this.hasPairs = Boolean(tasks.share);
    this.device = new Int32Array(this.n);
    this.nth = new Int32Array(this.n);
    this.nStages = 1;
    this.shortest = Infinity;
    const { shades } = this.picture;
    if (shades) this.nStages = shades.reduce((most, shade) => Math.max(most, shade + 1), 1);
    this.picture.devices.forEach((device, index) => {
      const nth = new Map(device.stages.map((stage, place) => [stage, shades ? shades[stage] : place]));
      if (!shades) this.nStages = Math.max(this.nStages, device.stages.length);
      const [first, count] = device.tasks;
      for (let task = first; task < first + count; task++) {
        this.device[task] = index;
        this.nth[task] = nth.get(this.stage[task]) ?? 0;
        const duration = this.end[task] - this.start[task];
        if (duration > 0 && duration < this.shortest) this.shortest = duration;
      }
    });
    if (!Number.isFinite(this.shortest)) this.shortest = 1;
  }

  /// The time in which devices run no task; of device 3 those from `first[3]` to `first[4]`.
  readGaps(gaps = { count: 0 }) {
    const [device, start, duration] = ["device", "start", "duration"].map((name) => column(gaps, name, Float64Array));
    const first = new Int32Array(this.nDevices + 1);
    for (const own of device) first[own + 1] += 1;
    for (let own = 0; own < this.nDevices; own++) first[own + 1] += first[own];
    this.gaps = { first, start, end: duration.map((time, gap) => start[gap] + time), cause: column(gaps, "cause", Uint8Array) };
  }

  readTransfers(transfers) {
    this.nTransfers = transfers.count;
    this.from = column(transfers, "from", Int32Array);
    this.to = column(transfers, "to", Int32Array);
    this.class = column(transfers, "class", Uint8Array);
    this.bytes = column(transfers, "bytes", Float64Array);
    this.leaves = Float64Array.from(this.from, (task) => this.end[task]);
    const duration = column(transfers, "duration", Float64Array);
    this.arrives = duration.map((time, index) => this.leaves[index] + time);
    this.longestTransfer = duration.reduce((most, time) => Math.max(most, time), 0);
    this.byLeaving = Uint32Array.from(this.from.keys()).sort((one, other) => this.leaves[one] - this.leaves[other]);
  }

  /// What devices do beside tasks, in queues of their own: copies each way, and what they do together. Queues that no device has are left out.
  readQueues({ copies, collectives, together }) {
    const queue = (name, words, table, isOwn, what) => {
      const [device, start, duration] = ["device", "start", "duration"].map((name) => column(table, name, Float64Array));
      const devices = this.picture.devices.map(() => []);
      for (let row = 0; row < table.count; row++) if (isOwn(row)) devices[device[row]].push({ start: start[row], end: start[row] + duration[row], ...what(row) });
      let longest = 0;
      for (const own of devices) {
        own.sort((one, other) => one.start - other.start);
        for (const { start, end } of own) longest = Math.max(longest, end - start);
      }
      return { name, words, devices, longest };
    };
    const direction = column(copies, "direction", Uint8Array);
    const [what, stage] = ["what", "stage"].map((name) => column(collectives, name, Int32Array));
    // Activations that are evicted and fetched, on other devices or with the host.
    const [of, microbatch, slice, peer] = ["stage", "microbatch", "slice", "peer"].map((name) => column(copies, name, Int32Array));
    const isSwap = of.some((stage) => stage > 0), isSliced = this.picture.microbatches[1] > 1;
    const activation = (row) => `s${of[row] - 1} m${microbatch[row]}${isSliced ? ` q${slice[row]}` : ""}`;
    const home = (row) => (peer[row] > 0 ? `d${peer[row] - 1}` : "the host");
    const copy = (words, swap) => (row) => ({ words: of[row] > 0 ? swap(row) : words });
    const [fetched, evicted] = [(row) => `fetch ${activation(row)} from ${home(row)}`, (row) => `evict ${activation(row)} to ${home(row)}`];
    this.queues = [
      queue("h2d", isSwap ? "fetches" : "copies to the device", copies, (row) => direction[row] === 0, copy("copy from the host to the device", fetched)),
      queue("d2h", isSwap ? "evicts" : "copies to the host", copies, (row) => direction[row] === 1, copy("copy from the device to the host", evicted)),
      queue("together", "with other devices", collectives, () => true, (row) => ({ words: together[what[row]] + (stage[row] > 0 ? ` of s${stage[row] - 1}` : ""), key: `${what[row]} ${stage[row]}` })),
    ].filter(({ devices }) => devices.some((own) => own.length > 0));
  }

  /// Those of a queue of a device that end after a moment, from the first of them on; some before that may have ended.
  firstInQueue(queue, device, moment) {
    const own = queue.devices[device];
    let low = 0, high = own.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (own[middle].start >= moment - queue.longest) high = middle; else low = middle + 1;
    }
    return low;
  }

  /// The other devices of something that several do together.
  othersOf(part, device) {
    const queue = this.queues.find(({ name }) => name === "together");
    return this.picture.devices.map((_, other) => other).filter((other) => other !== device && queue.devices[other].some((one) => one.key === part.key && one.end === part.end));
  }

  kindOf(task) { return this.picture.kinds[this.kind[task]]; }
  reasonOf(task) { return this.picture.reasons[this.reason[task]]; }
  afterOf(task) { return this.after[task] - 1; }
  tasksOf(device) { return this.picture.devices[device].tasks; }

  /// `2`, or `2.1` where microbatches are cut in slices.
  number(task) {
    return this.picture.microbatches[1] > 1 ? `${this.microbatch[task]}.${this.slice[task]}` : `${this.microbatch[task]}`;
  }

  /// `s1`, or `s1.dispatch`.
  stageName(stage) { return this.picture.parts?.[stage] ?? `s${stage}`; }

  /// The row of a device. Without lanes, it has the number of the device.
  rowOf(device) {
    const row = this.picture.devices.findIndex(({ name }) => name === `d${device}`);
    return row < 0 ? device : row;
  }

  /// Whether a row is a lane, which holds no memory.
  isLane(row) { return this.laneOf(row) !== ""; }

  /// How many devices there are, whatever lanes they have.
  get nOwn() { return this.picture.devices.filter((_, row) => !this.isLane(row)).length; }

  /// The name of its lane, or nothing.
  laneOf(row) { return this.picture.devices[row]?.name?.split(" ")[1] ?? ""; }

  /// The row of the device that has a lane.
  rowOfLane(row) { return this.isLane(row) ? this.rowOf(Number(this.deviceName(row).split(" ")[0].slice(1))) : row; }

  /// `attention`, if the task is of a part.
  partOf(task) { return this.picture.parts?.[this.stage[task]].split(".")[1].split(/[ []/)[0]; }

  /// The parts on compute and on each lane, in the order of their shades: name, shade, and kinds of tasks.
  partNames() {
    const groups = new Map();
    for (let task = 0; this.picture.parts && task < this.n; task++) {
      if (this.never[task]) continue;
      const lane = this.laneOf(this.device[task]);
      if (!groups.has(lane)) groups.set(lane, new Map());
      const [own, name] = [groups.get(lane), this.partOf(task)];
      if (!own.has(name)) own.set(name, { name, shade: this.nth[task], last: this.nth[task], kinds: new Set() });
      const part = own.get(name);
      [part.shade, part.last] = [Math.min(part.shade, this.nth[task]), Math.max(part.last, this.nth[task])];
      part.kinds.add(this.kind[task]);
    }
    return [...groups].map(([lane, own]) => ({ lane, parts: [...own.values()].sort((one, other) => one.shade - other.shade) }));
  }

  /// `d1`, or `d1 link`.
  deviceName(row) { return this.picture.devices[row]?.name ?? `d${row}`; }

  /// `F s1 m2`, as the compiler writes it.
  name(task) {
    const slice = this.picture.microbatches[1] > 1 ? ` q${this.slice[task]}` : "";
    const [stage, part] = this.stageName(this.stage[task]).split(".");
    return `${this.kindOf(task).letters}${part ? `.${part.split(" ")[0]}` : ""} ${stage} m${this.microbatch[task]}${slice}`;
  }

  /// A task by its name and device, such as before a change of the source.
  find(name, device) {
    if (device >= this.nDevices) return -1;
    const [first, count] = this.tasksOf(device);
    for (let task = first; task < first + count; task++) if (this.name(task) === name) return task;
    return -1;
  }

  /// The other task of a pair, or -1.
  partner(task) {
    if (this.share[task] === 1) return task + 1;
    return this.share[task] === 2 ? task - 1 : -1;
  }

  /// The first task of a device that ends after a moment: one past its last, if none does.
  firstEndingAfter(device, moment) {
    const [first, count] = this.tasksOf(device);
    let low = first, high = first + count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end[middle] > moment) high = middle; else low = middle + 1;
    }
    return low;
  }

  /// Transfers that a task reads, or that it makes.
  transfersOf(task) {
    const found = { incoming: [], outgoing: [] };
    for (let index = 0; index < this.nTransfers; index++) {
      if (this.to[index] === task) found.incoming.push(index);
      if (this.from[index] === task) found.outgoing.push(index);
    }
    return found;
  }

  /// Transfers under way between two moments, up to a number of them; null if there are more.
  transfersBetween(from, to, most) {
    let low = 0, high = this.nTransfers;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.leaves[this.byLeaving[middle]] >= from - this.longestTransfer) high = middle; else low = middle + 1;
    }
    const found = [];
    for (let place = low; place < this.nTransfers; place++) {
      const index = this.byLeaving[place];
      if (this.leaves[index] > to) break;
      if (this.arrives[index] < from) continue;
      if (found.length >= most) return null;
      found.push(index);
    }
    return found;
  }

  /// What is done at a moment of a device: a task, or the time between two of them.
  at(device, moment, half) {
    const [first, count] = this.tasksOf(device);
    let task = this.firstEndingAfter(device, moment);
    if (task < first + count && this.start[task] <= moment) {
      if (this.share[task] === 1 && half === 1) task += 1;
      return { task };
    }
    return { idle: { before: task < first + count ? task : -1, after: task > first ? task - 1 : -1 } };
  }

  /// A moment or a duration, in the unit of the costs.
  time(ticks) { return say(ticks / this.perUnit) + this.unit; }
}

/// Memory, counted in one way.
class MemoryModel {
  constructor(memory) {
    const { unit, times, over } = memory.measure;
    this.unit = unit;
    this.factor = times / over;
    this.lanes = memory.devices.map((lane) => ({
      ...lane,
      at: lane.at,
      moments: column(lane.levels, "at", Float64Array),
      parts: column(lane.levels, "parts", Float64Array),
    }));
    const most = (lane) => Math.max(lane.peak * this.factor, lane.limit ?? 0);
    this.most = this.lanes.reduce((sum, lane) => Math.max(sum, most(lane)), 0) || 1;
  }

  /// Parts alive at a moment.
  level(device, moment) {
    const { moments, parts } = this.lanes[device];
    let low = 0, high = moments.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (moments[middle] > moment) high = middle; else low = middle + 1;
    }
    return low > 0 ? parts[low - 1] : 0;
  }

  amount(parts) { return this.say(parts * this.factor); }

  say(amount) {
    if (this.unit === "bytes") return sayBytes(amount);
    return sayUnits(amount);
  }
}

/// A column of a table; 0 in every row, where it was left out.
function column(table, name, Type) {
  const numbers = new Type(table.count);
  if (table[name]) numbers.set(table[name]);
  return numbers;
}

/// A number with at most 6 digits behind the point, and no more than matter.
function say(number) {
  if (number === 0) return "0";
  const digits = Math.min(6, Math.max(0, 5 - Math.floor(Math.log10(Math.abs(number)))));
  const text = number.toFixed(digits);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/// Activations in units: `1 unit`, `4.5 units`.
function sayUnits(units) { return `${say(units)} ${units === 1 ? "unit" : "units"}`; }

/// Three digits and the unit that suits, as the command says it: `36.8 GiB`.
function sayBytes(bytes) { return inUnit([["B", 1], ["KiB", 2 ** 10], ["MiB", 2 ** 20], ["GiB", 2 ** 30], ["TiB", 2 ** 40]], 1024, bytes); }

/// Units of time, in milliseconds.
const TIMES = [["ns", 1e-6], ["us", 1e-3], ["ms", 1], ["s", 1e3]];

/// A time of a figure in three digits, if it is in milliseconds: `9.59 ms`.
function sayTime(time, unit) { return unit.trim() === "ms" && time !== 0 ? inUnit(TIMES, 1000, time) : say(time) + unit; }

/// The first unit in which an amount is less than `most`, or else the last one.
function inUnit(units, most, amount) {
  const digits = (value) => (Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2);
  // 99.96 is rounded to 100, which has a digit more before the point.
  const round = (value) => (Number.isInteger(value) ? `${value}` : value.toFixed(digits(Number(value.toFixed(digits(value))))));
  const [word, size] = units.find(([, size]) => Math.abs(parseFloat(round(amount / size))) < most) ?? units.at(-1);
  return `${round(amount / size)} ${word}`;
}

function percent(part) { return `${(100 * part).toFixed(1)}%`; }
