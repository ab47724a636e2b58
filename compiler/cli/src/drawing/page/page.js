// A page of its own: draws the picture that it was written with.

const timeline = new Timeline(document.getElementById("timeline"));
if (globalThis.acquireVsCodeApi) new Embedded(timeline, acquireVsCodeApi());
timeline.keepFigure(document.getElementById("figure"));
timeline.draw(JSON.parse(document.getElementById("picture").textContent));
new Link(timeline).follow();
timeline.listenToPage();
