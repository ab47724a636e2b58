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
    // A button is called by its word, so that one can say it; a sign is called by what it does.
    const button = (label, title, action, id) => h("button", { type: "button", title, "aria-label": !/[a-z]/.test(label) && title, "data-id": id, click: action }, label);
    this.title = h("h1");
    this.subtitle = h("p", { class: "subtitle" });
    this.cards = h("dl", { class: "cards" });
    this.verdict = h("div", { class: "verdict", role: "status" });
    this.toggles = {
      critical: button("critical path", "Show the critical path (c)", () => timeline.toggle("critical"), "critical"),
      transfers: button("transfers", "Show transfers as arrows (t)", () => timeline.toggle("transfers"), "transfers"),
      queues: button("queues", "Show copies and what devices do together (q)", () => timeline.toggle("queues"), "queues"),
      memory: button("memory", "Show memory under the tasks (m)", () => timeline.toggle("memory"), "memory"),
      source: button("source", "Show the source that tasks come from (o)", () => timeline.toggle("source"), "source"),
    };
    this.measure = h("select", { "aria-label": "What memory is counted in", change: () => {
      timeline.measure = this.measure.selectedIndex;
      timeline.repaint();
      this.sayPeak();
    } });
    this.versions = h("span", { class: "switch", role: "group", "aria-label": "Versions (v)" });
    this.save = button("save figure", "Download the picture, as pipec plot -o x.svg draws it", () => timeline.saveFigure(), "save");
    this.extent = h("output", { class: "extent", "aria-live": "polite" });
    const tools = h("div", { class: "tools", role: "toolbar", "aria-label": "View" },
      button("−", "Zoom out (−)", () => timeline.zoom(1 / 0.6), "out"),
      button("+", "Zoom in (+)", () => timeline.zoom(0.6), "in"),
      button("fit", "Show everything (0)", () => timeline.fit(), "fit"),
      this.extent, button("sums", "Sums of the time in view (r); of any other range, drag with Shift", () => timeline.measureRange(timeline.view.from, timeline.view.to), "sums"), h("span", { class: "space" }), this.versions, ...Object.values(this.toggles), this.measure,
      button("find", "Find tasks (/)", () => this.finder.open(), "find"), this.save,
      button("◐", "Light or dark (b)", () => timeline.theme(), "theme"),
      button("?", "Keys (?)", () => this.showKeys(), "keys"));
    this.canvas = h("canvas", { tabindex: 0, class: "lanes", role: "application", "aria-describedby": "said" });
    const overview = h("canvas", { class: "overview", "aria-hidden": "true" });
    this.tip = h("div", { class: "tip", "aria-hidden": "true", hidden: true });
    this.stage = h("div", { class: "stage" }, overview, this.canvas, this.tip);
    this.listing = new Listing(timeline);
    this.finder = new Finder(timeline);
    this.scene = h("div", { class: "scene" }, this.stage, this.listing.root);
    this.said = h("div", { id: "said", class: "hidden", "aria-live": "polite" });
    this.legend = h("div", { class: "legend" });
    this.details = h("section", { class: "details", "aria-label": "Selected" });
    this.tables = h("div", { class: "tables" });
    this.keyList = h("dl");
    this.letters = h("select", { change: () => timeline.useLetters(this.letters.value) });
    this.keys = h("dialog", { class: "keys", "aria-label": "Keys" },
      h("h2", {}, "Keys"), h("p", {}, "Arrows, Enter, Home and End while the timeline has the focus."),
      h("label", {}, "Single letters and signs are keys ", this.letters), this.keyList,
      h("form", { method: "dialog" }, h("button", {}, "Close")));
    timeline.root.append(
      h("header", {}, h("div", {}, this.title, this.subtitle), this.cards), this.verdict, tools, this.finder.root, this.scene, this.legend,
      this.details, this.tables, this.said, this.keys);
    this.overview = new Overview(timeline, overview);
    this.offerLetters();
    this.sayFigure = figureDialog(timeline.root);
  }

  /// Offers where letters are keys, the most first; what was chosen before holds.
  offerLetters(...most) {
    const words = { everywhere: "wherever the focus is", timeline: "while the timeline has the focus", nowhere: "nowhere" };
    const offered = [...most, "timeline", "nowhere"];
    this.letters.replaceChildren(...offered.map((value) => h("option", { value }, words[value])));
    const chosen = lettersChosen();
    this.timeline.letters = this.letters.value = offered.includes(chosen) ? chosen : offered[0];
  }

  showKeys() {
    const { model, models } = this.timeline;
    const isThere = { versions: models.length > 1, queues: model.queues.length > 0, critical: model.critical.length > 0, memory: model.memories.length > 0, source: this.listing.isThere, text: this.listing.hasText(0) };
    const keys = KEYS.filter(([, , of]) => isThere[of] ?? true);
    this.keyList.replaceChildren(...keys.flatMap(([key, what]) => [h("dt", {}, key.split(" ").map((one) => h("kbd", {}, one))), h("dd", {}, what)]));
    this.keys.showModal();
  }

  /// Everything that follows from the picture alone.
  fill() {
    const { timeline } = this;
    const { model, diff } = timeline;
    const { picture } = model;
    const { title, subtitle, cards } = diff ? headOfDifference(timeline) : model.stop ? headOfStop(model) : headOfPicture(model);
    this.title.textContent = title;
    this.subtitle.textContent = subtitle.filter(Boolean).join(" · ");
    document.title = `${title} · pipec`;
    const shown = cards.filter(([, value]) => value !== null && value !== undefined);
    this.cards.replaceChildren(...shown.map(([name, value, note, isBad]) =>
      h("div", { class: isBad ? "bad" : "" }, h("dt", {}, name), h("dd", {}, value, note ? h("small", {}, note) : null))));
    const errors = picture.report?.diagnostics.filter((one) => one.severity === "error") ?? [];
    this.verdict.hidden = picture.report?.ok ?? true;
    this.verdict.replaceChildren(...(this.verdict.hidden ? [] : [h("strong", {}, "rejected"), h("ul", {}, errors.map((one) => h("li", {}, one.message)), (picture.misfits ?? []).map((one) => h("li", {}, misfitWords(model, one))))]));
    this.measure.replaceChildren(...model.memories.map((memory) => h("option", {}, memory.unit)));
    this.measure.hidden = model.memories.length < 2;
    this.measure.selectedIndex = timeline.measure;
    this.toggles.queues.hidden = model.queues.length === 0;
    this.toggles.critical.hidden = model.critical.length === 0;
    this.toggles.memory.hidden = model.memories.length === 0;
    this.save.hidden = !timeline.figure;
    this.toggles.source.hidden = !this.listing.isThere;
    this.listing.fill();
    this.finder.find(this.finder.query);
    const names = timeline.models.map((one) => one.version);
    const choice = (name, label) => h("button", { type: "button", "data-id": name || "versions", title: `Show ${label} (v)`, click: () => timeline.only(name) }, label);
    this.versions.hidden = names.length < 2;
    this.versions.replaceChildren(...(names.length > 1 ? [choice("", names.join(" + ")), ...names.map((name) => choice(name, name))] : []));
    this.canvas.setAttribute("aria-label",
      `Timeline of ${picture.title}${diff ? `, ${names.join(" and ")} above each other` : ""}: ${model.nDevices} lanes, one per device, ${model.n} tasks, ${model.stop ? `stuck at ${model.time(model.stop.at)}` : `${model.time(picture.makespan)} long`}. Arrow keys go from task to task, question mark lists the keys.`);
    fillTables(this.tables, timeline);
    this.sayToggles();
    this.sayTask(-1);
  }

  fillLegend() {
    const { model } = this.timeline;
    const used = new Set(model.kind.filter((_, task) => model.never[task] === 0));
    const swatch = (style, text, name) => h("span", { class: "key" }, h("i", { class: name ?? "", style }), text);
    const ground = ({ fill, halves }) => halves ? `linear-gradient(to bottom right, ${halves[0]} 50%, ${halves[1]} 50%)` : fill;
    const { fills } = this.timeline.painter;
    const kinds = model.picture.kinds.map((kind, index) => used.has(index) && h("span", { class: "key" },
      h("i", { class: "stages" }, (model.picture.parts ? [fills[index][0]] : fills[index]).map((shade) => h("span", { style: `background: ${ground(shade)}` }))),
      `${kind.letters} ${kind.words}`));
    const classes = [...new Set(model.class)].map((index) => swatch(`background: var(--${model.picture.classes[index]})`, `${model.picture.classes[index]} sent`, "wire"));
    const { models } = this.timeline;
    const late = models.some((one) => one.hasLate) ? [swatch("background: var(--late)", "late: it could have started", "wire")] : [];
    this.legend.replaceChildren(...kinds.filter(Boolean), swatch("", "idle", "idle"), ...late, ...(model.critical.length > 0 ? [swatch("background: var(--accent)", "critical path", "wire")] : []), ...classes,
      ...(model.stop ? [swatch("", "never runs", "never"), swatch("background: var(--over)", "waits for", "wire")] : []),
      ...model.queues.map(({ name, words }) => swatch(`background: var(--${name})`, words, "queue")),
      ...(model.picture.closing ? [swatch("background: var(--closing)", model.picture.closing.what)] : []),
      ...(model.memories.length > 0 ? [swatch("", "memory", "area")] : []), ...(models.length > 1 ? [h("span", { class: "note" }, `above and paler: the ${models[0].version}`)] : []), ...(model.nStages > 1 && !model.picture.parts ? [h("span", { class: "note" }, "lighter: later stages of the device")] : []),
      ...(model.hasPairs ? [h("span", { class: "note" }, "one above the other: two tasks share the device")] : []),
      ...(model.goesOn.includes(1) ? [h("span", { class: "note" }, "with a bridge: one task of both devices")] : []),
      ...model.partNames().map((group) => this.partsOf(group, (kind, shade) => ground(fills[kind][shade]))));
  }

  /// The names of the parts on compute, or on a lane, with how their tasks look.
  partsOf({ lane, parts }, ground) {
    const hasLanes = this.timeline.model.picture.devices.some(({ name }) => name);
    const part = ({ name, shade, kinds }) => h("span", { class: "key" },
      h("i", { class: "stages" }, [...kinds].sort((one, other) => one - other).map((kind) => h("span", { style: `background: ${ground(kind, shade)}` }))), name);
    const several = parts.some(({ shade, last }) => last > shade) ? [h("span", { class: "note" }, "lighter: later parts of the same name")] : [];
    return h("span", { class: "parts" }, h("span", { class: "note" }, `${lane || (hasLanes ? "compute" : "parts")}:`), parts.map(part), several);
  }

  sayToggles() {
    for (const [name, button] of Object.entries(this.toggles)) {
      button.setAttribute("aria-pressed", String(this.timeline.show[name]));
    }
    const isListed = this.timeline.show.source && this.listing.isThere;
    this.scene.classList.toggle("listed", isListed);
    this.listing.show(isListed);
    const { shown, models } = this.timeline;
    const now = shown.length === models.length ? "versions" : shown[0].version;
    for (const button of this.versions.children) button.setAttribute("aria-pressed", String(button.dataset.id === now));
  }

  sayView() {
    const { view, model, makespan } = this.timeline;
    this.extent.textContent = `${model.time(Math.max(0, view.from))} – ${model.time(Math.min(makespan, view.to))}`;
  }

  jump(task, text) {
    return h("button", { type: "button", class: "jump", click: () => {
      this.timeline.select(task);
      this.canvas.focus({ preventScroll: true });
    } }, text ?? `${this.timeline.model.name(task)} of ${this.timeline.model.deviceName(this.timeline.model.device[task])}`);
  }

  /// What a task waited for, as a sentence with a link; of what was measured, also how late it was.
  waited(task, model = this.timeline.model) {
    const late = model.late[task] > 0 ? [`, and started ${model.time(model.late[task])} late`] : [];
    return [...this.waitedFor(task, model), ...late];
  }

  waitedFor(task, model) {
    const after = model.afterOf(task);
    const reason = model.reasonOf(task);
    if (reason === "nothing") return ["nothing: the step begins"];
    if (reason === "copy") return ["a copy to or from its device"];
    if (after < 0) return ["weights that come together as the step begins"];
    const same = model.device[after] === model.device[task];
    const link = this.jump(after);
    if (reason === "device") return same ? ["its device, which was busy with ", link] : ["another of its devices, busy with ", link];
    if (reason === "weights") return ["weights, which came together behind ", link];
    if (reason === "input") return [link, ", which it reads"];
    const way = model.start[task] - model.late[task] - model.end[after];
    return [link, way > 0 ? `, and ${model.time(way)} for what it sent` : ", which it reads"];
  }

  facts(rows) { return h("dl", { class: "facts" }, rows.flatMap(([name, ...value]) => [h("dt", {}, name), h("dd", {}, ...value)])); }

  /// Details of the selected task.
  sayTask(task) {
    const { timeline } = this;
    const { model } = timeline;
    this.finder.say();
    this.listing.say();
    this.details.classList.toggle("docked", task >= 0);
    if (task < 0) {
      this.details.replaceChildren(h("p", { class: "hint" }, `Click a task, or focus the timeline and use the arrow keys: it says what the task ${model.stop ? "waits" : "waited"} for${timeline.models.length > 1 ? ", as planned and as it ran" : ""}. ${timeline.memory ? "Click memory to see what makes its peak. " : ""}Wheel or w and s zoom, drag or a and d move, Shift and drag adds up a range, / finds tasks, ? lists the keys.`));
      this.said.textContent = "";
      return;
    }
    const { incoming, outgoing } = timeline.transfersOf(task);
    const size = (index) => (model.bytes[index] > 0 ? ` (${sayBytes(model.bytes[index])})` : "");
    const list = (indices, end) => indices.flatMap((index, place) => [place > 0 ? ", " : "", this.jump(end[index]), size(index)]);
    const memory = timeline.memory;
    const partner = model.partner(task);
    const kind = model.kindOf(task);
    const words = `${kind.words} of stage ${model.stageName(model.stage[task]).slice(1)}, microbatch ${model.microbatch[task]}` +
      (model.picture.microbatches[1] > 1 ? `, slice ${model.slice[task]}` : "");
    const { models } = timeline;
    const critical = models.filter((one) => one.isCritical[task]);
    const times = models.length > 1 ? [] : [
      ...(model.never[task] ? [["never runs", ...whyNever(this, task)]] : [["start", model.time(model.start[task])], ["end", model.time(model.end[task])],
      ["duration", model.time(model.end[task] - model.start[task])],
      ["waited for", ...this.waited(task)]]),
    ];
    const rows = [
      ["device", model.deviceName(model.device[task])],
      ...times,
      ...(partner >= 0 ? [["shares its device with", this.jump(partner, model.name(partner))]] : []),
      ...(incoming.length > 0 ? [["receives from", ...list(incoming, model.from)]] : []),
      ...(outgoing.length > 0 ? [["sends to", ...list(outgoing, model.to)]] : []),
      ...(memory ? [["memory alive", memory.amount(memory.level(model.device[task], model.start[task]))]] : []),
      ...this.origin(task),
      ...(critical.length > 0 ? [["critical path", `${critical.map((one) => one.version).join(" and ") || "yes"}: if it took longer, the step would`]] : []),
    ];
    this.details.replaceChildren(h("h2", {}, model.name(task), h("small", {}, words)), models.length > 1 ? taskDifference(this, task) : "", this.facts(rows));
    const said = model.never[task] ? ["never runs", textOf(whyNever(this, task))] : models.map((model) => `${model.version && `${model.version}: `}from ${model.time(model.start[task])} to ${model.time(model.end[task])}, waited for ${textOf(this.waited(task, model))}`);
    this.said.textContent = `${model.name(task)}, ${words}, device ${model.device[task]}, ${said.join("; ")}`;
  }

  /// The statement that a task comes from.
  origin(task) {
    const { statements } = this.listing;
    const statement = statements.of(task);
    if (statement < 0) return [];
    return [["comes from", h("code", {}, statements.text(statement)), " in ", this.lineOf(task, statements.place(statement))]];
  }

  /// Words that show the statement of a task in its source, where that is there.
  lineOf(task, words) {
    const statement = this.listing.statements.of(task);
    if (statement < 0 || !this.listing.hasText(statement)) return words;
    return h("button", { type: "button", class: "jump", click: () => this.listing.go(statement) }, words);
  }

  /// What the details are about.
  saySubject() {
    const { range, peakOf, selected } = this.timeline;
    if (range) this.sayRange(); else if (peakOf >= 0) this.sayPeak(); else this.sayTask(selected);
  }

  /// What devices do in a range.
  sayRange() {
    const { model, range } = this.timeline;
    const words = `${model.time(range.from)} – ${model.time(range.to)}, ${model.time(range.to - range.from)} long`;
    this.finder.say();
    this.listing.say();
    this.details.classList.add("docked");
    this.details.replaceChildren(h("h2", {}, "Range", h("small", {}, `${words}${model.version && `, of the ${model.version}`}: what each device does in it`)), rangeTable(model, range));
    this.said.textContent = `Range from ${model.time(range.from)} to ${model.time(range.to)}`;
  }

  /// Scrolls the page so far that the details do not cover a row.
  uncover(row) {
    const { top } = this.canvas.getBoundingClientRect();
    const covered = top + row.y + row.height + 4 - this.details.getBoundingClientRect().top;
    if (covered > 0) window.scrollBy(0, covered);
  }

  /// What is alive at the peak of a device.
  sayPeak() {
    const { timeline } = this;
    if (timeline.peakOf < 0) return this.sayTask(timeline.selected);
    this.details.classList.add("docked");
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
      if (timeline.models.length > 1) return [`${model.name(task)} on ${model.deviceName(found.device)}`, ...tipOfDifference(this, task)];
      if (model.never[task]) return [`${model.name(task)} on ${model.deviceName(found.device)} never runs`, textOf(whyNever(this, task))];
      const span = `${model.time(model.start[task])} – ${model.time(model.end[task])}, takes ${model.time(model.end[task] - model.start[task])}`;
      return [`${model.name(task)} on ${model.deviceName(found.device)}`, span, `waited for ${textOf(this.waited(task))}`];
    }
    if (found.queue) {
      const span = ({ start, end }) => `${model.time(start)} – ${model.time(end)}, ${model.time(end - start)} long`;
      const others = (part) => part.key === undefined ? [] : [`with ${model.othersOf(part, found.device).map((device) => `d${device}`).join(", ")}`];
      const shown = found.parts.slice(0, 3);
      const more = found.parts.length > 3 ? [`and ${found.parts.length - 3} more`] : [];
      return shown.flatMap((part) => [`${part.words}, d${found.device}`, span(part), ...others(part)]).concat(more);
    }
    if (!found.idle) return [];
    const { closing } = model.picture;
    if (closing && found.moment >= closing.start) return [`end of the step: ${closing.what}`, `${model.time(closing.start)} – ${model.time(closing.end)}, ${model.time(closing.end - closing.start)} long`];
    const { before, after } = found.idle;
    const own = found.model;
    if (own.stop && (before < 0 || own.never[before])) return [`${own.deviceName(found.device)} ${before < 0 && own.stop.ran[found.device] === own.tasksOf(found.device)[1] ? "has run all of its tasks" : "is stuck"}`, ...(before < 0 ? [] : [textOf(whyNever(this, before))])];
    const [from, to] = [after >= 0 ? own.end[after] : 0, before >= 0 ? own.start[before] : own.makespan];
    const span = `${own.time(from)} – ${own.time(to)}, ${own.time(to - from)} long`;
    const why = before < 0 ? "cool-down: its last task has ended"
      : `${after < 0 ? "warm-up: " : ""}${own.name(before)} waits for ${textOf(this.waited(before, own))}`;
    return [`${own.deviceName(found.device)} is idle${own.version && ` in the ${own.version}`}`, span, why, ...partsOfIdle(own, found.device, from, to)];
  }
}

/// What sentences with links say.
function textOf(words) { return h("p", {}, ...words).textContent; }
