// Deep links: the fragment of the address has the time in view, the selected task, the range and the search.

/// How long nothing has to change before the address does.
const SETTLED = 250;

class Link {
  constructor(timeline) {
    this.timeline = timeline;
    timeline.link = this;
    addEventListener("hashchange", () => this.fragment() !== this.written && this.follow());
  }

  fragment() { return location.hash.slice(1); }

  /// What is looked at, in units of time and by names, so that it holds for a later picture of the same schedule.
  text() {
    const { timeline } = this;
    const { model, view, range, selected, peakOf } = timeline;
    const units = (moment) => `${Number((moment / model.perUnit).toPrecision(9))}`;
    const parts = new URLSearchParams();
    if (!timeline.isWhole()) parts.set("view", `${units(view.from)}..${units(view.to)}`);
    if (selected >= 0) parts.set("task", `d${model.device[selected]} ${model.name(selected)}`);
    if (peakOf >= 0) parts.set("peak", `d${peakOf}`);
    if (range) parts.set("range", `${units(range.from)}..${units(range.to)}`);
    if (timeline.panels.finder.query) parts.set("find", timeline.panels.finder.query);
    return parts.toString();
  }

  /// Puts it into the address when nothing changes any more.
  note() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.write(), SETTLED);
  }

  write() {
    const text = this.text();
    if (text === this.written || (text === "" && !this.written && this.fragment() === "")) return;
    this.written = text;
    try {
      history.replaceState(null, "", text ? `#${text}` : location.href.split("#")[0]);
    } catch {
      // Some viewers of files have no address that could change; the page works without.
    }
  }

  /// Shows what the address says. What it says of things that are not there is left out.
  follow() {
    const { timeline } = this;
    const { model } = timeline;
    const parts = new URLSearchParams(this.fragment());
    const moments = (name) => {
      const found = (parts.get(name) ?? "").split("..").map((part) => parseFloat(part) * model.perUnit);
      return found.length === 2 && found.every(Number.isFinite) && found[0] < found[1] ? found : null;
    };
    this.written = this.fragment();
    const { finder } = timeline.panels;
    const query = parts.get("find") ?? "";
    if (query) finder.open(query, false); else if (finder.query) finder.close();
    const view = moments("view");
    if (view) timeline.look(...view); else timeline.fit();
    const [, peak] = parts.get("peak")?.match(/^d(\d+)$/) ?? [];
    if (peak !== undefined && Number(peak) < model.nDevices && timeline.peakOf !== Number(peak)) timeline.showPeak(Number(peak));
    const [, device, name] = parts.get("task")?.match(/^d(\d+) (.+)$/) ?? [];
    timeline.select(device === undefined ? -1 : model.find(name, Number(device)), view === null);
    if (timeline.selected >= 0) timeline.panels.uncover(timeline.rows[model.device[timeline.selected]]);
    const range = moments("range");
    if (range) timeline.measureRange(...range);
  }
}
