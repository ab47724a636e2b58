// Two timelines above each other on one time axis: a schedule, and one that it is compared with.

/// A timeline that shares its time axis with another one. Ticks may be of different length: units of time are shared.
class SharedTimeline extends Timeline {
  get makespan() {
    const { partner } = this;
    return Math.max(this.own, partner?.model && this.model ? partner.own * this.ticksOf(partner) : 0);
  }

  set makespan(ticks) { this.own = ticks; }

  /// How many ticks of this one are a tick of the other one.
  ticksOf(partner) { return this.model.perUnit / partner.model.perUnit; }

  look(from, to) {
    super.look(from, to);
    if (!this.isFollowing && this.partner?.model && this.model) this.partner.follow();
  }

  /// Shows what the other one shows.
  follow() {
    const { from, to } = this.partner.view;
    const ticks = this.ticksOf(this.partner);
    this.view = { from: from * ticks, to: to * ticks };
    this.panels.sayView();
    this.invalidate();
  }

  theme(name) {
    super.theme(name);
    if (!this.partner) return;
    this.partner.root.dataset.theme = this.root.dataset.theme;
    this.partner.repaint();
  }
}

/// What a schedule is compared with, under its lanes.
class Beside {
  constructor(timeline) {
    this.timeline = timeline;
    this.other = null;
  }

  /// Shows a picture beside the one of the timeline, both whole if that was.
  show(picture, name) {
    const { timeline } = this;
    const isWhole = timeline.isWhole();
    if (!this.other) this.open();
    this.root.classList.toggle("stale", !picture);
    if (!picture) {
      this.words.textContent = `${name} cannot be drawn with these devices and options`;
      return;
    }
    const { title } = document;
    const { other } = this;
    other.isFollowing = true;
    other.draw(picture, Boolean(other.model));
    other.isFollowing = false;
    document.title = title;
    if (isWhole) timeline.fit(); else other.follow();
    timeline.panels.overview.forget();
    this.words.textContent = this.difference(picture, name);
  }

  /// How the two differ, in a sentence.
  difference(picture, name) {
    const own = this.timeline.model.picture;
    const [mine, its] = [own.report, picture.report];
    if (picture.stop) return `Below: ${name}, which is stuck`;
    if (!mine || !its || its.makespan === null) return `Below: ${name}`;
    if (own.stop || mine.makespan === null) return `Below: ${name}, which takes ${say(its.makespan)}`;
    const longer = its.makespan - mine.makespan;
    const words = longer === 0 ? "is as long" : `is ${say(Math.abs(longer))} ${longer > 0 ? "longer" : "shorter"} (${percent(Math.abs(longer) / mine.makespan)})`;
    const change = (what, one, other, form) => (one === null || other === null || one === undefined || other === undefined ? [] : [one === other ? `the same ${what}` : `${what} ${form(other)} instead of ${form(one)}`]);
    const parts = [
      ...change("mean bubble", mine.bubble_mean, its.bubble_mean, percent),
      ...change("peak", mine.peak_activation, its.peak_activation, sayUnits),
    ];
    return `Below: ${name} ${words}${parts.map((part) => `, ${part}`).join("")}.`;
  }

  open() {
    const { timeline } = this;
    const other = this.other = new SharedTimeline(h("div", { class: "timeline other" }));
    other.show.source = false;
    other.panels.said.id = "said-other";
    other.canvas.setAttribute("aria-describedby", "said-other");
    [other.partner, timeline.partner] = [timeline, other];
    this.words = h("p", { class: "difference", role: "status" });
    this.root = h("section", { class: "beside", "aria-label": "Compared with" }, this.words, other.root);
    timeline.panels.stage.after(this.root);
  }

  close() {
    if (!this.other) return;
    const { timeline } = this;
    const isWhole = timeline.isWhole();
    this.root.remove();
    // Its size is observed until it is forgotten, and is nothing now.
    this.other.resize = () => {};
    this.other = timeline.partner = null;
    timeline.panels.overview.forget();
    if (isWhole) timeline.fit(); else timeline.look(timeline.view.from, timeline.view.to);
  }
}
