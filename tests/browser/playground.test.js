// The playground: compiles as one types, from any file server and from a folder; built by docs/playground/build.sh.

import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { close, folder, open, root, run, visit } from "./browser.js";

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
  assert.ok(bytes < 1.3e6, `${bytes} bytes`);
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
    const names = await page.locator(".side select option").evaluateAll((options) => options.map((one) => one.value).filter(Boolean));
    assert.ok(names.length >= 21, `${names}`);
    for (const name of names) {
      await page.locator(".side select").first().selectOption(name);
      await settled(page);
      assert.match(await page.locator(".status").innerText(), /^accepted/, name);
      const told = JSON.parse(run("check", `std:${name}`, "--format", "json"));
      assert.deepEqual(await page.evaluate(() => [timeline.model.picture.report.makespan, timeline.model.picture.report.peak_activation]), [told.makespan, told.peak_activation], name);
    }
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
