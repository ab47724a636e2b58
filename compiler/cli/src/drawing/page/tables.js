// What is said of a picture: its head, and tables under the timeline: where idle time goes, figures, devices, and all tasks as text.

/// Causes of idle time, in the order in which they are stacked, as the page says them.
const CAUSES = [
  ["warm_up", "warm-up", "before the first task"],
  ["waiting", "waiting", "for what another device computes"],
  ["communication", "communication", "what it reads is on its way"],
  ["weights", "weights", "that devices divide come together"],
  ["copies", "copies", "to and from the device"],
  ["late", "late", "the next task could have started"],
  ["cool_down", "cool-down", "behind the last task"],
  ["closing", "end of the step", "gradients are added up, weights updated"],
];
/// More tasks are not written out as text.
const TEXT = 20000;

function fillTables(root, timeline) {
  const { model, models, diff } = timeline;
  if (model.stop) return root.replaceChildren(...stopTables(timeline), textTable(models));
  const own = diff ? tablesOfDifference(timeline) : [figureTable(model), deviceTable(timeline)];
  const [first, ...rest] = own;
  return root.replaceChildren(...(diff ? [first] : []), bubbleTable(models), ...(diff ? [] : [first]), ...rest, textTable(models));
}

/// Title, subtitle and figures.
function headOfPicture(model) {
  const { picture } = model;
  const { report } = picture;
  const [microbatches, slices, steps] = picture.microbatches;
  const bytes = model.memories.find((memory) => memory.unit === "bytes");
  const isOver = (memory) => memory.lanes.some((lane) => lane.limit !== null && lane.peak * memory.factor > lane.limit);
  return {
    title: picture.title,
    subtitle: [
      report.pipeline && report.schedule ? `schedule ${report.schedule}` : report.target,
      plural(model.nOwn, "device"), plural(report.stages, "stage"), plural(microbatches, "microbatch", "es"),
      slices > 1 && `${slices} slices each`, steps > 1 && plural(steps, "step"),
    ],
    cards: [
      ["makespan", sayTime(picture.makespan / model.perUnit, model.unit)],
      ["mean bubble", percent(report.bubble_mean), `busiest device ${percent(report.bubble_makespan)}`],
      ["lower bound", sayTime(report.lower_bound, model.unit), (report.gap > 0 ? `gap ${percent(report.gap)}` : "reached") + (picture.form_of_bound ?? "")],
      ["peak", sayUnits(report.peak_activation), null, isOver(model.memories[0])],
      ...(bytes ? [["peak memory", sayBytes(Math.max(...bytes.lanes.map((lane) => lane.peak))), null, isOver(bytes)]] : []),
    ],
  };
}

function plural(count, noun, ending = "s") { return `${count} ${noun}${count === 1 ? "" : ending}`; }

function table(heads, rows, attributes = {}) {
  const head = h("thead", {}, h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text))));
  const cells = ([first, ...rest]) => h("tr", {}, h("th", { scope: "row" }, first), rest.map((cell) => h("td", {}, cell)));
  return h("div", { class: "scroll" }, h("table", attributes, head, h("tbody", {}, rows.map(cells))));
}

/// A bar for every device, of every version, and a table of the same.
function bubbleTable(models) {
  const longest = Math.max(...models.map((model) => model.makespan));
  const all = models[0].picture.devices.flatMap((_, index) => models.map((model) => ({ model, index, device: model.picture.devices[index] })));
  const sum = (device, cause) => device.idle.reduce((total, one) => total + (one.cause === cause ? one.time : 0), 0);
  const causes = CAUSES.filter(([cause]) => all.some(({ device }) => sum(device, cause) > 0));
  const idle = ({ model, device }) => model.makespan - device.busy;
  const name = ({ model, index }) => (model.version ? `${model.deviceName(index)} ${model.version}` : model.deviceName(index));
  // Where devices are hardly idle, bars show nothing else.
  const most = Math.max(...all.map((one) => idle(one) / longest));
  const isSmall = most > 0 && most < 0.3;
  const part = (model, name, ticks, words) => ticks > 0 && h("i", { class: `cause ${name}`, style: `width: ${(100 * ticks) / longest / (isSmall ? most : 1)}%`, title: `${words}: ${model.time(ticks)}, ${percent(ticks / model.makespan)}` });
  const bars = all.map((one) => {
    const { model, device } = one;
    const share = percent(idle(one) / model.makespan);
    const classes = `bar${models.length > 1 ? " versions" : ""}${model === models[models.length - 1] ? "" : " above"}`;
    return h("div", { class: classes }, h("b", {}, name(one)),
      h("span", { role: "img", "aria-label": `device ${name(one).slice(1)}: idle ${share}` }, isSmall ? null : part(model, "busy", device.busy, "in tasks"), causes.map(([cause, words]) => part(model, cause, sum(device, cause), words))),
      h("em", {}, share));
  });
  const waits = (model, device) => {
    const others = device.idle.filter((one) => one.cause === "waiting").sort((one, other) => other.time - one.time);
    return others.map((one) => `${model.deviceName(one.device)} ${model.time(one.time)}`).join(", ");
  };
  const rows = all.map((one) => [
    name(one), one.model.time(one.device.busy), ...causes.map(([cause]) => (sum(one.device, cause) > 0 ? one.model.time(sum(one.device, cause)) : "")),
    one.model.time(idle(one)), waits(one.model, one.device),
  ]);
  return h("section", { class: "bubble" }, h("h2", {}, "Where idle time goes", h("small", {}, isSmall ? `of each device; the longest bar is ${percent(most)} of the ${models.length > 1 ? "longest " : ""}makespan` : "of each device, over the whole makespan")),
    h("div", { class: "legend" }, isSmall ? null : h("span", { class: "key" }, h("i", { class: "cause busy" }), "in tasks"),
      causes.map(([cause, words, note]) => h("span", { class: "key", title: note }, h("i", { class: `cause ${cause}` }), words))),
    h("div", { class: all.length > 24 ? "bars tight" : "bars" }, bars),
    h("details", {}, h("summary", {}, "as a table"),
      table(["device", "in tasks", ...causes.map(([, words]) => words), "idle", "waiting for"], rows)));
}

function figureTable(model) {
  const { report } = model.picture;
  const time = (value) => sayTime(value, model.unit);
  const path = (report.critical_path ?? []).map((part) => `${part.kind} ${time(part.time)}`).join(", ");
  const valid = { every: "every number of microbatches", allowed: "every allowed number of microbatches" };
  const rows = [
    ["makespan", time(report.makespan), "first start to last end"],
    ["lower bound", time(report.lower_bound), `${report.lower_bound_reason}${model.picture.form_of_bound ?? ""}`],
    ["gap", percent(report.gap), "how much longer than the bound"],
    ["mean bubble", percent(report.bubble_mean), "of the makespan, the mean over all devices"],
    ["bubble, busiest device", percent(report.bubble_makespan), "of the makespan"],
    ["longest span", time(report.longest_stage), `from the first start to the last end of one device; bubble of the busiest device ${percent(report.bubble_longest_stage)}`],
    ["critical path", `${model.critical.length} tasks`, path],
    ["peak", sayUnits(report.peak_activation), report.bound_activation === null ? "of activations, exact" : `of activations, exact; at most ${say(report.bound_activation)} by the lifespans of a block`],
    ["tasks", `${report.tasks}`, report.instructions ? `${report.instructions} instructions` : ""],
    ["transfers", `${model.nTransfers}`, report.collectives ? `and ${report.collectives} collectives` : "between devices"],
    ["holds for", typeof report.valid_for === "string" ? valid[report.valid_for] ?? report.valid_for : `${model.picture.microbatches[0]} microbatches`, report.deadlock_free ? "free of deadlock under unbuffered transfers" : ""],
  ];
  return h("section", { class: "figures" }, h("h2", {}, "Figures"), table(["", "", ""], rows, { class: "wide" }));
}

function deviceTable(timeline) {
  const { model } = timeline;
  const memories = model.memories;
  const heads = ["device", "stages", "first start", "last end", "in tasks", "idle", ...memories.flatMap(({ unit }) => [`peak, ${unit}`, "limit"])];
  const rows = model.picture.report.per_device.map((row) => [row, model.rowOf(row.device)]).map(([row, device]) => [
    model.deviceName(device), model.picture.devices[device].stages.map((stage) => model.stageName(stage)).join(" "),
    ...[row.first_start, row.last_end, row.busy].map((time) => sayTime(time, model.unit)),
    percent(1 - model.picture.devices[device].busy / model.makespan),
    ...memories.flatMap((memory) => [
      h("button", { type: "button", class: "jump", title: "What makes this peak", click: () => {
        timeline.measure = memories.indexOf(memory);
        timeline.panels.measure.selectedIndex = timeline.measure;
        timeline.peakOf = -1;
        timeline.showPeak(device);
        timeline.canvas.scrollIntoView({ block: "nearest" });
      } }, memory.amount(memory.lanes[device].peak)),
      memory.lanes[device].limit === null ? "" : memory.say(memory.lanes[device].limit),
    ]),
  ]);
  return h("section", { class: "devices" }, h("h2", {}, "Devices"), table(heads, rows));
}

/// All tasks as text, written when it is asked for.
function textTable(models) {
  const list = h("div", { class: "text" });
  const [model] = models;
  const span = (model, task) => model.never[task] ? "never" : `${say(model.start[task] / model.perUnit)}–${say(model.end[task] / model.perUnit)}`;
  const write = () => {
    if (list.childElementCount > 0) return;
    if (model.n > TEXT) {
      list.append(h("p", {}, `${model.n} tasks are too many to be read here; pipec build --emit picture writes them.`));
      return;
    }
    model.picture.devices.forEach(({ tasks: [first, count] }, device) => {
      const said = Array.from({ length: count }, (_, place) => first + place).map((task) => `${model.name(task)} ${models.map((one) => (one.version ? `${one.version} ` : "") + span(one, task)).join(", ")}`);
      list.append(h("p", {}, h("b", {}, `d${device}: `), said.join("; ")));
    });
  };
  return h("details", { class: "text", toggle: write }, h("summary", {}, "All tasks as text"), list);
}
