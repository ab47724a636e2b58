// The page in a panel of an editor: what it is told, and what it tells.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { close, middle, open, plot, run, visit } from "./browser.js";

before(open);
after(close);

test("an editor is told of statements, and its cursor lights tasks", async () => {
  const target = ["examples/first_schedule.pipe", "--set", "devices=3"];
  const { url, path, picture } = plot("embedded", ...target);
  const [{ name }] = picture.sources;
  writeFileSync(path, readFileSync(path, "utf8").replace("<html", `<html data-edited="${name}"`));
  const page = await visit("about:blank", { allowed: url });
  await page.addInitScript(() => {
    globalThis.sent = [];
    globalThis.acquireVsCodeApi = () => ({ postMessage: (message) => sent.push(message) });
    document.addEventListener("DOMContentLoaded", () => document.body.classList.add("vscode-dark"));
  });
  await page.goto(url);
  const sent = () => page.evaluate(() => sent.splice(0));
  const tell = (message) => page.evaluate((message) => new Promise((done) => {
    addEventListener("message", () => requestAnimationFrame(done), { once: true });
    postMessage(message, "*");
  }), message);
  const lit = () => page.evaluate(() => timeline.tasksLit()?.length ?? 0);
  assert.deepEqual(page.complaints, []);
  assert.deepEqual((await sent())[0], { ready: true });
  assert.equal(await page.evaluate(() => timeline.root.dataset.theme), "dark");
  // The text is in the editor, not a second time beside the lanes.
  assert.equal(await page.locator(".listing").isVisible(), false);
  const { line, column, end_line, end_column } = picture.statements;
  await tell({ cursor: { line: line[0], column: column[0] } });
  assert.equal(await lit(), picture.tasks.statement.filter((one) => one === 1).length);
  await tell({ cursor: null });
  assert.equal(await lit(), 0);
  const place = { line: line[0], column: column[0], end_line: end_line[0], end_column: end_column[0] };
  const task = picture.tasks.statement.indexOf(1);
  await sent();
  await page.mouse.move(...(await middle(page, task)));
  assert.deepEqual(await sent(), [{ marks: { own: null, under: place } }]);
  await page.mouse.click(...(await middle(page, task)));
  assert.deepEqual((await sent()).at(-1), { marks: { own: place, under: place } });
  await page.keyboard.press("g");
  assert.deepEqual((await sent()).at(-1), { go: place });
  // A text that has an error keeps the picture, paler; the next one replaces it.
  await tell({ fresh: false, picture: null, findings: "error: no\n" });
  assert.equal(await page.locator(".notice").innerText(), "error: no\n");
  assert.equal(await page.evaluate(() => timeline.root.classList.contains("stale")), true);
  const next = JSON.parse(run("build", target[0], "--set", "devices=5", "--emit", "picture"));
  await tell({ fresh: true, picture: next, findings: "" });
  assert.deepEqual(await page.evaluate(() => [timeline.model.nDevices, timeline.root.classList.contains("stale")]), [5, false]);
  assert.equal(await page.locator(".notice").isVisible(), false);
  assert.deepEqual(page.complaints.filter((one) => !one.startsWith("file:")), []);
  await page.close();
});
