// A page that follows a file: asks for what has changed, draws it, and says what speaks against it.

const timeline = new Timeline(document.getElementById("timeline"));
const notice = h("pre", { class: "notice", role: "status", hidden: true });
timeline.root.prepend(notice);
timeline.root.classList.add("waiting");
timeline.listenToPage();

function follow(state) {
  if (state.picture) {
    timeline.root.classList.remove("waiting");
    timeline.draw(state.picture, true);
    if (!timeline.link) new Link(timeline).follow();
  }
  notice.textContent = state.findings;
  notice.hidden = state.findings === "";
  // What is drawn is not what the file says now.
  timeline.root.classList.toggle("stale", !state.ok && !state.picture);
}

(async () => {
  for (let seen = 0; ;) {
    try {
      const answer = await fetch(`changes?after=${seen}`, { cache: "no-store" });
      const state = await answer.json();
      if (state.number !== seen) follow(state);
      seen = state.number;
    } catch {
      notice.textContent = "pipec watch has ended; this page goes on when it is started again\n";
      notice.hidden = false;
      await new Promise((done) => setTimeout(done, 700));
    }
  }
})();
