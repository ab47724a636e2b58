// Looking around in the page: source and tasks, finding, links to what is looked at, keys, and sums of a range.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { close, folder, frame, middle, open, plot, run, view, visit } from "./browser.js";

before(open);
after(close);

const SMALL = ["std:1f1b", "--set", "devices=4", "--set", "microbatches=8", "--cost", "comm=0.25"];
const selected = (page) => page.evaluate(() => timeline.selected);
const settled = (page) => page.waitForTimeout(350);
/// The tasks that stand out among the others.
const lit = (page) => page.evaluate(() => [...(timeline.tasksLit() ?? [])]);

describe("the source", () => {
  let page, picture;
  before(async () => {
    const plotted = plot("source", ...SMALL);
    ({ picture } = plotted);
    page = await visit(plotted.url);
  });
  after(() => page.close());

  const statements = () => page.locator(".listing .statement");

  test("stands beside the lanes as it is written", async () => {
    assert.equal(await page.locator(".listing h3").innerText(), "std:1f1b");
    const shown = await page.locator(".listing pre").evaluate((code) => code.textContent);
    assert.equal(shown, picture.sources[0].text);
    assert.deepEqual(await statements().allInnerTexts(), ["F[s]  at s", "BW[s] at D + 2 * (D - 1 - s)"]);
    await frame(page);
    const isShown = await statements().first().evaluate((one) => one.getBoundingClientRect().bottom <= one.closest(".listing").getBoundingClientRect().bottom);
    assert.ok(isShown, "the first statement is in view");
    const [lanes, listing] = [await page.locator(".stage").boundingBox(), await page.locator(".listing").boundingBox()];
    assert.ok(listing.x >= lanes.x + lanes.width && Math.abs(listing.height - lanes.height) < 2, JSON.stringify({ lanes, listing }));
  });

  test("a statement under the pointer shows its tasks, and a task its statement", async () => {
    await statements().first().hover();
    const forwards = [...picture.tasks.statement.keys()].filter((task) => picture.tasks.statement[task] === 1);
    assert.deepEqual(await lit(page), forwards);
    assert.equal(forwards.length, 32);
    await page.mouse.move(...(await middle(page, picture.tasks.statement.indexOf(2))));
    assert.deepEqual(await lit(page), []);
    assert.deepEqual(await page.locator(".statement.under").allInnerTexts(), ["BW[s] at D + 2 * (D - 1 - s)"]);
    await page.mouse.click(...(await middle(page, 0)));
    assert.deepEqual(await page.locator(".statement.own").allInnerTexts(), ["F[s]  at s"]);
    assert.match(await page.locator(".details").innerText(), /comes from\s+F\[s\]\s+at s in line \d+ of std:1f1b/);
  });

  test("a click finds the tasks of a statement, and another one ends that", async () => {
    await statements().last().click();
    assert.match(await page.locator(".find output").innerText(), /32 tasks/);
    assert.equal(await statements().last().getAttribute("aria-pressed"), "true");
    await page.locator("[aria-label='Next one (Enter)']").click();
    assert.equal(picture.tasks.statement[await selected(page)], 2);
    await statements().last().click();
    await page.mouse.move(2, 2);
    assert.deepEqual(await lit(page), []);
    assert.equal(await page.locator(".find").isVisible(), false);
  });

  test("is there for keys alone, and can be folded away", async () => {
    await page.locator(".statement[tabindex='0']").focus();
    assert.equal((await lit(page)).length, 32);
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    assert.equal(await page.locator(".find input").inputValue(), await page.evaluate(() => timeline.model.statements.query(1)));
    await page.keyboard.press("Escape");
    assert.equal(await page.evaluate(() => document.activeElement === timeline.canvas), true);
    const wide = await page.evaluate(() => timeline.width);
    await page.keyboard.press("o");
    assert.equal(await page.locator(".listing").isVisible(), false);
    assert.ok(await page.evaluate(() => timeline.width) > wide + 200);
    await page.locator("[data-id=source]").click();
    assert.equal(await page.locator(".listing").isVisible(), true);
    await page.evaluate(() => timeline.panels.finder.close());
  });

  test("nothing went wrong meanwhile", () => assert.deepEqual(page.complaints, []));
});

test("statements on several lines, letters of all kinds and names with markup are shown as they are", async () => {
  const path = join(folder, "wide.pipe");
  const source = `// <b>größer</b> </script> 🚂
schedule wide {
    stages D
    place s on s
    block every 3 {
        F[s]
            at s
        BW[s] at D + 2 * (D - 1 - s)
    }
}
`;
  writeFileSync(path, source);
  const { url } = plot("wide", path);
  const page = await visit(url);
  assert.equal(await page.locator(".listing pre").evaluate((code) => code.textContent), source);
  const pieces = await page.locator(".statement").allInnerTexts();
  assert.equal(pieces.join("|"), "F[s]|at s|BW[s] at D + 2 * (D - 1 - s)");
  await page.mouse.click(...(await middle(page, 0)));
  assert.equal(await page.locator(".statement.own").count(), 2);
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test("a schedule that is stuck shows its source, too", async () => {
  const { url } = plot("stuck-source", "tests/ui/deadlock/ring.pipe");
  const page = await visit(url);
  await page.mouse.click(...(await middle(page, 0)));
  assert.equal(await page.locator(".statement.own").count(), 1);
  assert.match(await page.locator(".details").innerText(), /comes from[\s\S]*line 6 of tests\/ui\/deadlock\/ring\.pipe/);
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test("words find tasks", async () => {
  const { url, picture } = plot("find", ...SMALL);
  const page = await visit(url);
  const { kind, stage, microbatch } = picture.tasks;
  const letters = (task) => picture.kinds[kind[task]].letters;
  const device = (task) => picture.devices.findIndex(({ tasks: [first, count] }) => task >= first && task < first + count);
  const cases = [
    ["F3", (task) => letters(task) === "F" && microbatch[task] === 3],
    ["d2 B7", (task) => letters(task) === "BW" && microbatch[task] === 7 && device(task) === 2],
    ["stage 3", (task) => stage[task] === 3],
    ["mb 5", (task) => microbatch[task] === 5],
    ["f s1 m2", (task) => letters(task) === "F" && stage[task] === 1 && microbatch[task] === 2],
    ["BW s1 of d1", (task) => letters(task) === "BW" && stage[task] === 1],
    ["forward, device 0", (task) => letters(task) === "F" && device(task) === 0],
    ["critical", (task) => picture.critical_path.includes(task)],
    ["m99", () => false],
  ];
  await page.locator(".lanes").focus();
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement === timeline.panels.finder.field), true);
  for (const [text, holds] of cases) {
    await page.locator(".find input").fill(text);
    const expected = [...kind.keys()].filter(holds);
    assert.deepEqual(await lit(page), expected, text);
    const said = expected.length === 0 ? "no such task" : expected.length === 1 ? "1 task" : `${expected.length} tasks`;
    assert.equal(await page.locator(".find output").innerText(), said, text);
  }
  for (const text of ["xyz", "F3.x", "d2.1", "constructor"]) {
    await page.locator(".find input").fill(text);
    assert.match(await page.locator(".find output").innerText(), /^what is /, text);
    assert.equal(await page.locator(".find input").getAttribute("aria-invalid"), "true");
  }
  await page.locator(".find input").fill("F3");
  const hits = await lit(page);
  for (const key of ["Enter", "Enter", "Shift+Enter", "Shift+Enter", "Enter"]) await page.keyboard.press(key);
  assert.equal(await selected(page), hits[0]);
  assert.equal(await page.locator(".find output").innerText(), `1 of ${hits.length}`);
  await page.keyboard.press("Shift+Enter");
  assert.equal(await selected(page), hits.at(-1));
  await page.keyboard.press("Escape");
  assert.deepEqual(await lit(page), []);
  assert.equal(await page.evaluate(() => document.activeElement === timeline.canvas), true);
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test("what is found stands out, near and far, and in the strip above", async () => {
  for (const sizes of [SMALL, ["std:1f1b", "--set", "devices=8", "--set", "microbatches=600"]]) {
    const page = await visit(plot("lit", ...sizes).url);
    const colour = (task) => page.evaluate((task) => {
      const { model, painter, rows, ratio } = timeline;
      const x = painter.x((model.start[task] + model.end[task]) / 2), y = rows[model.device[task]].y + 5;
      return [...painter.context.getImageData(x * ratio, y * ratio, 1, 1).data].join();
    }, task);
    const [one, other] = await page.evaluate(() => [model => model.find("F s1 m4", 1), model => model.find("F s1 m5", 1)].map((of) => of(timeline.model)));
    const before = [await colour(one), await colour(other)];
    await page.evaluate(() => timeline.panels.finder.open("F m4", false));
    await frame(page);
    assert.notEqual(await colour(other), before[1], "what is not found is pale");
    const strip = await page.evaluate(() => {
      const { canvas } = timeline.panels.overview;
      const { data } = canvas.getContext("2d").getImageData(0, 1, canvas.width, 1);
      const focus = rgb(timeline.painter.colours.focus).join();
      let count = 0;
      for (let at = 0; at < data.length; at += 4) count += [...data.slice(at, at + 3)].join() === focus ? 1 : 0;
      return count;
    });
    assert.ok(strip > 0, "marks in the strip");
    assert.deepEqual(page.complaints, []);
    await page.close();
  }
});

test("a link leads to what was looked at, in a file as anywhere", async () => {
  const { url } = plot("link", ...SMALL);
  const page = await visit(url);
  await settled(page);
  assert.equal(await page.evaluate(() => location.hash), "");
  await page.evaluate(() => {
    timeline.panels.finder.open("stage 3", false);
    timeline.look(40, 80);
    timeline.select(21, false);
  });
  await settled(page);
  const [old, name, address] = [await view(page), await page.evaluate(() => timeline.model.name(timeline.selected)), page.url()];
  assert.match(address, /#view=10\.\.20&task=d1\+/);
  const other = await visit(address);
  const now = await view(other);
  assert.ok(Math.abs(now.from - old.from) < 1e-3 && Math.abs(now.to - old.to) < 1e-3, JSON.stringify({ old, now }));
  assert.equal(await other.evaluate(() => timeline.model.name(timeline.selected)), name);
  assert.equal(await other.locator(".find input").inputValue(), "stage 3");
  assert.equal((await lit(other)).length, 16);
  // The address alone changes, too.
  await other.evaluate(() => location.hash = "#range=5..9");
  await other.locator("table.range").waitFor();
  assert.deepEqual(await other.evaluate(() => [timeline.selected, timeline.range.from, timeline.range.to, timeline.isWhole()]), [-1, 20, 36, true]);
  assert.equal(await other.locator(".find").isVisible(), false);
  // What is not there is left out.
  await other.evaluate(() => location.hash = "#view=9..x&task=d9+F+s0+m0&peak=d77&find=&range=4");
  await settled(other);
  assert.deepEqual(await other.evaluate(() => [timeline.selected, timeline.peakOf, timeline.isWhole()]), [-1, -1, true]);
  for (const one of [page, other]) {
    assert.deepEqual(one.complaints, []);
    await one.close();
  }
});

test("letters move as in Perfetto, wherever the focus is", async () => {
  const page = await visit(plot("keys", ...SMALL).url);
  const whole = await view(page);
  await page.keyboard.press("w");
  const near = await view(page);
  assert.ok(near.to - near.from < whole.to - whole.from);
  await page.keyboard.press("d");
  const right = await view(page);
  assert.ok(right.from > near.from && Math.abs(right.to - right.from - (near.to - near.from)) < 1e-6);
  await page.keyboard.press("a");
  assert.ok((await view(page)).from < right.from);
  await page.keyboard.press("s");
  assert.ok((await view(page)).to - (await view(page)).from > near.to - near.from);
  // Around the pointer, where it is over the lanes.
  const [x, y] = await middle(page, 20);
  await page.mouse.move(x, y);
  const at = () => page.evaluate((x) => timeline.moment(x - timeline.canvas.getBoundingClientRect().left), x);
  const old = await at();
  await page.keyboard.press("w");
  assert.ok(Math.abs((await at()) - old) < 0.5, `${old} became ${await at()}`);
  const theme = await page.evaluate(() => timeline.root.dataset.theme);
  await page.keyboard.press("b");
  assert.notEqual(await page.evaluate(() => timeline.root.dataset.theme), theme);
  await page.keyboard.press("/");
  const still = await view(page);
  await page.keyboard.type("wasd");
  assert.deepEqual(await view(page), still, "letters that are typed are no keys");
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test("the details of what is selected are in view, and cover nothing of its lane", async () => {
  const page = await visit(plot("dock", "std:1f1b", "--set", "devices=24", "--set", "microbatches=48").url, { viewport: { width: 1200, height: 640 } });
  const last = await page.evaluate(() => timeline.model.tasksOf(23)[0]);
  await page.locator(".lanes").focus();
  await page.evaluate((task) => timeline.select(task), last);
  const [details, bottom] = [await page.locator(".details").boundingBox(), await page.evaluate(() => {
    const row = timeline.rows[23];
    return timeline.canvas.getBoundingClientRect().top + row.y + row.taskHeight;
  })];
  assert.ok(details.y + details.height <= 640 && bottom <= details.y, JSON.stringify({ details, bottom }));
  assert.match(await page.locator(".details").innerText(), /start\s[\s\S]*end\s[\s\S]*duration\s[\s\S]*waited for/);
  await page.close();
});

describe("a range", () => {
  let page, picture;
  before(async () => {
    const plotted = plot("range", ...SMALL);
    ({ picture } = plotted);
    page = await visit(plotted.url);
  });
  after(() => page.close());

  /// The cells of the table, as numbers by device and head.
  const sums = async () => {
    const heads = await page.locator("table.range thead th").allInnerTexts();
    const rows = await page.locator("table.range tbody tr").evaluateAll((rows) => rows.map((row) => [...row.children].map((cell) => cell.firstChild?.textContent ?? "")));
    return rows.map((cells) => Object.fromEntries(cells.map((cell, place) => [heads[place], parseFloat(cell) || 0])));
  };

  test("over the whole step has the sums of the step", async () => {
    await page.keyboard.press("r");
    const words = { warm_up: "warm-up", waiting: "waiting", communication: "communication", cool_down: "cool-down" };
    (await sums()).forEach((row, device) => {
      const { busy, idle } = picture.devices[device];
      assert.equal(row["in tasks"] * picture.clock.ticks_per_unit, busy);
      for (const [cause, word] of Object.entries(words)) {
        const time = idle.filter((one) => one.cause === cause).reduce((sum, one) => sum + one.time, 0);
        assert.equal((row[word] ?? 0) * picture.clock.ticks_per_unit, time, `${word} of d${device}`);
      }
      assert.ok(Math.abs(row.F + row.BW - row["in tasks"]) < 1e-9 && Math.abs(row["in tasks"] + row.idle - picture.makespan / picture.clock.ticks_per_unit) < 1e-9);
    });
  });

  test("is dragged with Shift, from edge to edge of tasks, and adds up", async () => {
    const { left, top, y0, y1, from, to } = await page.evaluate(() => {
      const { left, top } = timeline.canvas.getBoundingClientRect();
      const { model, painter, rows } = timeline;
      return { left, top, y0: rows[0].y + 6, y1: rows[1].y + 6, from: painter.x(model.start[2]), to: painter.x(model.end[21]) };
    });
    await page.keyboard.down("Shift");
    await page.mouse.move(left + from + 3, top + y0);
    await page.mouse.down();
    await page.mouse.move(left + to - 40, top + y0, { steps: 3 });
    await page.mouse.move(left + to - 3, top + y1, { steps: 3 });
    await page.mouse.up();
    await page.keyboard.up("Shift");
    const range = await page.evaluate(() => timeline.range);
    assert.deepEqual(range, { from: picture.tasks.start[2], to: picture.tasks.start[21] + picture.tasks.duration[21] });
    const wide = (range.to - range.from) / picture.clock.ticks_per_unit;
    for (const row of await sums()) {
      const causes = Object.entries(row).filter(([name]) => !["device", "F", "BW", "in tasks", "idle"].includes(name)).reduce((sum, [, time]) => sum + time, 0);
      assert.ok(Math.abs(row["in tasks"] + row.idle - wide) < 1e-9 && Math.abs(causes - row.idle) < 1e-9, JSON.stringify(row));
    }
    await page.locator(".lanes").focus();
    await page.keyboard.press("f");
    const now = await view(page);
    assert.ok(Math.abs(now.from - range.from) < 1e-6 && Math.abs(now.to - range.to) < 1e-6);
    await page.keyboard.press("Escape");
    assert.equal(await page.evaluate(() => timeline.range), null);
    assert.equal(await page.locator("table.range").count(), 0);
    assert.deepEqual(page.complaints, []);
  });

  test("counts a pair that shares its device once", async () => {
    const { url, picture } = plot("range-pairs", "std:dualpipe", "--set", "devices=8", "--set", "microbatches=20");
    const other = await visit(url);
    await other.keyboard.press("r");
    const told = await other.evaluate(() => sumsBetween(timeline.model, 0, timeline.makespan).map(({ inTasks }) => inTasks));
    assert.deepEqual(told, picture.devices.map(({ busy }) => busy));
    await other.close();
  });
});

test("the figure is saved as pipec plot draws it; of many tasks, the command is told", async () => {
  const path = join(folder, "figure.svg");
  run("plot", ...SMALL, "-o", path);
  const page = await visit(plot("figure", ...SMALL).url);
  const [download] = await Promise.all([page.waitForEvent("download"), page.locator("[data-id=save]").click()]);
  assert.equal(download.suggestedFilename(), "1f1b.svg");
  assert.equal(readFileSync(await download.path(), "utf8"), readFileSync(path, "utf8"));
  assert.deepEqual(page.complaints.filter((one) => !one.startsWith("blob:")), []);
  await page.close();
  const large = await visit(plot("many tasks", "std:1f1b", "--set", "devices=8", "--set", "microbatches=400").url);
  await large.locator("[data-id=save]").click();
  assert.match(await large.locator("dialog[open] code").innerText(), /^pipec plot std:1f1b --set devices=8 --set microbatches=400 -o '.*many tasks\.svg'$/);
  await large.keyboard.press("Escape");
  assert.equal(await large.locator("dialog[open]").count(), 0);
  await large.close();
});

test("of idle time with several causes each is told under the pointer", async () => {
  const { url, picture } = plot("causes", ...SMALL);
  const page = await visit(url);
  const { device, cause, start, duration } = picture.gaps;
  const gap = [...cause.keys()].find((gap) => picture.causes[cause[gap]] === "communication" && picture.causes[cause[gap - 1]] === "waiting" && start[gap - 1] + duration[gap - 1] === start[gap] && device[gap - 1] === device[gap]);
  await page.mouse.move(...(await page.evaluate(([device, moment]) => {
    const { left, top } = timeline.canvas.getBoundingClientRect();
    return [left + timeline.painter.x(moment), top + timeline.rows[device].y + 5];
  }, [device[gap], start[gap] - duration[gap - 1] / 2])));
  const unit = picture.clock.ticks_per_unit;
  assert.match(await page.locator(".tip").innerText(), new RegExp(`waiting ${duration[gap - 1] / unit}, communication ${duration[gap] / unit}$`));
  await page.locator("[data-id=sums]").click();
  assert.equal(await page.locator("table.range tbody tr").count(), 4);
  await page.close();
});

test("a page holds the text of its source once, and loads nothing", () => {
  const { path, picture } = plot("once", ...SMALL);
  const html = readFileSync(path, "utf8");
  const marks = picture.sources[0].text.split("\n")[0].slice(4, 40);
  assert.equal(html.split(marks).length, 2);
  assert.doesNotMatch(html, /(src|href)=["'](?!data:)/);
});
