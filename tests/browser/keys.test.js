// The page and the playground by the keyboard alone, and as a screen reader has them.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close, open, plot, root, view, visit } from "./browser.js";

const built = join(root, "docs", "playground", "dist", "index.html");
const skip = existsSync(built) ? false : "docs/playground/build.sh was not run";
const SMALL = ["std:1f1b", "--set", "devices=4", "--set", "microbatches=8", "--cost", "comm=0.25"];
/// Roles of what one can do something with.
const CONTROLS = ["button", "combobox", "textbox", "searchbox", "spinbutton", "application", "listbox", "option", "checkbox", "link", "DisclosureTriangle"];

before(open);
after(close);

/// What the browser tells a screen reader, without what is hidden.
async function tree(page) {
  const session = await page.context().newCDPSession(page);
  const { nodes } = await session.send("Accessibility.getFullAXTree");
  return nodes.filter(({ ignored }) => !ignored).map(({ role, name, properties }) => ({
    role: role?.value, name: name?.value ?? "", focusable: properties?.some(({ name, value }) => name === "focusable" && value.value) ?? false,
  }));
}

/// What has the focus: what it is and is called, where it is, and whether one sees that it has it.
const focused = (page) => page.evaluate(() => {
  const one = document.activeElement;
  const { top, left, width, height } = one.getBoundingClientRect();
  const around = one.matches("textarea") ? one.closest(".editor") : one;
  const { outlineStyle, outlineWidth } = getComputedStyle(around);
  one.dataset.reached = "";
  return {
    name: one.getAttribute("aria-label") || one.labels?.[0]?.firstChild?.textContent || one.textContent.trim().slice(0, 40) || one.tagName,
    tag: one.tagName, top: top + scrollY, left, isShown: width > 0 && height > 0, isSeen: outlineStyle !== "none" && parseFloat(outlineWidth) >= 1,
  };
});

/// Goes through the page by Tab; everything that has the focus on the way.
async function walk(page, leave = async () => {}) {
  const found = [];
  for (let step = 0; step < 120; step++) {
    await leave(found.at(-1));
    await page.keyboard.press("Tab");
    const one = await focused(page);
    if (one.tag === "BODY" || (found.length > 0 && one.name === found[0].name && one.top === found[0].top)) break;
    found.push(one);
  }
  return found;
}

/// Controls that are shown, and were not reached.
const missed = (page) => page.evaluate(() => [...document.querySelectorAll("button, select, input, textarea, summary, a[href], [tabindex='0']")]
  .filter((one) => one.checkVisibility() && !("reached" in one.dataset) && one.tabIndex >= 0).map((one) => one.outerHTML.slice(0, 120)));

function judge(found) {
  assert.deepEqual(found.filter(({ isShown, isSeen }) => !isShown || !isSeen), [], "each one shows that it has the focus");
}

/// Everything one can do something with has a name.
async function judgeNames(page) {
  const nodes = await tree(page);
  const controls = nodes.filter(({ role, focusable }) => focusable && CONTROLS.includes(role));
  assert.ok(controls.length > 12, JSON.stringify(nodes.map(({ role }) => role)));
  assert.deepEqual(controls.filter(({ name }) => name.trim() === ""), []);
  assert.deepEqual(nodes.filter(({ role, focusable }) => focusable && role === "generic"), [], "each one has a role");
}

test("Tab goes through the page from above to below, and reaches everything", async () => {
  const page = await visit(plot("tabs", ...SMALL).url);
  const found = await walk(page);
  judge(found);
  assert.deepEqual(await missed(page), []);
  const names = found.map(({ name }) => name);
  const place = (part) => names.findIndex((name) => name.includes(part));
  const order = ["Zoom out", "fit", "critical path", "save figure", "Keys", "Timeline of 1f1b", "F[s]", "as a table"].map(place);
  assert.ok(order.every((place, index) => place >= 0 && (index === 0 || place > order[index - 1])), names.join(" | "));
  await judgeNames(page);
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test("single letters can be turned off, and that is remembered", async () => {
  const { url } = plot("letters", ...SMALL);
  const page = await visit(url);
  const whole = await view(page);
  const zooms = async (focus) => {
    await page.locator(focus).focus();
    await page.keyboard.press("w");
    const is = (await view(page)).to !== whole.to;
    await page.evaluate(() => timeline.fit());
    return is;
  };
  const choose = async (words) => {
    await page.locator("[data-id=keys]").click();
    await page.getByLabel("Single letters and signs are keys").selectOption({ label: words });
    await page.getByRole("button", { name: "Close" }).click();
  };
  assert.deepEqual([await zooms("[data-id=fit]"), await zooms(".lanes")], [true, true]);
  await choose("while the timeline has the focus");
  assert.deepEqual([await zooms("[data-id=fit]"), await zooms(".lanes")], [false, true]);
  await page.reload();
  assert.equal(await zooms("[data-id=fit]"), false);
  await choose("nowhere");
  assert.equal(await zooms(".lanes"), false);
  await page.keyboard.press("ArrowRight");
  assert.match(await page.locator("#said").innerText(), /^F s0 m0, forward of stage 0, microbatch 0, device 0, from 0 to 1/);
  await choose("wherever the focus is");
  assert.equal(await zooms("[data-id=fit]"), true);
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test("the playground is used without a pointer, and says what comes of it", { skip }, async () => {
  const page = await visit(`file://${built}`, { allowed: "blob:", viewport: { width: 1500, height: 950 } });
  page.complaints.length = 0;
  await page.waitForFunction(() => playground.editor && !playground.isBusy && timeline.model && playground.isReady);
  const found = await walk(page, async (last) => last?.tag === "TEXTAREA" && page.keyboard.press("Escape"));
  judge(found);
  assert.deepEqual(await missed(page), []);
  const names = found.map(({ name }) => name);
  const place = (part) => names.findIndex((name) => name.includes(part));
  const order = ["Standard schedules", "Examples", "Compare with", "search", "save .svg", "Source", "devices", "recompute", "Zoom out", "Timeline of v_half"].map(place);
  assert.ok(order.every((place, index) => place >= 0 && (index === 0 || place > order[index - 1])), names.join(" | "));
  await judgeNames(page);
  // The verdict is spoken when typing pauses, with its figures, and once.
  const spoken = page.locator(".side [role=status].hidden");
  await page.waitForFunction(() => /^accepted: makespan .*, mean bubble .*%, peak .* units$/.test(playground.spoken.textContent));
  const area = page.getByRole("textbox", { name: "Source" });
  await area.fill("schedule own {\n    stages D\n    place s on s\n    block every 3 {\n        F[s] at x\n        BW[s] at D + 2 * (D - 1 - s)\n    }\n}\n");
  await page.waitForFunction(() => playground.spoken.textContent === "rejected: 1 error");
  await area.fill((await area.inputValue()).replace("at x", "at s"));
  await page.waitForFunction(() => playground.spoken.textContent.startsWith("accepted"));
  assert.equal(await spoken.count(), 1);
  // From the source to its tasks, among them, and back.
  await page.evaluate(() => {
    const at = playground.editor.text.indexOf("BW[s]");
    playground.editor.area.focus();
    playground.editor.area.setSelectionRange(at, at);
  });
  await page.keyboard.press("Control+Enter");
  assert.match(await page.locator("#said").innerText(), /^BW s0 m0, /);
  await page.keyboard.press("ArrowDown");
  assert.match(await page.locator("#said").innerText(), /device 1/);
  await page.keyboard.press("g");
  assert.equal(await page.evaluate(() => document.activeElement === playground.editor.area && playground.editor.cursor().line), 6);
  assert.deepEqual(page.complaints, []);
  await page.close();
});
