// `pipec watch`: the page follows the file, and what is looked at stays.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close, folder, open, pipec, root, view, visit } from "./browser.js";

before(open);
after(close);

const source = (extra) => `schedule s {
    stages D
    place s on s
    block every 3 {
        F[s] at s
        BW[s] at D + ${extra} + 2 * (D - 1 - s)
    }
}
`;

/// Starts a watch, and waits for its address.
async function watch(path) {
  const child = spawn(pipec, ["watch", path, "--set", "devices=4", "--set", "microbatches=12", "--port", "0"], { cwd: root, stdio: ["ignore", "pipe", "ignore"] });
  let said = "";
  for await (const piece of child.stdout) {
    said += piece;
    const address = said.match(/http:\/\/[^ ,]*/);
    if (address) {
      child.stdout.resume();
      return { child, address: address[0] };
    }
  }
  throw new Error(`no address: ${said}`);
}

test("redraws what is saved, keeps the view, and shows errors beside the last picture", async () => {
  const home = join(folder, "watch");
  mkdirSync(home, { recursive: true });
  const path = join(home, "x.pipe");
  writeFileSync(path, source(0));
  const { child, address } = await watch(path);
  try {
    const page = await visit(address);
    await page.locator("h1", { hasText: "s" }).waitFor();
    await page.evaluate(() => {
      timeline.look(10, 20);
      timeline.select(6, false);
    });
    const [old, name] = [await view(page), await page.evaluate(() => timeline.model.name(timeline.selected))];
    writeFileSync(path, source(0).replace("schedule s", "schedule renamed"));
    await page.locator("h1", { hasText: "renamed" }).waitFor();
    assert.deepEqual(await view(page), old);
    assert.equal(await page.evaluate(() => timeline.model.name(timeline.selected)), name);
    writeFileSync(path, source("x"));
    await page.locator(".notice", { hasText: "unknown-name" }).waitFor();
    assert.equal(await page.locator("h1").innerText(), "renamed");
    assert.equal(await page.evaluate(() => timeline.root.classList.contains("stale")), true);
    writeFileSync(path, source(0).replace("schedule s", "schedule mended"));
    await page.locator("h1", { hasText: "mended" }).waitFor();
    assert.equal(await page.locator(".notice").isVisible(), false);
    assert.deepEqual(await view(page), old);
    assert.deepEqual(page.complaints, []);
    child.kill("SIGINT");
    const code = await new Promise((done) => child.on("exit", done));
    assert.equal(code, 0);
    await page.locator(".notice", { hasText: "pipec watch has ended" }).waitFor();
    await page.close();
  } finally {
    child.kill("SIGKILL");
  }
});
