// The page in a panel of an editor that has the source open, as VS Code: they tell each other where one is.
//
// The editor writes the name of the source into the page (`data-edited`). It sends `{ cursor }` when that moves,
// `{ fresh: false }` when the text changes, and `{ fresh, picture, findings }` when it was compiled. It is sent
// `{ ready }`, `{ marks }` with the statements of tasks, `{ go }` to one of them, and `{ figure }` to save the picture.
// Places are those of findings.

class Embedded {
  constructor(timeline, host) {
    const editor = {
      name: document.documentElement.dataset.edited, isAs: () => this.isFresh,
      mark: (marks) => host.postMessage({ marks }), go: (go) => host.postMessage({ go }),
    };
    Object.assign(this, { timeline, isFresh: true, edited: new Edited(timeline, editor) });
    // The text may have changed since the page was written with its figure.
    timeline.saveFigure = () => host.postMessage({ figure: true });
    this.notice = h("pre", { class: "notice", role: "status", hidden: true });
    timeline.root.prepend(this.notice);
    addEventListener("message", ({ data }) => this.told(data));
    const theme = () => timeline.theme(document.body.classList.contains("vscode-light") || document.body.classList.contains("vscode-high-contrast-light") ? "light" : "dark");
    new MutationObserver(theme).observe(document.body, { attributeFilter: ["class"] });
    theme();
    host.postMessage({ ready: true });
  }

  told({ fresh, picture, findings, cursor }) {
    const { timeline, edited } = this;
    if (fresh !== undefined) this.isFresh = fresh;
    if (picture) timeline.draw(picture, true);
    if (findings !== undefined) {
      this.notice.textContent = findings;
      this.notice.hidden = findings === "";
      timeline.root.classList.toggle("stale", !this.isFresh);
      if (!this.isFresh) edited.forget();
    }
    if (cursor !== undefined) edited.look(cursor);
  }
}
