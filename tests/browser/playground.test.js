// The playground: compiles as one types, from any file server and from a folder; built by docs/playground/build.sh.

import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { close, folder, middle, open, root, run, visit } from "./browser.js";

const built = join(root, "docs", "playground", "dist", "index.html");
const skip = existsSync(built) ? false : "docs/playground/build.sh was not run";

before(open);
after(close);

/// Waits until what is there now has been compiled.
const settled = (page) => page.waitForFunction(() => playground.editor && !playground.isBusy && !playground.question && playground.asked > 0 && playground.isReady);
const title = (page) => page.locator(".timeline h1").last().innerText();

async function type(page, text) {
  const asked = await page.evaluate(() => playground.asked);
  await page.locator("textarea").fill(text);
  await page.waitForFunction((asked) => playground.asked > asked, asked);
  await settled(page);
}

test("a page whose compiler is damaged says so", { skip }, async () => {
  const path = join(folder, "damaged.html");
  writeFileSync(path, readFileSync(built, "utf8").replace(/const WASM = "[^"]{4096}/, `const WASM = "${"A".repeat(4096)}`));
  const page = await visit(`file://${path}`, { allowed: "blob:" });
  await page.locator(".side", { hasText: "the compiler cannot be loaded: TypeError" }).waitFor();
  await page.close();
});

test("the page is no larger than it is said to be", { skip }, () => {
  const bytes = readFileSync(built).length;
  assert.ok(bytes < 2.2e6, `${bytes} bytes`);
});

describe("the playground", { skip }, () => {
  let page;
  before(async () => {
    page = await visit(`file://${built}`, { allowed: "blob:", viewport: { width: 1500, height: 950 } });
    page.complaints.length = 0;
    await settled(page);
  });
  after(() => page?.close());

  test("works from a folder, and shows a schedule of the gallery", async () => {
    assert.equal(await title(page), "v_half");
    const told = JSON.parse(run("check", "std:v_half", "--format", "json"));
    assert.match(await page.locator(".cards").innerText(), new RegExp(`makespan\\s+${told.makespan}\\s`));
    assert.match(await page.locator(".status").innerText(), /^accepted, \d+ ms$/);
    assert.deepEqual(page.complaints, []);
  });

  test("every schedule of the gallery is accepted, with the figures of the command line", async () => {
    const names = await page.getByLabel("Standard schedules").locator("option").evaluateAll((options) => options.map((one) => one.value).filter(Boolean));
    assert.ok(names.length >= 21, `${names}`);
    for (const name of names) {
      await page.locator(".side select").first().selectOption(name);
      await settled(page);
      assert.match(await page.locator(".status").innerText(), /^accepted/, name);
      const told = JSON.parse(run("check", `std:${name}`, "--format", "json"));
      assert.deepEqual(await page.evaluate(() => [timeline.model.picture.report.makespan, timeline.model.picture.report.peak_activation]), [told.makespan, told.peak_activation], name);
    }
  });

  test("every example of the menu is accepted or shows its error, without options", async () => {
    await page.getByLabel("devices", { exact: true }).fill("3");
    const examples = await page.evaluate(() => playground.exampleGroups.flatMap(({ examples }) => examples));
    assert.ok(examples.length >= 10 && examples.some(({ error }) => error === "deadlock"));
    for (const { shows, source, error } of examples) {
      await page.getByLabel("Examples").selectOption(shows);
      await settled(page);
      assert.equal(await page.locator("textarea").inputValue(), source);
      assert.match(await page.locator(".status").innerText(), error ? /^rejected/ : /^accepted/, shows);
      assert.equal(await page.locator("#findings li").count(), error ? 1 : 0, shows);
      if (error) assert.match(await page.locator("#findings li").innerText(), new RegExp(`error\\[${error}\\]`));
    }
    assert.equal(await page.getByLabel("devices", { exact: true }).inputValue(), "");
    assert.equal(await page.getByLabel("Standard schedules").inputValue(), "");
    await page.getByLabel("Standard schedules").selectOption("1f1b");
    await settled(page);
    assert.equal(await page.getByLabel("Examples").inputValue(), "");
  });

  test("a task marks its statement in the editor, and the cursor and the pointer light the tasks of theirs", async () => {
    const source = "// ünïcode 🦀\nschedule own {\n    stages D\n    place s on s\n    block every 3 {\n        F[s] at s\n        BW[s]\n            at D + 2 * (D - 1 - s)\n    }\n}\n";
    await type(page, source);
    const lit = () => page.evaluate(() => [...new Set([...(timeline.tasksLit() ?? [])].map((task) => timeline.model.kindOf(task).letters))].join());
    const put = async (at) => page.evaluate((at) => {
      playground.editor.area.focus();
      playground.editor.area.setSelectionRange(at, at);
    }, at);
    await put(source.indexOf("F[s]") + 2);
    await page.waitForFunction(() => timeline.atCursor >= 0);
    assert.equal(await lit(), "F");
    assert.equal(await page.evaluate(() => timeline.tasksLit().length), 32);
    // Where a line has one statement, all of the line is it; a comment has none.
    await put(source.indexOf("at D"));
    await page.waitForTimeout(50);
    assert.equal(await lit(), "BW");
    await put(3);
    await page.waitForFunction(() => timeline.atCursor < 0);
    assert.equal(await lit(), "");
    // What was lit stays while one types, and holds for the new picture.
    await put(source.indexOf("F[s]") + 5);
    await page.keyboard.type(" ");
    await page.waitForFunction(() => playground.edited.source() >= 0);
    assert.equal(await lit(), "F");
    const [x, y] = await page.evaluate(() => {
      const { left, top } = playground.editor.area.getBoundingClientRect();
      const box = playground.editor.box(playground.editor.text.indexOf("BW[s]") + 1);
      const desk = playground.editor.root.getBoundingClientRect();
      return [desk.left + box.left + 3, desk.top + box.top + 9];
    });
    await page.mouse.move(x, y);
    assert.equal(await lit(), "BW");
    // A task under the pointer, and one that is selected.
    const boxes = (name) => page.locator(`.lights .${name}`).count();
    await page.mouse.move(...(await middle(page, 0)));
    assert.deepEqual([await boxes("under"), await boxes("own")], [1, 0]);
    const backward = await page.evaluate(() => timeline.model.kind.findIndex((kind) => timeline.model.picture.kinds[kind].letters === "BW"));
    await page.mouse.click(...(await middle(page, backward)));
    assert.deepEqual([await boxes("under"), await boxes("own")], [2, 2]);
    const covers = await page.locator(".lights .own").first().evaluate((one) => {
      const [own, desk] = [one.getBoundingClientRect(), playground.editor.root.getBoundingClientRect()];
      const at = playground.editor.text.indexOf("BW[s]");
      const [from, to] = [playground.editor.box(at), playground.editor.box(at + 5)];
      return Math.abs(own.top - desk.top - from.top) < 2 && Math.abs(own.left - desk.left - from.left) < 4 && Math.abs(own.right - desk.left - to.left) < 4;
    });
    assert.ok(covers, "the mark is around its words");
    assert.equal(await lit(), "", "the cursor is no longer in the editor");
    await page.locator(".details .jump", { hasText: "line 7 of playground.pipe" }).click();
    assert.equal(await page.evaluate(() => playground.editor.area.selectionStart), (await page.locator("textarea").inputValue()).indexOf("BW[s]"));
    // The text of a standard schedule stands beside the lanes.
    await page.getByLabel("Examples").selectOption("a model and its pipeline");
    await settled(page);
    await page.locator("[data-id=source]").first().click();
    assert.match(await page.locator(".listing h3").first().innerText(), /^std:/);
    await page.locator("[data-id=source]").first().click();
  });

  test("a fix is applied by a button or its key, and Ctrl Z takes it back", async () => {
    const source = "// ünïcode 🦀\nschedule near {\n    stages D\n    place s on s\n    block every 3 { F[s] at s BW[s] at D + 2 * (D - 1 - s) }\n}\npipeline p { devices 2 microbatches 4 schedule nera }\n";
    await type(page, source);
    const apply = page.getByRole("button", { name: "apply the fix of: " });
    await apply.focus();
    await page.keyboard.press("Enter");
    assert.equal(await page.locator("textarea").inputValue(), source.replace("nera", "near"));
    await page.locator(".status", { hasText: "accepted" }).waitFor();
    assert.equal(await page.evaluate(() => document.activeElement === playground.editor.area), true);
    assert.equal(await apply.count(), 0);
    await page.keyboard.press("Control+z");
    assert.equal(await page.locator("textarea").inputValue(), source);
    await page.locator(".status", { hasText: "rejected" }).waitFor();
    await apply.click();
    await page.locator(".status", { hasText: "accepted" }).waitFor();
  });

  test("offers what can be written, by keys, and Escape leaves it", async () => {
    const source = "schedule own {\n    stages D\n    place s on s\n    \n}\n";
    await type(page, source);
    const put = (at) => page.evaluate((at) => playground.editor.area.setSelectionRange(at, at), at);
    const offers = page.getByRole("listbox", { name: "What can be written" });
    await put(source.indexOf("\n}"));
    await page.keyboard.type("bl");
    await offers.waitFor();
    assert.deepEqual(await offers.getByRole("option").locator("b").allInnerTexts(), ["block"]);
    assert.equal(await page.locator("textarea").getAttribute("aria-activedescendant"), "offer-0");
    await page.keyboard.press("Escape");
    assert.equal(await offers.isVisible(), false);
    await page.keyboard.press("Control+ ");
    await offers.waitFor();
    await page.keyboard.press("Enter");
    assert.equal(await page.locator("textarea").inputValue(), source.replace("    \n}", "    block\n}"));
    await page.keyboard.press("Control+z");
    assert.equal(await page.locator("textarea").inputValue(), source.replace("    \n}", "    bl\n}"));
    await put(source.indexOf("D\n"));
    await page.keyboard.press("Control+ ");
    await offers.waitFor();
    await page.keyboard.press("ArrowDown");
    const second = await offers.getByRole("option", { selected: true }).locator("b").innerText();
    assert.equal(second, (await offers.getByRole("option").locator("b").allInnerTexts())[1]);
    // A word that is whole needs no offer, so that Enter goes to the next line.
    await page.keyboard.press("Escape");
    await put(source.indexOf("stages") + 5);
    await page.keyboard.press("Delete");
    await page.keyboard.type("s");
    await page.waitForTimeout(150);
    assert.equal(await offers.isVisible(), false);
  });

  test("says what a word means, by a key and under the pointer", async () => {
    const source = "/// Twice as many.\nschedule own {\n    stages D\n    place s on s\n    block every 3 { F[s] at s BW[s] at D + 2 * (D - 1 - s) }\n}\n";
    await type(page, source);
    const card = page.locator(".card");
    await page.evaluate((at) => playground.editor.area.setSelectionRange(at, at), source.indexOf("own"));
    await page.locator("textarea").focus();
    await page.keyboard.press("Control+i");
    await card.waitFor();
    assert.match(await card.innerText(), /schedule own\s+Twice as many\./);
    await page.keyboard.press("Escape");
    assert.equal(await card.isVisible(), false);
    const { left, top } = await page.evaluate((at) => {
      const { x, y } = playground.editor.root.getBoundingClientRect();
      const box = playground.editor.box(at);
      return { left: x + box.left, top: y + box.top };
    }, source.indexOf("D\n"));
    await page.mouse.move(left + 3, top + 9);
    await card.filter({ hasText: "The number of devices" }).waitFor();
    await page.mouse.move(left + 60, top + 9);
    await card.waitFor({ state: "hidden" });
  });

  test("a schedule is compared with another one on the same time axis, and a link says so", async () => {
    await page.getByLabel("Standard schedules").selectOption("1f1b");
    await page.getByLabel("Compare with").selectOption("zb_h1");
    await page.locator(".difference", { hasText: "zb_h1 is 6 shorter (18.2%), mean bubble 11.1% instead of 27.3%, the same peak" }).waitFor();
    const views = () => page.evaluate(() => [timeline, timeline.partner].map(({ view, model }) => [view.from / model.perUnit, view.to / model.perUnit]));
    const close = ([one, other]) => one.forEach((moment, index) => assert.ok(Math.abs(moment - other[index]) < 1e-9, `${one} ${other}`));
    close(await views());
    assert.ok((await views())[1][1] >= 33);
    await page.evaluate(() => timeline.partner.look(4, 9));
    close(await views());
    assert.ok((await views())[0][1] < 20);
    await page.evaluate(() => playground.remembered);
    const other = await visit(page.url(), { allowed: "blob:" });
    await other.locator(".difference", { hasText: "zb_h1 is 6 shorter" }).waitFor();
    await other.close();
    await page.getByLabel("Examples").selectOption("a deadlock");
    await page.getByLabel("Compare with").selectOption("1f1b");
    await page.locator(".difference", { hasText: "Below: 1f1b, which takes 15" }).waitFor();
    // A pipeline keeps what it has, under the other schedule.
    await page.getByLabel("Examples").selectOption("a model and its pipeline");
    await page.getByLabel("Compare with").selectOption("1f1b");
    await page.locator(".difference", { hasText: /1f1b is .* longer/ }).waitFor();
    assert.equal(await page.evaluate(() => timeline.partner.model.picture.report.pipeline), "compress");
    await page.getByLabel("Compare with").selectOption("");
    await settled(page);
    assert.equal(await page.locator(".beside").count(), 0);
  });

  test("a search finds a shorter schedule, writes it, and says when nothing is shorter", async () => {
    await page.getByLabel("Standard schedules").selectOption("1f1b");
    await settled(page);
    const [source, before] = await page.evaluate(() => [playground.editor.text, timeline.model.picture.report.makespan]);
    await page.getByRole("button", { name: "search" }).click();
    await page.waitForFunction((before) => !playground.searching && playground.answered.ok && timeline.model.picture.report.makespan < before, before);
    assert.match(await page.locator("textarea").inputValue(), /^\/\/\/ Found by `pipec search playground.pipe`: makespan \d+, proved optimal/);
    await page.keyboard.press("Control+z");
    assert.equal(await page.locator("textarea").inputValue(), source);
    await page.getByLabel("Standard schedules").selectOption("zb_h1");
    await settled(page);
    await page.getByRole("button", { name: "search" }).click();
    await page.locator(".status", { hasText: /^nothing is shorter than \d+: proved$/ }).waitFor();
    const options = { devices: "6", microbatches: "24", cost: "F=3,B=4,W=5,comm=0.7" };
    for (const [name, value] of Object.entries(options)) await page.getByLabel(name, { exact: true }).fill(value);
    await page.waitForFunction(() => timeline.model.nDevices === 6 && timeline.model.picture.microbatches[0] === 24);
    await page.getByRole("button", { name: "search" }).click();
    await page.locator(".status", { hasText: /^searching, / }).waitFor();
    await page.getByRole("button", { name: "stop" }).click();
    assert.equal(await page.locator(".status").innerText(), "the search was stopped");
    for (const name of Object.keys(options)) await page.getByLabel(name, { exact: true }).fill("");
    await page.waitForFunction(() => timeline.model.nDevices === 4);
  });

  test("the source and the picture are saved as files, as the command line writes them", async () => {
    await page.getByLabel("Standard schedules").selectOption("1f1b");
    await settled(page);
    const [saved] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "save .pipe" }).click()]);
    assert.equal(saved.suggestedFilename(), "1f1b.pipe");
    assert.equal(readFileSync(await saved.path(), "utf8"), await page.locator("textarea").inputValue());
    const [figure] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "save .svg" }).click()]);
    assert.equal(figure.suggestedFilename(), "1f1b.svg");
    const path = join(folder, "1f1b.svg");
    run("plot", "std:1f1b", "-o", path);
    assert.equal(readFileSync(await figure.path(), "utf8"), readFileSync(path, "utf8"));
  });

  test("nothing is wider than a telephone", async () => {
    await page.setViewportSize({ width: 390, height: 844 });
    for (const [example, versus] of [["a deadlock", ""], ["memory that does not suffice", ""], ["a model and its pipeline", "gpipe"]]) {
      await page.getByLabel("Examples").selectOption(example);
      await page.getByLabel("Compare with").selectOption(versus);
      await settled(page);
      const wide = await page.evaluate(() => [...document.querySelectorAll("main *")]
        .filter((one) => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".paper, .devices, .bubble, [hidden]")).map((one) => `${one.tagName}.${one.className}`));
      assert.deepEqual([wide, await page.evaluate(() => document.documentElement.scrollWidth)], [[], 390], example);
    }
    await page.getByLabel("Compare with").selectOption("");
    await page.setViewportSize({ width: 1500, height: 950 });
  });

  test("options are those of the command line, and mistakes in them are told beside them", async () => {
    await page.locator(".side select").first().selectOption("1f1b");
    await settled(page);
    await page.getByLabel("devices", { exact: true }).fill("6");
    await page.getByLabel("microbatches", { exact: true }).fill("12");
    await page.getByLabel("cost", { exact: true }).fill("comm=0.5");
    await page.waitForFunction(() => playground.asked && timeline.model.nDevices === 6 && timeline.model.picture.microbatches[0] === 12 && timeline.model.perUnit === 2);
    const told = JSON.parse(run("check", "std:1f1b", "--set", "devices=6", "--set", "microbatches=12", "--cost", "comm=0.5", "--format", "json"));
    assert.equal(await page.evaluate(() => timeline.model.picture.report.makespan), told.makespan);
    await page.getByLabel("memory", { exact: true }).fill("5");
    await page.locator(".verdict", { hasText: "d0 holds 6 units" }).waitFor();
    await page.getByLabel("memory", { exact: true }).fill("a lot");
    await page.locator("#findings li", { hasText: "expected a number" }).waitFor();
    assert.equal(await page.getByLabel("memory", { exact: true }).getAttribute("aria-invalid"), "true");
    for (const name of ["devices", "microbatches", "cost", "memory"]) await page.getByLabel(name, { exact: true }).fill("");
    await page.waitForFunction(() => timeline.model.nDevices === 4);
  });

  test("says what is wrong at its place, while the last picture stays", async () => {
    const source = await page.evaluate(() => playground.schedules.get("1f1b"));
    await type(page, source.replace(/(F\[s\] +at) s/, "$1 x"));
    assert.equal(await page.locator(".paper mark").innerText(), "x");
    assert.match(await page.locator(".paper .message").innerText(), /`x`/);
    assert.match(await page.locator("#findings li").first().innerText(), /line \d+\s*error\[unknown-name\]/);
    assert.equal(await title(page), "1f1b");
    assert.equal(await page.evaluate(() => timeline.root.classList.contains("stale")), true);
    await page.locator("#findings .jump").first().click();
    const place = await page.evaluate(() => playground.editor.area.selectionStart);
    assert.equal(place, (await page.locator("textarea").inputValue()).search(/at x\s/) + 3);
    await type(page, source);
    assert.equal(await page.locator(".paper mark").count(), 0);
    assert.equal(await page.evaluate(() => timeline.root.classList.contains("stale")), false);
  });

  test("keeps what is looked at while one types", async () => {
    const source = await page.evaluate(() => playground.schedules.get("1f1b"));
    await page.evaluate(() => {
      timeline.look(5, 12);
      timeline.select(5, false);
    });
    const state = await page.evaluate(() => timeline.state());
    await type(page, `${source}\n// a remark\n`);
    assert.deepEqual(await page.evaluate(() => timeline.state()), state);
    assert.equal(await page.locator(".side select").first().inputValue(), "");
  });

  test("a schedule that is stuck is drawn with its cycle", async () => {
    await type(page, "schedule stuck {\n    stages D\n    place s on s\n    order d {\n        if d == 0 { repeat M { F[d] BW[d] } }\n        else { repeat M { F[d] } repeat M { BW[d] } }\n    }\n}\n");
    assert.match(await page.locator(".status").innerText(), /^rejected/);
    assert.match(await page.locator(".waits").innerText(), /d0 at BW s0 m0 \(line 5\) waits for BW s1 m0 of d1 \(line 6\)/);
    assert.equal(await page.evaluate(() => timeline.root.classList.contains("stale")), false);
    await page.getByLabel("Standard schedules").selectOption("1f1b");
    await settled(page);
    assert.equal(await page.locator(".waits").count(), 0);
    assert.equal(await page.evaluate(() => timeline.memory.unit), "units");
  });

  test("a link carries the source and the options", async () => {
    const text = "// ünïcode\nschedule linked { stages D place s on s block every 3 { F[s] at s BW[s] at D + 2 * (D - 1 - s) } }\n";
    await page.getByLabel("devices", { exact: true }).fill("3");
    await type(page, text);
    await page.evaluate(() => playground.remembered);
    assert.match(page.url(), /#z\.[\w-]+$/);
    const other = await visit(page.url(), { allowed: "blob:" });
    await settled(other);
    assert.equal(await other.locator("textarea").inputValue(), text);
    assert.equal(await title(other), "linked");
    assert.equal(await other.evaluate(() => timeline.model.nDevices), 3);
    await other.close();
    await page.getByLabel("devices", { exact: true }).fill("");
  });

  test("a link of an earlier version, which is not deflated, is read", async () => {
    const text = "schedule earlier { stages D place s on s block every 3 { F[s] at s BW[s] at D + 2 * (D - 1 - s) } }\n";
    const packed = Buffer.from(JSON.stringify({ source: text, settings: { devices: 3 } })).toString("base64url");
    const other = await visit(`${page.url().split("#")[0]}#${packed}`, { allowed: "blob:" });
    await settled(other);
    assert.equal(await other.locator("textarea").inputValue(), text);
    assert.equal(await other.evaluate(() => timeline.model.nDevices), 3);
    await other.close();
  });

  test("what is too large is refused, and typing goes on meanwhile", async () => {
    await page.locator(".side select").first().selectOption("1f1b");
    await page.getByLabel("devices", { exact: true }).fill("1000");
    await page.getByLabel("microbatches", { exact: true }).fill("100000");
    await page.locator("#findings li", { hasText: "too-large" }).waitFor();
    const frames = page.evaluate(async () => {
      const gaps = [];
      let last = performance.now();
      for (let count = 0; count < 40; count++) {
        await new Promise(requestAnimationFrame);
        gaps.push(performance.now() - last);
        last = performance.now();
      }
      return Math.max(...gaps);
    });
    await page.getByLabel("devices", { exact: true }).fill("64");
    await page.getByLabel("microbatches", { exact: true }).fill("256");
    await page.waitForFunction(() => timeline.model.nDevices === 64 && timeline.model.picture.microbatches[0] === 256);
    assert.ok((await frames) < 1500, `the page stood still for ${await frames} ms`);
    for (const name of ["devices", "microbatches"]) await page.getByLabel(name, { exact: true }).fill("");
    await page.waitForFunction(() => timeline.model.nDevices === 4);
  });

  test("after a panic one is asked to report it, and the compiler starts anew", async () => {
    await page.evaluate(() => {
      playground.asked += 1;
      playground.told({ id: playground.asked, bug: "panicked at a line" });
    });
    assert.match(await page.locator("#findings li").first().innerText(), /this is a bug in pipec, please report it with the source: panicked at a line/);
    await settled(page);
    await page.locator(".side select").first().selectOption("zb_v");
    await page.locator("h1", { hasText: "zb_v" }).waitFor();
  });

  test("loads nothing and complains of nothing", () => {
    assert.doesNotMatch(readFileSync(built, "utf8").replace(/const WASM = "[^"]*";/, ""), /(src|href)=["'](?!data:)|@import|https?:\/\//);
    assert.deepEqual(page.complaints, []);
  });
});

test("the playground works from a file server", { skip }, async () => {
  const server = createServer((_, answer) => answer.end(readFileSync(built)));
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  try {
    const address = `http://127.0.0.1:${server.address().port}/`;
    const page = await visit(address, { allowed: address });
    await settled(page);
    assert.equal(await title(page), "v_half");
    assert.deepEqual(page.complaints.filter((one) => !one.startsWith("blob:")), []);
    await page.close();
  } finally {
    server.close();
    server.closeAllConnections();
  }
});
