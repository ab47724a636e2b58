// The timeline of a .pipe file in a panel beside its text: the page that `pipec plot` writes, drawn again as one types.
// What speaks against the text is shown above it, and the last picture that could be drawn stays. A task marks its
// statement in the text, and the cursor there lights the tasks of its statement.

const path = require("node:path");
const { window, workspace, commands, ViewColumn, Uri } = require("vscode");
const pipec = require("./pipec.js");
const marks = require("./marks.js");

/** How long no key is pressed before a text is drawn, in milliseconds. */
const SILENCE = 300;

/** @type {Map<string, Timeline>} By the path of the source. */
const open = new Map();

const escaped = (text) => text.replace(/[&<>"]/g, (mark) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[mark]);

/** A page that says why there is no picture. */
function without(text) {
  const style = "margin:0;padding:10px 14px;white-space:pre-wrap;overflow-x:auto;font:12px/1.45 var(--vscode-editor-font-family,monospace);"
    + "color:var(--vscode-editor-foreground);background:var(--vscode-inputValidation-errorBackground,#5a1d1d33);"
    + "border:1px solid var(--vscode-inputValidation-errorBorder,#be1100)";
  return `<!DOCTYPE html><html lang="en"><body><pre role="alert" style="${style}">${escaped(text)}</pre></body></html>`;
}

/** One panel. */
class Timeline {
  constructor(command, document, choice) {
    Object.assign(this, { command, document, choice, file: document.fileName, name: path.basename(document.fileName) });
    // The version of the text that is drawn; whether the page answers, and what it is told as soon as it does.
    Object.assign(this, { drawn: -1, isReady: false, pending: null, running: null });
    const column = { viewColumn: ViewColumn.Beside, preserveFocus: true };
    this.panel = window.createWebviewPanel("pipec.timeline", `Timeline of ${this.name}`, column, { enableScripts: true, retainContextWhenHidden: true });
    this.panel.onDidDispose(() => this.close());
    this.panel.webview.onDidReceiveMessage((message) => this.told(message));
    open.set(this.file, this);
  }

  close() {
    clearTimeout(this.timer);
    this.running?.abort();
    marks.clear(this.file);
    if (open.get(this.file) === this) open.delete(this.file);
  }

  /** The text has changed: it is drawn when nothing more comes. */
  changed() {
    this.send({ fresh: false });
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.draw(), SILENCE);
  }

  /** Draws the text as it is. Where another drawing begins meanwhile, that one is shown. */
  async draw() {
    clearTimeout(this.timer);
    this.running?.abort();
    const running = this.running = new AbortController();
    const { version } = this.document;
    const source = { text: this.document.getText(), name: this.name, folder: path.dirname(this.file), signal: running.signal };
    // The page of a pipec that does not answer is written anew.
    const told = this.isReady ? await pipec.picture(this.command(), source, this.choice) : await pipec.page(this.command(), source, this.choice);
    if (running.signal.aborted || open.get(this.file) !== this) return;
    this.drawn = version;
    const { page, picture, said } = told;
    const fresh = Boolean(page ?? picture) && this.document.version === version;
    if (this.isReady) this.send({ fresh, picture, findings: said });
    else if (page) {
      this.pending = { fresh, findings: said };
      this.panel.webview.html = page.replace("<html", () => `<html data-edited="${escaped(this.name)}"`);
    } else this.panel.webview.html = without(said);
    this.look(window.activeTextEditor);
  }

  /** What the page says. */
  told({ ready, marks: shown, go, figure }) {
    if (ready) {
      this.isReady = true;
      if (this.pending) this.send(this.pending);
      this.pending = null;
      this.look(window.activeTextEditor);
    }
    if (shown) marks.show(this.file, shown);
    if (go) marks.go(this.document, go);
    if (figure) this.save();
  }

  /** Saves the picture of the text where the user says. */
  async save() {
    const uri = await window.showSaveDialog({ defaultUri: Uri.file(this.file.replace(/(\.pipe)?$/, ".svg")), filters: { Pictures: ["svg", "pdf"] } });
    if (!uri) return;
    const source = { text: this.document.getText(), name: this.name, folder: path.dirname(this.file) };
    const said = await pipec.plot(this.command(), source, this.choice, uri.fsPath);
    if (said) window.showWarningMessage(said);
  }

  /** The cursor is somewhere in an editor. */
  look(editor) {
    const isHere = editor?.document.fileName === this.file;
    this.send({ cursor: isHere ? marks.place(editor.document, editor.selection.active) : null });
  }

  send(message) {
    if (this.isReady) this.panel.webview.postMessage(message);
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
  if (document?.languageId !== "pipe") {
    window.showErrorMessage("pipec: a timeline is that of a .pipe file that is open.");
    return;
  }
  const choice = await chosen(document);
  if (!choice) return;
  const shown = open.get(document.fileName) ?? new Timeline(command, document, choice);
  Object.assign(shown, { document, choice });
  shown.panel.reveal(undefined, true);
  await shown.draw();
}

/** What the editor disposes of when the extension ends. */
const register = (command) => [
  commands.registerCommand("pipec.timeline", () => show(command)),
  workspace.onDidChangeTextDocument(({ document }) => open.get(document.fileName)?.changed()),
  // A source may be imported by others, which read it from its file.
  workspace.onDidSaveTextDocument((document) => {
    if (document.languageId !== "pipe") return undefined;
    return Promise.all([...open.values()].filter(({ file, drawn }) => file !== document.fileName || drawn !== document.version).map((timeline) => timeline.draw()));
  }),
  window.onDidChangeTextEditorSelection(({ textEditor }) => open.get(textEditor.document.fileName)?.look(textEditor)),
  window.onDidChangeActiveTextEditor((editor) => open.forEach((timeline) => timeline.look(editor))),
  ...marks.register(),
];

module.exports = { register };
