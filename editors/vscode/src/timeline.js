// The timeline of a .pipe file in a panel beside its text: the page that `pipec plot` writes, drawn again when a source
// is saved. What speaks against it is shown above it, and the last page that could be drawn stays.

const { execFile } = require("node:child_process");
const fs = require("node:fs/promises");
const os = require("node:os");
const path = require("node:path");
const { window, workspace, commands, ViewColumn } = require("vscode");

/** How long one drawing may take, in milliseconds. */
const LONGEST = 60_000;

/** @type {Map<string, Timeline>} By the path of the source. */
const open = new Map();

const escaped = (text) => text.replace(/[&<>]/g, (mark) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[mark]);

/** A page with a text above everything else; none where there is nothing to say. */
function told(page, text) {
  if (!text) return page;
  const style = "margin:0 0 12px;padding:10px 14px;white-space:pre-wrap;overflow-x:auto;font:12px/1.45 var(--vscode-editor-font-family,monospace);"
    + "color:var(--vscode-editor-foreground);background:var(--vscode-inputValidation-errorBackground,#5a1d1d33);"
    + "border:1px solid var(--vscode-inputValidation-errorBorder,#be1100)";
  const banner = `<pre role="alert" style="${style}">${escaped(text.trim())}</pre>`;
  const body = /<body[^>]*>/.exec(page);
  const at = body ? body.index + body[0].length : 0;
  return page.slice(0, at) + banner + page.slice(at);
}

/** The page that a command draws of a source, if it draws one, and what it says. */
async function draw(command, source, choice) {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), "pipec-"));
  try {
    const file = path.join(folder, "timeline.html");
    const options = { cwd: path.dirname(source), timeout: LONGEST, env: { ...process.env, NO_COLOR: "1", COLUMNS: "100" } };
    const said = await new Promise((resolve) => {
      execFile(command, ["plot", source, ...choice, "-o", file], options, (error, _, text) => {
        const why = error?.killed ? `pipec: there was no timeline after ${LONGEST / 1000} s` : error?.message;
        resolve(text || why || "");
      });
    });
    const page = await fs.readFile(file, "utf8").catch(() => undefined);
    return { page, said };
  } finally {
    await fs.rm(folder, { recursive: true, force: true });
  }
}

/** One panel. */
class Timeline {
  constructor(command, document, choice) {
    Object.assign(this, { command, source: document.fileName, choice, last: "", turn: 0 });
    const title = `Timeline of ${path.basename(this.source)}`;
    const column = { viewColumn: ViewColumn.Beside, preserveFocus: true };
    this.panel = window.createWebviewPanel("pipec.timeline", title, column, { enableScripts: true, retainContextWhenHidden: true });
    this.panel.onDidDispose(() => open.get(this.source) === this && open.delete(this.source));
    open.set(this.source, this);
  }

  /** Draws again. Where another drawing begins meanwhile, that one is shown. */
  async refresh() {
    const turn = ++this.turn;
    const { page, said } = await draw(this.command(), this.source, this.choice);
    if (turn !== this.turn || open.get(this.source) !== this) return;
    this.last = page ?? this.last;
    this.panel.webview.html = told(this.last, said);
  }
}

/** Which pipeline or schedule is meant: nothing to say where there is one; undefined where the user chooses none. */
async function chosen(document) {
  const symbols = (await commands.executeCommand("vscode.executeDocumentSymbolProvider", document.uri)) ?? [];
  for (const kind of ["pipeline", "schedule"]) {
    const names = symbols.filter(({ detail }) => detail === kind).map(({ name }) => name);
    if (names.length === 1) return [];
    if (names.length > 1) {
      const name = await window.showQuickPick(names, { placeHolder: `The ${kind} whose timeline is shown` });
      return name && [`--${kind}`, name];
    }
  }
  return [];
}

/** Shows the timeline of the source in the active editor; `command` gives that of pipec. */
async function show(command) {
  const document = window.activeTextEditor?.document;
  if (document?.languageId !== "pipe" || document.isUntitled || !(await document.save())) {
    window.showErrorMessage("pipec: a timeline is that of a .pipe file that is open and saved.");
    return;
  }
  const choice = await chosen(document);
  if (!choice) return;
  const shown = open.get(document.fileName) ?? new Timeline(command, document, choice);
  shown.choice = choice;
  shown.panel.reveal(undefined, true);
  await shown.refresh();
}

/** Draws all panels again: a source may be imported by others. */
const saved = async (document) => {
  if (document.languageId === "pipe") await Promise.all([...open.values()].map((timeline) => timeline.refresh()));
};

/** What the editor disposes of when the extension ends. */
const register = (command) => [
  commands.registerCommand("pipec.timeline", () => show(command)),
  workspace.onDidSaveTextDocument(saved),
];

module.exports = { register };
