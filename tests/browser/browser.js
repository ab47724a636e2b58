// What the tests share: the compiler, Chromium, and pages that are watched for errors and requests.

import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

export const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
export const pipec = process.env.PIPEC ?? join(process.env.CARGO_TARGET_DIR ?? join(root, "target"), "debug", "pipec");
export const folder = mkdtempSync(join(tmpdir(), "pipec-pages-"));

/// Whether everything is looked at, as in `.ci/full`.
export const ALL = process.env.PIPEC_ALL === "1";
/// Microbatches of the largest pages.
export const MANY = ALL ? 512 : 64;

const QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
const CHROMIUM = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

let browser;

/// One browser for all tests of a file.
export async function open() {
  const executablePath = process.env.CHROMIUM ?? CHROMIUM.find((path) => existsSync(path));
  browser = await chromium.launch({ executablePath, args: QUIET });
}

export async function close() {
  await browser?.close();
  rmSync(folder, { recursive: true, force: true });
}

/// Runs the compiler; a rejected target is no failure here.
export function run(...args) {
  try {
    return execFileSync(pipec, args, { cwd: root, maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "ignore"] }).toString();
  } catch (error) {
    if (error.status === 1) return error.stdout.toString();
    throw error;
  }
}

/// A page of its own for a target, with the picture behind it.
export function plot(name, ...target) {
  const path = join(folder, `${name}.html`);
  run("plot", ...target, "-o", path);
  return { url: `file://${path}`, path, picture: JSON.parse(run("build", ...target, "--emit", "picture")) };
}

/// Opens a page. `complaints` collects errors, and requests for anything that `allowed` does not start with.
export async function visit(url, { allowed = url.split("#")[0], ...options } = {}) {
  const page = await browser.newPage({ viewport: { width: 1300, height: 900 }, ...options });
  page.complaints = [];
  page.on("console", (message) => message.type() === "error" && page.complaints.push(message.text()));
  page.on("pageerror", (error) => page.complaints.push(String(error.stack ?? error)));
  page.on("request", (request) => request.url().startsWith(allowed) || request.url().startsWith("data:") || page.complaints.push(request.url()));
  await page.goto(url);
  return page;
}

/// Where the middle of a task is on the page.
export function middle(page, task) {
  return page.evaluate((task) => {
    const { model, painter, rows, canvas } = timeline;
    const [y, height] = painter.share(rows[model.device[task]], task);
    const { left, top } = canvas.getBoundingClientRect();
    return [left + painter.x((model.start[task] + model.end[task]) / 2), top + y + height / 2];
  }, task);
}

export const view = (page) => page.evaluate(() => ({ ...timeline.view }));
/// What is there when the frame is drawn that is due.
export const frame = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
