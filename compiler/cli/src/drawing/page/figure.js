// The picture of the schedule as a file, where the page was written with it.

Object.assign(Timeline.prototype, {
  /// Remembers where it stands in the page, if it does.
  keepFigure(element) { this.figure = element.textContent.trim() === "null" ? null : element; },

  /// Downloads it, or says how to have it drawn.
  saveFigure() {
    const { svg, command, refused } = JSON.parse(this.figure.textContent);
    if (!svg) return this.panels.sayFigure(command, refused);
    const href = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
    const name = this.model.picture.title.replace(/[^A-Za-z0-9_-]/g, "_") || "schedule";
    h("a", { href, download: `${name}.svg` }).click();
    setTimeout(() => URL.revokeObjectURL(href), 1000);
    return undefined;
  },
});

/// Says what draws the picture of a schedule that is too large for the page.
function figureDialog(root) {
  const words = h("div");
  const dialog = h("dialog", { "aria-label": "Save figure" }, h("h2", {}, "Save figure"), words, h("form", { method: "dialog" }, h("button", {}, "Close")));
  root.append(dialog);
  return (command, refused) => {
    const said = command ? [h("p", {}, "The page does not hold the picture of so many tasks. This command draws it:"), quoted(command)] : [h("p", {}, refused)];
    words.replaceChildren(...said);
    dialog.showModal();
  };
}
