// A plan and its run: how a task differs, where the time between them went, which costs were wrong, and what would
// have been shorter.

/// So many rows of late starts are told apart.
const DEVICES = 12;

/// Milliseconds as `pipec diff` prints them: all in the unit of the run's time, which has five digits, so that their
/// decimal points align.
function millis(diff) {
  const most = diff.measured_ms < 10_000 ? Math.min(diff.measured_ms, 999) : diff.measured_ms;
  const [unit, long] = TIMES.findLast(([, size]) => size <= most) ?? ["ms", 1];
  const decimals = Math.max(0, 5 - Math.max(1, Math.floor(Math.log10(diff.measured_ms / long)) + 1));
  const plain = (ms) => (ms / long).toFixed(decimals);
  return { unit, plain, signed: (ms) => signedText(plain(Math.abs(ms)), ms) };
}

/// `+1.5`, `−0.25`, and `0` for what is nothing.
function signedText(text, number) { return (parseFloat(text) === 0 ? "" : number > 0 ? "+" : "−") + text; }


/// Title, subtitle and figures.
function headOfDifference({ model, diff }) {
  const [microbatches, slices] = model.picture.microbatches;
  const ms = (time) => sayTime(time, "ms");
  const longer = (time, than) => (than > 0 ? signedText(percent(Math.abs(time / than - 1)), time - than) : null);
  const best = diff.better.reduce((best, one) => (best === null || one.makespan_ms < best.makespan_ms ? one : best), null);
  const [shortest, longest] = diff.range_ms;
  return {
    title: `${diff.target}: plan and run`,
    subtitle: [
      diff.trace, diff.steps.length === 1 ? `step ${diff.steps[0]}` : `medians over ${diff.steps.length} steps${diff.left_out > 0 ? ` of ${diff.steps.length + diff.left_out}` : ""}`,
      `costs from ${diff.costs_from}${diff.unit_ms === undefined ? "" : `, a unit taken for ${ms(diff.unit_ms)}`}`,
      plural(model.nOwn, "device"), plural(new Set(model.picture.devices.flatMap((device) => device.stages)).size, "stage"),
      plural(microbatches, "microbatch", "es"), slices > 1 && `${slices} slices each`,
    ],
    cards: [
      ["plan", ms(diff.plan_ms)],
      ["plan, refitted costs", ms(diff.refitted_ms), longer(diff.refitted_ms, diff.plan_ms)],
      ["run", ms(diff.measured_ms), diff.steps.length > 1 ? `steps take ${ms(shortest)} to ${ms(longest)}` : longer(diff.measured_ms, diff.plan_ms)],
      ...(best ? [["shortest order found", ms(best.makespan_ms), best.gain_ms > 0 ? `${percent(best.gain_percent / 100)} shorter than the refitted plan` : "no shorter than the refitted plan"]] : []),
    ],
  };
}

/// A task in every version, and how far the last one is from the first.
function taskDifference(panels, task) {
  const { models } = panels.timeline;
  const [plan, run] = [models[0], models[models.length - 1]];
  const figures = [
    ["start", (model) => model.start[task]], ["end", (model) => model.end[task]],
    ["duration", (model) => model.end[task] - model.start[task]],
    ["late", (model) => model.late[task]],
  ];
  const rows = figures.map(([name, of]) => h("tr", {}, h("th", { scope: "row" }, name), models.map((model) => h("td", {}, model.time(of(model)))),
    h("td", {}, signedText(run.time(Math.abs(of(run) - of(plan))), of(run) - of(plan)))));
  const waited = h("tr", { class: "waited" }, h("th", { scope: "row" }, "waited for"), models.map((model) => h("td", {}, panels.waitedFor(task, model))), h("td"));
  const heads = ["", ...models.map((model) => model.version), "difference"];
  return h("div", { class: "scroll" }, h("table", { class: "versions" }, h("thead", {}, h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, rows, waited)));
}

function tipOfDifference(panels, task) {
  const { models, model } = panels.timeline;
  const [plan, run] = [models[0], models[models.length - 1]];
  const duration = (model) => model.end[task] - model.start[task];
  const line = (one) => `${one.version}: ${one.time(one.start[task])} – ${one.time(one.end[task])}, takes ${one.time(duration(one))}`;
  const by = (ticks, more, less) => `${run.time(Math.abs(ticks))} ${ticks < 0 ? less : more}`;
  return [
    ...models.map(line),
    `starts ${by(run.start[task] - plan.start[task], "later", "earlier")}, takes ${by(duration(run) - duration(plan), "longer", "less")}`,
    `in the ${model.version} it waited for ${textOf(panels.waited(task, model))}`,
  ];
}

function tablesOfDifference(timeline) {
  return [wayTable(timeline), lossTable(timeline), costTable(timeline), betterTable(timeline.diff), versionTable(timeline)].filter(Boolean);
}

/// The rows from the plan to the run: sums, and between two of them what adds up to their difference.
function wayOf(diff) {
  const groups = [];
  const sum = (parts) => parts.reduce((total, one) => total + one.ms, 0);
  const isLate = (part) => part.device !== undefined;
  const key = (part) => (isLate(part) ? `late starts on d${part.device}` : part.kind ? `${part.what} of ${part.kind}` : part.what);
  for (const part of diff.parts) {
    const group = groups.find((one) => one.name === key(part));
    if (group) group.parts.push(part);
    else groups.push({ name: key(part), what: part.what, parts: [part] });
  }
  const row = (group) => ({ ...group, ms: sum(group.parts), note: noteOf(group, millis(diff)) });
  const of = (...words) => groups.filter((group) => words.includes(group.what)).map(row);
  const late = of("late_input", "late_start").sort((one, other) => Math.abs(other.ms) - Math.abs(one.ms));
  const [large, small] = [late.slice(0, DEVICES), late.slice(DEVICES)];
  large.sort((one, other) => one.parts[0].device - other.parts[0].device);
  if (small.length > 0) large.push(row({ name: `late starts on ${small.length} others`, what: "late_start", parts: small.flatMap((one) => one.parts) }));
  return [
    { name: "plan", total: diff.plan_ms, note: diff.unit_ms === undefined ? "" : "with as much work as was measured" },
    ...of("cost", "pairs", "sharing", "transfers"), { name: "plan, refitted costs", total: diff.refitted_ms },
    ...of("variation"), ...large, { name: "run", total: diff.measured_ms },
  ];
}

/// What a row is made of.
function noteOf({ what, parts }, { plain, signed }) {
  const figures = ({ planned_ms: planned, measured_ms: measured }) => (measured === undefined ? "" : `${planned === undefined ? "" : `${plain(planned)} → `}${plain(measured)}`);
  if (what === "transfers") return figures(parts[0]);
  if (what === "pairs") return "tasks that share a device";
  if (what === "sharing") return "what tasks on one GPU wait for each other is in measured times";
  if (what === "variation") return "of single tasks around the usual";
  if (what === "cost") {
    const largest = parts.filter((part) => part.stage !== undefined).sort((one, other) => Math.abs(other.ms) - Math.abs(one.ms)).slice(0, 2);
    return largest.map((part) => `s${part.stage} ${signed(part.ms)}`).join(", ") + (parts.length > 2 && largest.length > 0 ? ", .." : "");
  }
  const late = (word) => signed(parts.reduce((total, part) => total + (part.what === word ? part.ms : 0), 0));
  return `inputs ${late("late_input")}, device ${late("late_start")}`;
}

/// Where each millisecond went: every bar begins where the one above it ends.
function wayTable({ diff }) {
  const { unit, plain, signed } = millis(diff);
  const rows = wayOf(diff);
  let at = 0;
  for (const row of rows) {
    row.from = row.total === undefined ? at : 0;
    at = row.total ?? at + row.ms;
    row.to = at;
  }
  const steps = rows.flatMap((row) => (row.total === undefined ? [row.from, row.to] : [row.to]));
  const [least, most] = [Math.min(...steps), Math.max(...steps)];
  // What all bars share says nothing: the axis begins a little before the shortest.
  const begin = Math.max(0, least - 0.15 * (most - least));
  const place = (moment) => (most > begin ? (100 * Math.max(0, moment - begin)) / (most - begin) : 0);
  const bar = ({ total, from, to }) => {
    const [left, right] = [place(Math.min(from, to)), place(Math.max(from, to))];
    return h("i", { class: total !== undefined ? "total" : to > from ? "longer" : "shorter", style: `left: ${left}%; width: max(2px, ${right - left}%)` });
  };
  const body = rows.map((row) => h("tr", { class: row.total === undefined ? "" : "sum" }, h("th", { scope: "row" }, row.name),
    h("td", {}, row.total === undefined ? signed(row.ms) : plain(row.total)), h("td", { class: "track" }, h("span", { "aria-hidden": "true" }, bar(row))), h("td", {}, row.note ?? "")));
  const beside = [["behind the last task", diff.behind_ms, "sums of gradients and updates"], ...(diff.between_ms === null ? [] : [["between two steps", diff.between_ms, ""]])];
  body.push(...beside.map(([name, time, note]) => h("tr", { class: "beside" }, h("th", { scope: "row" }, name), h("td", {}, plain(time)), h("td"), h("td", {}, note))));
  const head = h("thead", {}, h("tr", {}, ["", unit, `${plain(begin)} to ${plain(most)} ${unit}`, ""].map((text) => h("th", { scope: "col" }, text))));
  return h("section", { class: "way" }, h("h2", {}, "Where each millisecond went", h("small", {}, "what each part adds to the makespan, from the plan to the run")),
    h("div", { class: "scroll" }, h("table", {}, head, h("tbody", {}, body))));
}

/// Tasks of the run's critical path that cost most.
function lossTable(timeline) {
  const { diff, model } = timeline;
  if (diff.losses.length === 0) return null;
  const { unit, signed } = millis(diff);
  const rows = diff.losses.map((loss) => {
    const task = model.find(loss.task, loss.device);
    const link = task < 0 ? loss.task : timeline.panels.jump(task, loss.task);
    return [link, `d${loss.device}`, signed(loss.longer_ms), signed(loss.later_ms), loss.waited_for === null ? "" : loss.waited_for];
  });
  return h("section", { class: "losses" }, h("h2", {}, "What cost most", h("small", {}, "on the critical path of the run")),
    table(["", "device", `took longer, ${unit}`, `started later, ${unit}`, "waited for"], rows));
}

/// Costs that the plan has otherwise, and what a command line needs to have them right.
function costTable({ diff, model }) {
  const { unit, plain, signed } = millis(diff);
  const wrong = diff.parts.filter((part) => part.what === "cost" && part.measured_ms !== undefined).sort((one, other) => Math.abs(other.ms) - Math.abs(one.ms));
  const ratio = (part) => (part.planned_ms > 0 ? `× ${(part.measured_ms / part.planned_ms).toFixed(2)}` : "");
  const rows = wrong.map((part) => [h("span", {}, h("b", {}, part.kind), ` of s${part.stage}`), plain(part.planned_ms), plain(part.measured_ms), ratio(part), signed(part.ms)]);
  return h("section", { class: "costs" }, h("h2", {}, "Costs", h("small", {}, wrong.length > 0 ? `of one task, in ${unit}; those first that the makespan feels most` : diff.parts.some((part) => part.what === "cost") ? "told by kind above: there are too many stages" : "those of the plan were right")),
    rows.length > 0 ? table(["", "plan", "run", "", "adds to the makespan"], rows) : null,
    h("p", {}, "Refitted, for ", h("code", {}, "check"), ", ", h("code", {}, "search"), " and ", h("code", {}, "plot"), ":"), quoted(`--cost ${diff.cost}`));
}

/// What other orders would take under the refitted costs.
function betterTable(diff) {
  const { unit, plain, signed } = millis(diff);
  const names = { reorder: "the same schedule, reordered for these costs" };
  const words = (one) => names[one.what] ?? (one.proved_optimal ? "the shortest order in the same memory (proved)" : "the shortest order that was found in the same memory");
  const rows = diff.better.map((one) => [words(one), plain(one.makespan_ms), one.gain_ms > 0 ? `${signed(-one.gain_ms)} or ${one.gain_percent.toFixed(1)}%` : "no shorter"]);
  const found = diff.better.find((one) => one.source);
  return h("section", { class: "better" }, h("h2", {}, "What would have been better", h("small", {}, "under the refitted costs")),
    rows.length > 0 ? table(["", `makespan, ${unit}`, `beside ${plain(diff.refitted_ms)}`], rows) : h("p", { class: "hint" }, "no other order was looked for, or found"),
    found ? h("details", {}, h("summary", {}, "its source"), quoted(found.source)) : null);
}

/// A text to be copied.
function quoted(text) {
  const copy = h("button", { type: "button", click: async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(code);
      copy.textContent = "selected";
    }
  } }, "copy");
  const code = h("code", {}, text);
  return h("div", { class: "quoted" }, h("pre", { tabindex: 0 }, code), copy);
}

/// What devices did, version by version.
function versionTable({ models }) {
  const [plan, run] = [models[0], models[models.length - 1]];
  const late = (device) => device.idle.reduce((total, one) => total + (one.cause === "late" ? one.time : 0), 0);
  const idle = (model, device) => percent(1 - model.picture.devices[device].busy / model.makespan);
  const first = (model, device) => { const [first, count] = model.tasksOf(device); return count > 0 ? model.time(model.start[first]) : ""; };
  const last = (model, device) => { const [first, count] = model.tasksOf(device); return count > 0 ? model.time(model.end[first + count - 1]) : ""; };
  const heads = ["device", "stages", ...["first start", "last end", "in tasks", "idle"].flatMap((name) => models.map((model) => `${name}, ${model.version}`)), "late", "peak"];
  const memory = run.memories[run.memories.length - 1];
  const rows = plan.picture.devices.map((device, index) => [
    `d${index}`, device.stages.map((stage) => `s${stage}`).join(" "),
    ...models.map((model) => first(model, index)), ...models.map((model) => last(model, index)),
    ...models.map((model) => model.time(model.picture.devices[index].busy)), ...models.map((model) => idle(model, index)),
    run.time(late(run.picture.devices[index])), memory.amount(memory.lanes[index].peak),
  ]);
  return h("section", { class: "devices" }, h("h2", {}, "Devices"), table(heads, rows));
}
