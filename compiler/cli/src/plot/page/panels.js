// What stands around the canvas: title, buttons, details of what is selected, tip, keys.

/// An element with attributes and children; functions among the attributes are listeners.
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

class Panels {
  constructor(timeline) {
    this.timeline = timeline;
    const button = (label, title, action, id) => h("button", { type: "button", title, "aria-label": title, "data-id": id, click: action }, label);
    this.title = h("h1");
    this.subtitle = h("p", { class: "subtitle" });
    this.cards = h("dl", { class: "cards" });
    this.verdict = h("div", { class: "verdict", role: "status" });
    this.toggles = {
      critical: button("critical path", "Show the critical path (c)", () => timeline.toggle("critical"), "critical"),
      transfers: button("transfers", "Show transfers as arrows (t)", () => timeline.toggle("transfers"), "transfers"),
      memory: button("memory", "Show memory under the tasks (m)", () => timeline.toggle("memory"), "memory"),
    };
    this.measure = h("select", { "aria-label": "What memory is counted in", change: () => {
      timeline.measure = this.measure.selectedIndex;
      timeline.repaint();
      this.sayPeak();
    } });
    this.extent = h("output", { class: "extent", "aria-live": "polite" });
    const tools = h("div", { class: "tools", role: "toolbar", "aria-label": "View" },
      button("−", "Zoom out (−)", () => timeline.zoom(1 / 0.6), "out"),
      button("+", "Zoom in (+)", () => timeline.zoom(0.6), "in"),
      button("fit", "Show everything (0)", () => timeline.fit(), "fit"),
      this.extent, h("span", { class: "space" }), ...Object.values(this.toggles), this.measure,
      button("◐", "Light or dark (d)", () => timeline.theme(), "theme"),
      button("?", "Keys (?)", () => this.showKeys(), "keys"));
    this.canvas = h("canvas", { tabindex: 0, class: "lanes", role: "application", "aria-describedby": "said" });
    const overview = h("canvas", { class: "overview", "aria-hidden": "true" });
    this.tip = h("div", { class: "tip", "aria-hidden": "true", hidden: true });
    this.stage = h("div", { class: "stage" }, overview, this.canvas, this.tip);
    this.said = h("div", { id: "said", class: "hidden", "aria-live": "polite" });
    this.legend = h("div", { class: "legend" });
    this.details = h("section", { class: "details", "aria-label": "Selected" });
    this.tables = h("div", { class: "tables" });
    this.keys = h("dialog", { class: "keys", "aria-label": "Keys" },
      h("h2", {}, "Keys"), h("p", {}, "While the timeline has the focus:"),
      h("dl", {}, KEYS.flatMap(([key, what]) => [h("dt", {}, key.split(" ").map((one) => h("kbd", {}, one))), h("dd", {}, what)])),
      h("form", { method: "dialog" }, h("button", {}, "Close")));
    timeline.root.append(
      h("header", {}, h("div", {}, this.title, this.subtitle), this.cards), this.verdict, tools, this.stage, this.legend,
      this.details, this.tables, this.said, this.keys);
    this.overview = new Overview(timeline, overview);
  }

  showKeys() { this.keys.showModal(); }

  /// Everything that follows from the picture alone.
  fill() {
    const { timeline } = this;
    const { model } = timeline;
    const { picture } = model;
    const { report } = picture;
    const figure = (name, value, note, isBad) => value === null || value === undefined ? [] : [
      h("div", { class: isBad ? "bad" : "" }, h("dt", {}, name), h("dd", {}, value, note ? h("small", {}, note) : null)),
    ];
    const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
    const [microbatches, slices, steps] = picture.microbatches;
    this.title.textContent = picture.title;
    this.subtitle.textContent = [
      report.pipeline && report.schedule ? `schedule ${report.schedule}` : report.target,
      plural(model.nDevices, "device"), plural(report.stages, "stage"),
      microbatches === 1 ? "1 microbatch" : `${microbatches} microbatches`,
      slices > 1 ? `${slices} slices each` : null, steps > 1 ? plural(steps, "step") : null,
    ].filter(Boolean).join(" · ");
    document.title = `${picture.title} · pipec`;
    const bytes = model.memories.find((memory) => memory.unit === "bytes");
    const fullest = bytes && Math.max(...bytes.lanes.map((lane) => lane.peak));
    const overfull = bytes?.lanes.some((lane) => lane.limit !== null && lane.peak > lane.limit);
    this.cards.replaceChildren(
      ...figure("makespan", model.time(picture.makespan)),
      ...figure("bubble", percent(report.bubble_makespan), `longest stage ${percent(report.bubble_longest_stage)}`),
      ...figure("lower bound", say(report.lower_bound) + model.unit, report.gap > 0 ? `gap ${percent(report.gap)}` : "reached"),
      ...figure("peak", `${say(report.peak_activation)} units`, null, model.memories[0].lanes.some((lane) => lane.limit !== null && lane.peak * model.memories[0].factor > lane.limit)),
      ...(bytes ? figure("peak memory", sayBytes(fullest), null, overfull) : []));
    const errors = report.diagnostics.filter((one) => one.severity === "error");
    this.verdict.replaceChildren(...(report.ok ? [] : [h("strong", {}, "rejected"), h("ul", {}, errors.map((one) => h("li", {}, one.message)))]));
    this.verdict.hidden = report.ok;
    this.measure.replaceChildren(...model.memories.map((memory) => h("option", {}, memory.unit)));
    this.measure.hidden = model.memories.length < 2;
    this.measure.selectedIndex = timeline.measure;
    this.canvas.setAttribute("aria-label",
      `Timeline of ${picture.title}: ${model.nDevices} lanes, one per device, ${model.n} tasks, ${model.time(picture.makespan)} long. Arrow keys go from task to task, question mark lists the keys.`);
    this.fillLegend();
    fillTables(this.tables, timeline);
    this.sayToggles();
    this.sayTask(-1);
  }

  fillLegend() {
    const { model } = this.timeline;
    const used = new Set(model.kind);
    const swatch = (style, text, name) => h("span", { class: "key" }, h("i", { class: name ?? "", style }), text);
    const kinds = model.picture.kinds.map((kind, index) => used.has(index) && swatch(
      `background: linear-gradient(90deg, ${shades(kind.colour, model.nStages).map(({ fill }, nth, all) =>
        `${fill} ${(100 * nth) / all.length}% ${(100 * (nth + 1)) / all.length}%`).join(", ")})`,
      `${kind.letters} ${kind.words}`));
    const classes = [...new Set(model.class)].map((index) => swatch(`background: var(--${model.picture.classes[index]})`, `${model.picture.classes[index]} sent`, "wire"));
    this.legend.replaceChildren(...kinds.filter(Boolean), swatch("", "idle", "idle"), swatch("background: var(--accent)", "critical path", "wire"), ...classes,
      swatch("", "memory", "area"), ...(model.nStages > 1 ? [h("span", { class: "note" }, "lighter: later stages of the device")] : []),
      ...(model.hasPairs ? [h("span", { class: "note" }, "one above the other: two tasks share the device")] : []),
      ...(model.goesOn.includes(1) ? [h("span", { class: "note" }, "with a bridge: one task of both devices")] : []));
  }

  sayToggles() {
    for (const [name, button] of Object.entries(this.toggles)) {
      button.setAttribute("aria-pressed", String(this.timeline.show[name]));
    }
  }

  sayView() {
    const { view, model } = this.timeline;
    this.extent.textContent = `${model.time(Math.max(0, view.from))} – ${model.time(Math.min(model.makespan, view.to))}`;
  }

  jump(task, text) {
    return h("button", { type: "button", class: "jump", click: () => {
      this.timeline.select(task);
      this.canvas.focus({ preventScroll: true });
    } }, text ?? `${this.timeline.model.name(task)} of d${this.timeline.model.device[task]}`);
  }

  /// What a task waited for, as a sentence with a link.
  waited(task) {
    const { model } = this.timeline;
    const after = model.afterOf(task);
    const reason = model.reasonOf(task);
    if (reason === "nothing") return ["nothing: the step begins"];
    if (reason === "copy") return ["a copy between its device and the host"];
    if (after < 0) return ["weights that come together as the step begins"];
    const same = model.device[after] === model.device[task];
    const link = this.jump(after);
    if (reason === "device") return same ? ["its device, which was busy with ", link] : ["another of its devices, busy with ", link];
    if (reason === "weights") return ["weights, which came together behind ", link];
    if (reason === "input") return [link, ", which it reads"];
    const way = model.start[task] - model.end[after];
    return [link, way > 0 ? `, and ${model.time(way)} for what it sent` : ", which it reads"];
  }

  facts(rows) { return h("dl", { class: "facts" }, rows.flatMap(([name, ...value]) => [h("dt", {}, name), h("dd", {}, ...value)])); }

  /// Details of the selected task.
  sayTask(task) {
    const { timeline } = this;
    const { model } = timeline;
    if (task < 0) {
      this.details.replaceChildren(h("p", { class: "hint" }, "Click a task, or focus the timeline and use the arrow keys: it says what the task waited for. Click memory to see what makes its peak. Wheel or + and − zoom, drag moves, ? lists the keys."));
      this.said.textContent = "";
      return;
    }
    const { incoming, outgoing } = timeline.transfersOf(task);
    const size = (index) => (model.bytes[index] > 0 ? ` (${sayBytes(model.bytes[index])})` : "");
    const list = (indices, end) => indices.flatMap((index, place) => [place > 0 ? ", " : "", this.jump(end[index]), size(index)]);
    const memory = timeline.memory;
    const partner = model.partner(task);
    const kind = model.kindOf(task);
    const words = `${kind.words} of stage ${model.stage[task]}, microbatch ${model.microbatch[task]}` +
      (model.picture.microbatches[1] > 1 ? `, slice ${model.slice[task]}` : "");
    const rows = [
      ["device", `d${model.device[task]}`],
      ["start", model.time(model.start[task])], ["end", model.time(model.end[task])],
      ["duration", model.time(model.end[task] - model.start[task])],
      ["waited for", ...this.waited(task)],
      ...(partner >= 0 ? [["shares its device with", this.jump(partner, model.name(partner))]] : []),
      ...(incoming.length > 0 ? [["receives from", ...list(incoming, model.from)]] : []),
      ...(outgoing.length > 0 ? [["sends to", ...list(outgoing, model.to)]] : []),
      ["memory alive", memory.amount(memory.level(model.device[task], model.start[task]))],
      ...(model.isCritical[task] ? [["critical path", "yes: if it took longer, the step would"]] : []),
    ];
    this.details.replaceChildren(h("h2", {}, model.name(task), h("small", {}, words)), this.facts(rows));
    this.said.textContent = `${model.name(task)}, ${words}, device ${model.device[task]}, from ${model.time(model.start[task])} to ${model.time(model.end[task])}, waited for ${h("p", {}, ...this.waited(task)).textContent}`;
  }

  /// What is alive at the peak of a device.
  sayPeak() {
    const { timeline } = this;
    if (timeline.peakOf < 0) return this.sayTask(timeline.selected);
    const { memory, model } = timeline;
    const lane = memory.lanes[timeline.peakOf];
    const time = (moment, other) => (moment === undefined ? other : model.time(moment));
    const rows = lane.alive.map((one) => h("tr", {}, h("th", { scope: "row" }, lifespanName(one, model)), h("td", {}, time(one.since, "before the step")), h("td", {}, time(one.until, "beyond it")), h("td", {}, memory.amount(one.parts))));
    const sum = lane.alive.reduce((total, one) => total + one.parts, 0);
    const limit = lane.limit === null ? "" : ` of ${memory.say(lane.limit)}`;
    this.details.replaceChildren(
      h("h2", {}, `Peak of d${timeline.peakOf}`, h("small", {}, `${memory.amount(lane.peak)}${limit}, at ${model.time(lane.at)}: what is alive then`)),
      h("div", { class: "scroll" }, h("table", { class: "peak" }, h("thead", {}, h("tr", {}, ["", "since", "until", "takes"].map((text) => h("th", { scope: "col" }, text)))),
        h("tbody", {}, rows), h("tfoot", {}, h("tr", {}, h("th", { scope: "row" }, `${lane.alive.length} together`), h("td"), h("td"), h("td", {}, memory.amount(sum)))))));
    this.said.textContent = `Peak of device ${timeline.peakOf}: ${memory.amount(lane.peak)} at ${model.time(lane.at)}`;
    return undefined;
  }

  /// What is under the pointer.
  sayTip(found, x, y) {
    const lines = this.tipLines(found);
    this.tip.hidden = lines.length === 0;
    if (lines.length === 0) return;
    const [head, ...rest] = lines;
    this.tip.replaceChildren(h("strong", {}, head), ...rest.map((line) => h("div", {}, line)));
    const { offsetWidth, offsetHeight } = this.tip;
    const below = y + this.canvas.offsetTop + 18;
    this.tip.style.left = `${Math.max(4, Math.min(x + 14, this.timeline.width - offsetWidth - 6))}px`;
    this.tip.style.top = `${below + offsetHeight > this.stage.clientHeight + 60 ? below - offsetHeight - 30 : below}px`;
  }

  tipLines(found) {
    const { timeline } = this;
    const { model, memory } = timeline;
    if (found.memory !== undefined) {
      const lane = memory.lanes[found.memory];
      const limit = lane.limit === null ? [] : [`limit ${memory.say(lane.limit)}`];
      return [`${memory.amount(memory.level(found.memory, found.moment))} alive`, `d${found.memory} at ${model.time(found.moment)}`, `peak ${memory.amount(lane.peak)} at ${model.time(lane.at)}`, ...limit, "click: what makes the peak"];
    }
    if (found.task !== undefined) {
      const { task } = found;
      const span = `${model.time(model.start[task])} – ${model.time(model.end[task])}, takes ${model.time(model.end[task] - model.start[task])}`;
      return [`${model.name(task)} on d${found.device}`, span, `waited for ${h("p", {}, ...this.waited(task)).textContent}`];
    }
    if (!found.idle) return [];
    const { before, after } = found.idle;
    const [from, to] = [after >= 0 ? model.end[after] : 0, before >= 0 ? model.start[before] : model.makespan];
    const span = `${model.time(from)} – ${model.time(to)}, ${model.time(to - from)} long`;
    const why = before < 0 ? "cool-down: its last task has ended"
      : `${after < 0 ? "warm-up: " : ""}${model.name(before)} waits for ${h("p", {}, ...this.waited(before)).textContent}`;
    return [`d${found.device} is idle`, span, why];
  }
}
