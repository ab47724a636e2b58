// Runs pipec on the text of a document as the editor has it, saved or not.

const { spawn } = require("node:child_process");
const fs = require("node:fs/promises");
const os = require("node:os");
const path = require("node:path");

/** How long one run may take, in milliseconds. */
const LONGEST = 60_000;

/** What pipec calls a source that it reads from standard input. */
const INPUT = "<stdin>";

/** Runs pipec on a text; what it writes and says. `signal` ends it. */
function run(command, args, { text, folder, signal }) {
  return new Promise((resolve) => {
    const env = { ...process.env, NO_COLOR: "1", COLUMNS: "100" };
    const child = spawn(command, args, { cwd: folder, env, timeout: LONGEST, signal, stdio: "pipe" });
    const out = [], said = [];
    let failed = "";
    child.stdout.on("data", (piece) => out.push(piece));
    child.stderr.on("data", (piece) => said.push(piece));
    child.on("error", (error) => {
      failed = error.name === "AbortError" ? "" : `pipec: ${error.message}. The setting pipec.path says where it is.`;
      if (child.pid === undefined) resolve({ out: "", said: failed });
    });
    child.on("close", (_, killed) => {
      const late = killed && !signal?.aborted ? `pipec: it was not done after ${LONGEST / 1000} s` : "";
      resolve({ out: Buffer.concat(out).toString(), said: Buffer.concat(said).toString() || late || failed });
    });
    // One that ends early reads no more.
    child.stdin.on("error", () => {});
    child.stdin.end(text);
  });
}

/** A text with the source called by its own name. In JSON it stands between quotes, in a page with an escape. */
function named(text, name) {
  const own = JSON.stringify(name).replaceAll("<", "\\u003c");
  return text.replaceAll(JSON.stringify(INPUT), own).replaceAll('"\\u003cstdin>"', own);
}

/** The picture of a source, if it has one, and what speaks against it. */
async function picture(command, source, choice) {
  const { out, said } = await run(command, ["build", "-", ...choice, "--emit", "picture"], source);
  const words = said.trim().replaceAll(INPUT, source.name);
  try {
    return { picture: out === "" ? null : JSON.parse(named(out, source.name)), said: words };
  } catch (error) {
    return { picture: null, said: words || `pipec: ${error.message}` };
  }
}

/** Writes a picture of a source to a file; what was said. */
async function plot(command, source, choice, file) {
  const { said } = await run(command, ["plot", "-", ...choice, "-o", file], source);
  return said.trim().replaceAll(INPUT, source.name);
}

/** The page of a source, if it has one, and what speaks against it. */
async function page(command, source, choice) {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), "pipec-"));
  try {
    const file = path.join(folder, "timeline.html");
    const said = await plot(command, source, choice, file);
    const text = await fs.readFile(file, "utf8").catch(() => null);
    return { page: text && named(text, source.name), said };
  } finally {
    await fs.rm(folder, { recursive: true, force: true });
  }
}

module.exports = { picture, plot, page };
