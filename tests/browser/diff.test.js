// The page that `pipec diff -o x.html` writes: plan and run on one time axis, with what their difference is made of.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { MANY, close, folder, frame, middle, open, root, run, view, visit } from "./browser.js";

before(open);
after(close);

const data = (name) => join(root, "compiler", "cli", "tests", "data", name);
const TINY = [data("adam.pipe"), data("adam_trace.json")];
const SMALL = ["std:1f1b", "--set", "devices=4", "--set", "microbatches=8", "--cost", "comm=0.25"];

/// A page for a target and its trace, with what `pipec diff` says of them.
function compare(name, target, trace, ...options) {
  const path = join(folder, `${name}.html`);
  const told = JSON.parse(run("diff", target, trace, ...options, "-o", path, "--format", "json"));
  const page = readFileSync(path, "utf8");
  const { versions } = JSON.parse(page.split('type="application/json">')[1].split("</script>")[0]);
  return { url: `file://${path}`, page, told, plan: versions[0].picture, measured: versions[1].picture };
}

/// The plan of a target as its trace, with all its tasks starting later: those of the devices behind the first one more.
function late(name, target, factor) {
  const path = join(folder, `${name}.trace.json`);
  run("build", ...target, "--emit", "perfetto", "-o", path);
  const trace = JSON.parse(readFileSync(path, "utf8"));
  for (const event of trace.traceEvents) if (event.ph === "X") event.ts = Math.round(event.ts * factor * 1000) / 1000;
  writeFileSync(path, JSON.stringify(trace));
  return path;
}

describe("plan and run", () => {
  let page, told, plan, measured, html;
  before(async () => {
    const compared = compare("tiny", ...TINY, "--search", "1");
    ({ told, plan, measured, page: html } = compared);
    page = await visit(compared.url);
  });
  after(() => page.close());

  const text = (selector) => page.locator(selector).innerText();
  const selected = () => page.evaluate(() => timeline.selected);
  const shown = () => page.evaluate(() => timeline.shown.map((model) => model.version));
  /// As the tables have it, all in one unit.
  const ms = (number) => page.evaluate((number) => millis(timeline.diff).plain(number), number);

  test("are one file that loads nothing", () => {
    assert.doesNotMatch(html, /(src|href)=["'](?!data:)/);
    assert.doesNotMatch(html, /@import|url\(|https?:\/\//);
    assert.deepEqual(page.complaints, []);
  });

  test("stand above each other, device by device, on one time axis", async () => {
    const lanes = await page.evaluate(() => timeline.bands.map(({ model, rows }) => ({
      version: model.version, ys: rows.map((row) => row.y), bottoms: rows.map((row) => row.y + row.taskHeight), ends: timeline.painter.x(model.makespan),
    })));
    assert.deepEqual(lanes.map((lane) => lane.version), ["plan", "run"]);
    const [above, below] = lanes;
    for (const device of [0, 1]) {
      assert.ok(above.bottoms[device] <= below.ys[device], JSON.stringify(lanes));
      if (device > 0) assert.ok(below.bottoms[device - 1] < above.ys[device], JSON.stringify(lanes));
    }
    const gutter = 54;
    const ratio = (above.ends - gutter) / (below.ends - gutter);
    assert.ok(Math.abs(ratio - told.plan_ms / told.measured_ms) < 1e-3, `${ratio}`);
    assert.equal(plan.clock.ticks_per_unit, measured.clock.ticks_per_unit);
  });

  test("say the figures of the report, and parts that add up", async () => {
    const cards = (await text(".cards")).replace(/\s+/g, " ");
    const say = (name) => page.evaluate((number) => sayTime(number, "ms"), told[name]);
    for (const name of ["plan_ms", "refitted_ms", "measured_ms"]) assert.ok(cards.includes(await say(name)), `${cards} has ${name}`);
    assert.match(await text(".subtitle"), /medians over 4 steps of 6 · costs from the target, a unit taken for [\d.]+ [mu]s · 2 devices · 2 stages · 4 microbatches/);
    const rows = (await page.locator(".way tbody tr").allInnerTexts()).map((row) => row.split("\t"));
    const number = (cell) => Number(cell.replace("−", "-"));
    const sums = rows.filter(([name]) => ["plan", "plan, refitted costs", "run"].includes(name));
    assert.deepEqual(sums.map(([, cell]) => cell.trim()), await Promise.all([told.plan_ms, told.refitted_ms, told.measured_ms].map(ms)));
    const parts = rows.slice(1, rows.findIndex(([name]) => name === "run")).filter(([name]) => name !== "plan, refitted costs");
    const sum = parts.reduce((total, [, cell]) => total + number(cell), 0);
    const difference = Number(await ms(told.measured_ms)) - Number(await ms(told.plan_ms));
    assert.ok(Math.abs(sum - difference) <= 0.0101 * parts.length, `${sum}`);
    assert.ok(parts.some(([name]) => name === "late starts on d1"), parts.join("\n"));
  });

  test("say of a task under the pointer when it was planned and when it ran", async () => {
    for (const task of [0, 3, 9, 15]) {
      await page.mouse.move(...(await middle(page, task)));
      const tip = await text(".tip");
      for (const [name, { tasks, clock }] of [["plan", plan], ["run", measured]]) {
        const duration = await page.evaluate((number) => say(number), tasks.duration[task] / clock.ticks_per_unit);
        assert.match(tip, new RegExp(`${name}: .*takes ${duration} ms`), tip);
      }
      assert.match(tip, /starts .* ms (later|earlier), takes .* ms (longer|less)/);
      assert.match(tip, /in the run it waited for /);
      const both = await page.evaluate(() => timeline.bands.length);
      assert.equal(both, 2);
    }
    // In the plan's lane it is the same task.
    const place = await page.evaluate(() => {
      const [{ model, rows }] = timeline.bands;
      const { left, top } = timeline.canvas.getBoundingClientRect();
      return [left + timeline.painter.x((model.start[9] + model.end[9]) / 2), top + rows[model.device[9]].y + 3];
    });
    await page.mouse.click(...place);
    assert.equal(await selected(), 9);
  });

  test("a selected task has its times in both, their difference, and what it waited for in each", async () => {
    await page.evaluate(() => timeline.select(9));
    const rows = Object.fromEntries((await page.locator("table.versions tbody tr").allInnerTexts()).map((row) => row.split("\t")).map(([name, ...cells]) => [name, cells.map((cell) => cell.trim())]));
    const moment = async (picture, ticks) => page.evaluate((number) => `${say(number)} ms`, ticks / picture.clock.ticks_per_unit);
    const [before, now] = [plan.tasks.start[9], measured.tasks.start[9]];
    assert.deepEqual(rows.start.slice(0, 2), [await moment(plan, before), await moment(measured, now)]);
    assert.equal(rows.start[2].replace(/^[+−]/, ""), await moment(plan, Math.abs(now - before)));
    assert.equal(rows.late[1], await moment(measured, measured.tasks.late[9]));
    for (const [place, { tasks }] of [plan, measured].entries()) {
      const after = tasks.after[9] - 1;
      assert.ok(rows["waited for"][place].includes(`s${tasks.stage[after]} m${tasks.microbatch[after]} of d`), rows["waited for"][place]);
    }
    assert.match(await text("#said"), /plan: from .* waited for .*; run: from .* waited for /);
    await page.locator("table.versions .jump").last().click();
    assert.equal(await selected(), measured.tasks.after[9] - 1);
  });

  test("keys and buttons show both, the run alone and the plan alone; the time axis stays", async () => {
    await page.locator(".lanes").focus();
    await page.keyboard.press("Escape");
    await page.evaluate(() => timeline.look(0, timeline.makespan / 3));
    const old = await view(page);
    const seen = [await shown()];
    for (let turn = 0; turn < 3; turn++) {
      await page.keyboard.press("v");
      seen.push(await shown());
    }
    assert.deepEqual(seen, [["plan", "run"], ["run"], ["plan"], ["plan", "run"]]);
    await page.locator("[data-id=plan]").click();
    assert.equal(await page.locator("[data-id=plan]").getAttribute("aria-pressed"), "true");
    assert.equal(await page.evaluate(() => timeline.bands.length), 1);
    await page.mouse.move(...(await middle(page, 1)));
    assert.match(await text(".tip"), /in the plan it waited for/);
    assert.deepEqual(await view(page), old);
    await page.locator("[data-id=versions]").click();
    assert.deepEqual(await shown(), ["plan", "run"]);
    await page.locator(".lanes").focus();
    await page.keyboard.press("?");
    assert.match(await text("dialog.keys"), /plan and run, run alone, plan alone/);
    await page.keyboard.press("Escape");
    await page.locator(".lanes").focus();
    await page.keyboard.press("0");
  });

  test("zoom and pan move both", async () => {
    const places = () => page.evaluate(() => timeline.bands.map(({ model }) => timeline.painter.x(model.start[5])));
    const [old, ratio] = [await places(), (places) => places[1] - places[0]];
    await page.mouse.move(...(await middle(page, 5)));
    await page.mouse.wheel(0, -300);
    await frame(page);
    const near = await places();
    const zoomed = await view(page);
    const factor = (await page.evaluate(() => timeline.makespan * 1.004)) / (zoomed.to - zoomed.from);
    assert.ok(factor > 1.2 && Math.abs(ratio(near) / ratio(old) - factor) < 0.02 * factor, JSON.stringify({ old, near, factor }));
    await page.keyboard.press("Shift+ArrowRight");
    const moved = await places();
    assert.ok(near[0] > moved[0] && Math.abs(near[0] - moved[0] - (near[1] - moved[1])) < 1e-6, JSON.stringify({ near, moved }));
    await page.keyboard.press("0");
  });

  test("idle time of both adds up, and late starts are a cause of their own", async () => {
    await page.locator(".bubble summary").click();
    const heads = await page.locator(".bubble thead th").allInnerTexts();
    assert.ok(heads.includes("late"), `${heads}`);
    const rows = (await page.locator(".bubble tbody tr").allInnerTexts()).map((row) => row.split("\t"));
    assert.deepEqual(rows.map(([name]) => name), ["d0 plan", "d0 run", "d1 plan", "d1 run"]);
    for (const cells of rows) {
      const figures = cells.map((cell) => parseFloat(cell) || 0);
      const parts = figures.slice(heads.indexOf("in tasks") + 1, heads.indexOf("idle")).reduce((one, other) => one + other, 0);
      assert.ok(Math.abs(parts - figures[heads.indexOf("idle")]) < 2e-6, cells.join(" "));
      assert.equal(figures[heads.indexOf("late")] > 0, cells[0].endsWith("run"), cells.join(" "));
    }
  });

  test("wrong costs, the refitted ones and a better order are told, with what can be copied", async () => {
    assert.equal((await text(".costs .quoted code")).trim(), `--cost ${told.cost}`);
    const wrong = told.parts.filter((part) => part.what === "cost").sort((one, other) => Math.abs(other.ms) - Math.abs(one.ms));
    const [first] = await page.locator(".costs tbody tr").allInnerTexts();
    assert.ok(first.startsWith(`${wrong[0].kind} of s${wrong[0].stage}`) && first.includes(await ms(wrong[0].measured_ms)), first);
    const found = told.better.find((one) => one.what === "search");
    assert.ok((await text(".better")).includes(await ms(found.makespan_ms)));
    await page.locator(".better summary").click();
    assert.equal((await text(".better .quoted code")).trim(), found.source.trim());
    await page.locator(".losses .jump").first().click();
    assert.equal(await page.evaluate(() => timeline.model.name(timeline.selected)), told.losses[0].task);
  });

  test("are light or dark by the system", async () => {
    const dark = await visit(page.url(), { colorScheme: "dark" });
    await frame(dark);
    const pixel = await dark.evaluate(() => [...timeline.painter.context.getImageData(4, timeline.canvas.height - 4, 1, 1).data]);
    assert.ok(pixel[0] < 80, `${pixel}`);
    await dark.close();
  });

  test("can be read without being seen", async () => {
    assert.match(await page.locator(".lanes").getAttribute("aria-label"), /Timeline of tiny, plan and run above each other: 2 lanes/);
    await page.locator("details.text summary").click();
    assert.match(await page.locator("div.text p").first().innerText(), /^d0: F s0 m0 plan 0–[\d.]+, run 0–[\d.]+; /);
    const unnamed = await page.evaluate(() => [...document.querySelectorAll("button, select, [role=img]")].filter((one) => !(one.getAttribute("aria-label") || one.textContent)).length);
    assert.equal(unnamed, 0);
  });

  test("nothing went wrong meanwhile", () => assert.deepEqual(page.complaints, []));
});

test("a late start is drawn before its task", async () => {
  const [target, ...options] = SMALL;
  const { url, measured } = compare("late", target, late("late", SMALL, 1.3), ...options, "--search", "0");
  const page = await visit(url);
  const task = measured.tasks.late.findIndex((late, task) => late > 0 && task > 40);
  await page.evaluate((task) => {
    timeline.toggle("transfers");
    timeline.toggle("critical");
    timeline.look(timeline.model.start[task] - 20 * timeline.model.late[task], timeline.model.end[task]);
  }, task);
  await frame(page);
  const [pixel, late_] = await page.evaluate((task) => {
    const { model, painter, rows, ratio } = timeline;
    const row = rows[model.device[task]];
    const at = [painter.x(model.start[task] - model.late[task] / 2), row.y + row.taskHeight / 2];
    return [[...painter.context.getImageData(...at.map((place) => Math.round(place * ratio)), 1, 1).data].slice(0, 3), painter.late];
  }, task);
  assert.deepEqual(pixel, late_);
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test("64 devices by many microbatches, planned and run, stay smooth", async (context) => {
  const target = ["std:interleaved_1f1b", "--set", "devices=64", "--set", `microbatches=${MANY}`, "--cost", "comm=0.1"];
  const { url } = compare("large", target[0], late("large", target, 1.07), ...target.slice(1), "--search", "0");
  const page = await visit(url);
  const medians = await page.evaluate(async () => {
    const found = { tasks: timeline.models.reduce((sum, model) => sum + model.n, 0) };
    const measure = async (name, step) => {
      timeline.frames.length = 0;
      for (let count = 0; count < 30; count++) {
        step(count);
        await new Promise(requestAnimationFrame);
      }
      await new Promise(requestAnimationFrame);
      found[name] = timeline.frames.sort((one, other) => one - other)[timeline.frames.length >> 1];
    };
    await measure("whole", () => timeline.invalidate());
    await measure("zooming", () => timeline.zoom(0.9));
    await measure("moving", () => timeline.pan((timeline.view.to - timeline.view.from) / 50));
    timeline.select(timeline.model.tasksOf(3)[0] + 400);
    await measure("selected", () => timeline.invalidate());
    timeline.toggle("memory");
    timeline.fit();
    await measure("with memory", () => timeline.invalidate());
    return found;
  });
  context.diagnostic(`milliseconds of a frame: ${JSON.stringify(medians)}`);
  assert.equal(medians.tasks, 2 * 256 * MANY);
  // Far above what it takes, for machines that are busy.
  for (const name of ["whole", "zooming", "moving", "selected", "with memory"]) assert.ok(medians[name] < 150, `${name}: ${medians[name]} ms`);
  assert.deepEqual(page.complaints, []);
  await page.close();
});
