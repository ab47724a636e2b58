// The extension with stand-ins for the editor: which server it starts, and what it says where there is none.

const assert = require("node:assert");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const Module = require("node:module");
const { test } = require("node:test");

const said = { started: [], stopped: 0, errors: [], commands: {}, panels: [] };
let settings = {};
let fails = false;
const listeners = [];
/** What the extension listens to, by the name of the event. */
const events = {};
const on = (name) => (listener) => (events[name] = listener);
let symbols;
let pick;

class LanguageClient {
  constructor(id, name, server, options) {
    Object.assign(this, { server, options });
  }
  async start() {
    if (fails) throw new Error("spawn ENOENT");
    said.started.push([this.server.command, ...this.server.args, this.options.documentSelector[0].language]);
  }
  async stop() {
    said.stopped += 1;
  }
}
const vscode = {
  window: {
    showErrorMessage: (message) => said.errors.push(message),
    showQuickPick: async (names) => {
      said.offered = names;
      return pick;
    },
    createWebviewPanel: (id, title) => {
      const panel = { title, told: [], shown: 0, reveal: () => (panel.shown += 1) };
      panel.webview = { html: "", postMessage: (message) => panel.told.push(message), onDidReceiveMessage: (listener) => (panel.say = listener) };
      panel.onDidDispose = (listener) => (panel.dispose = listener);
      said.panels.push(panel);
      return panel;
    },
    createTextEditorDecorationType: (look) => ({ ...look, dispose: () => {} }),
    showTextDocument: async (document, column) => {
      said.shown = [document.fileName, column];
      return vscode.window.visibleTextEditors[0];
    },
    showSaveDialog: async () => said.saveAs,
    showWarningMessage: (message) => said.errors.push(message),
    onDidChangeTextEditorSelection: on("selection"),
    onDidChangeActiveTextEditor: on("active"),
    onDidChangeVisibleTextEditors: on("visible"),
    visibleTextEditors: [],
  },
  workspace: {
    getConfiguration: () => ({ get: (key) => settings[key] }),
    onDidChangeConfiguration: (listener) => listeners.push(listener),
    onDidSaveTextDocument: on("saved"),
    onDidChangeTextDocument: on("changed"),
  },
  ViewColumn: { Beside: -2 },
  OverviewRulerLane: { Center: 2 },
  TextEditorRevealType: { InCenterIfOutsideViewport: 2 },
  ThemeColor: class {},
  Uri: { file: (fsPath) => ({ fsPath }) },
  Position: class {
    constructor(line, character) {
      Object.assign(this, { line, character });
    }
  },
  Range: class {
    constructor(start, end) {
      Object.assign(this, { start, end });
    }
  },
  Selection: class {
    constructor(anchor, active) {
      Object.assign(this, { anchor, active });
    }
  },
  commands: {
    registerCommand: (name, run) => (said.commands[name] = run),
    executeCommand: async (name, uri) => {
      assert.deepStrictEqual([name, uri], ["vscode.executeDocumentSymbolProvider", "uri"]);
      return symbols;
    },
  },
};
const load = Module._load;
Module._load = (name, ...rest) =>
  name === "vscode" ? vscode : name === "vscode-languageclient/node" ? { LanguageClient } : load(name, ...rest);
const extension = require("../src/extension.js");

test("the server is the command of the setting, and starts again when that changes", async () => {
  await extension.activate({ subscriptions: [] });
  assert.deepStrictEqual(said.started, [["pipec", "lsp", "pipe"]]);
  settings = { path: "/opt/pipec" };
  await listeners[0]({ affectsConfiguration: (key) => key === "pipec.path" });
  assert.deepStrictEqual(said.started.at(-1), ["/opt/pipec", "lsp", "pipe"]);
  assert.strictEqual(said.stopped, 1);
  await said.commands["pipec.restart"]();
  assert.strictEqual(said.started.length, 3);
  fails = true;
  await said.commands["pipec.restart"]();
  assert.match(said.errors[0], /`\/opt\/pipec lsp` does not start \(spawn ENOENT\).*pipec\.path/);
  fails = false;
  await said.commands["pipec.restart"]();
  await extension.deactivate();
  assert.deepStrictEqual([said.started.length, said.stopped], [4, 4]);
});

/** A stand-in for pipec: it draws what is asked of the text that it reads, and says that text. */
const PIPEC = `#!/usr/bin/env node
const [command, ...args] = process.argv.slice(2);
const text = require("node:fs").readFileSync(0, "utf8");
process.stderr.write(text.replaceAll("drawn", "").replace("here", "<stdin>:1"));
if (!text.includes("drawn")) process.exit(1);
const file = args.includes("-o") && args.pop();
if (file) args.pop();
const words = [command, ...args].join(" ");
if (file) require("node:fs").writeFileSync(file, '<html><body>' + words + ' {"name":"\\\\u003cstdin>"}</body></html>');
else process.stdout.write(JSON.stringify({ words, sources: [{ name: "<stdin>" }] }));
`;

/** Runs something with the stand-in. `write` opens a document with a text, or changes it; `show` is the command. */
async function drawing(run) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "pipec-test-"));
  const command = path.join(folder, "pipec");
  fs.writeFileSync(command, PIPEC, { mode: 0o755 });
  settings = { path: command };
  const documents = new Map();
  const write = (name, text) => {
    const fileName = path.join(folder, name);
    const document = documents.get(name) ?? { fileName, uri: "uri", languageId: "pipe", version: 0, getText: () => document.text };
    documents.set(name, document);
    Object.assign(document, { text, version: document.version + 1, lineCount: text.split("\n").length, lineAt: (row) => ({ text: text.split("\n")[row] }) });
    const editor = { document, viewColumn: 1, marks: {}, selection: { active: { line: 0, character: 0 } }, revealRange: (range) => (editor.revealed = range) };
    editor.setDecorations = (look, ranges) => (editor.marks[look.border ? "own" : "under"] = ranges);
    vscode.window.visibleTextEditors = [editor];
    vscode.window.activeTextEditor = editor;
    return document;
  };
  said.panels.length = 0;
  try {
    await run(write, () => said.commands["pipec.timeline"](), folder);
  } finally {
    said.panels.forEach((panel) => panel.dispose());
    fs.rmSync(folder, { recursive: true });
  }
}

/** Waits until something is told. */
async function until(is) {
  for (let tries = 0; !is(); tries++) {
    assert.ok(tries < 300, "it did not come");
    await new Promise((done) => setTimeout(done, 10));
  }
}

test("the timeline is the page of the text, saved or not, and follows it", async () => {
  await drawing(async (write, show) => {
    vscode.window.activeTextEditor = undefined;
    await show();
    assert.match(said.errors.at(-1), /is open/);
    const document = write("x.pipe", "drawn warning here");
    symbols = undefined;
    await show();
    const [panel] = said.panels;
    assert.strictEqual(panel.title, "Timeline of x.pipe");
    assert.strictEqual(panel.webview.html, '<html data-edited="x.pipe"><body>plot - {"name":"x.pipe"}</body></html>');
    assert.deepStrictEqual(panel.told, []);
    panel.say({ ready: true });
    assert.deepStrictEqual(panel.told.shift(), { fresh: true, findings: "warning x.pipe:1" });
    assert.deepStrictEqual(panel.told.shift(), { cursor: { line: 1, column: 1 } });
    // A key makes it old at once, and it is drawn again in a moment.
    panel.told.length = 0;
    write("x.pipe", "drawn again");
    events.changed({ document });
    assert.deepStrictEqual(panel.told, [{ fresh: false }]);
    await until(() => panel.told.length > 1);
    assert.deepStrictEqual(panel.told[1], { fresh: true, findings: "again", picture: { words: "build - --emit picture", sources: [{ name: "x.pipe" }] } });
    // A text with an error has no picture: the page keeps the last one.
    panel.told.length = 0;
    write("x.pipe", "error here: 1 < 2");
    events.changed({ document });
    await until(() => panel.told.length > 1);
    assert.deepStrictEqual(panel.told[1], { fresh: false, findings: "error x.pipe:1: 1 < 2", picture: null });
    // Asked again, the same panel comes forward.
    await show();
    assert.deepStrictEqual([said.panels.length, panel.shown], [1, 2]);
    // A source that it may import was saved; its own text is drawn already.
    panel.told.length = 0;
    await events.saved(document);
    assert.deepStrictEqual(panel.told, []);
    await events.saved({ languageId: "pipe", fileName: "/other.pipe" });
    assert.strictEqual(panel.told[0].findings, "error x.pipe:1: 1 < 2");
    // A closed panel is not drawn any more, and may be opened anew.
    panel.dispose();
    await show();
    assert.strictEqual(said.panels.length, 2);
  });
});

test("a task marks its statement in the text, and the cursor is told", async () => {
  await drawing(async (write, show) => {
    write("x.pipe", "drawn\n  🦀 F[s] at s\n");
    await show();
    const [panel] = said.panels;
    const [editor] = vscode.window.visibleTextEditors;
    panel.say({ ready: true });
    panel.told.length = 0;
    editor.selection.active = { line: 1, character: 5 };
    events.selection({ textEditor: editor });
    events.active(undefined);
    assert.deepStrictEqual(panel.told, [{ cursor: { line: 2, column: 5 } }, { cursor: null }]);
    const statement = { line: 2, column: 5, end_line: 2, end_column: 14 };
    const there = [{ start: { line: 1, character: 5 }, end: { line: 1, character: 14 } }];
    const plain = (value) => JSON.parse(JSON.stringify(value));
    panel.say({ marks: { own: null, under: statement } });
    assert.deepStrictEqual(plain([editor.marks, editor.revealed ?? null]), [{ own: [], under: there }, null]);
    panel.say({ marks: { own: statement, under: null } });
    assert.deepStrictEqual(plain([editor.marks, editor.revealed]), [{ own: there, under: [] }, there[0]]);
    await panel.say({ go: statement });
    await until(() => editor.selection.anchor);
    assert.deepStrictEqual(plain(editor.selection.active), { line: 1, character: 5 });
    assert.strictEqual(said.shown[1], 1);
    panel.dispose();
    assert.deepStrictEqual(plain(editor.marks), { own: [], under: [] });
  });
});

test("the figure is saved where the user says", async () => {
  await drawing(async (write, show, folder) => {
    write("x.pipe", "drawn");
    await show();
    said.saveAs = { fsPath: path.join(folder, "figure.svg") };
    said.panels[0].say({ figure: true });
    await until(() => fs.existsSync(said.saveAs.fsPath) && fs.statSync(said.saveAs.fsPath).size > 0);
    assert.match(fs.readFileSync(said.saveAs.fsPath, "utf8"), /plot -/);
  });
});

test("what is never drawn is told in an empty panel", async () => {
  await drawing(async (write, show) => {
    symbols = [{ name: "a", detail: "schedule" }];
    write("bad.pipe", "error: <rejected>");
    await show();
    assert.match(said.panels[0].webview.html, /<pre role="alert"[^>]*>error: &lt;rejected&gt;<\/pre>/);
    settings = { path: "/no/such/command" };
    await show();
    assert.match(said.panels[0].webview.html, /ENOENT.*pipec\.path/);
  });
});

test("of several pipelines, the user chooses one", async () => {
  await drawing(async (write, show) => {
    symbols = ["schedule a", "pipeline b", "pipeline c"].map((text) => ({ detail: text.split(" ")[0], name: text.split(" ")[1] }));
    write("several.pipe", "drawn");
    pick = undefined;
    await show();
    assert.deepStrictEqual([said.offered, said.panels.length], [["b", "c"], 0]);
    pick = "c";
    await show();
    assert.match(said.panels[0].webview.html, /plot - --pipeline c/);
  });
});
