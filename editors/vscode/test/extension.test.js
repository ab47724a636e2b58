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
const savings = [];
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
      const panel = { title, webview: { html: "" }, shown: 0, reveal: () => (panel.shown += 1) };
      panel.onDidDispose = (listener) => (panel.dispose = listener);
      said.panels.push(panel);
      return panel;
    },
  },
  workspace: {
    getConfiguration: () => ({ get: (key) => settings[key] }),
    onDidChangeConfiguration: (listener) => listeners.push(listener),
    onDidSaveTextDocument: (listener) => savings.push(listener),
  },
  ViewColumn: { Beside: -2 },
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

/** A stand-in for pipec: it draws what it was asked, and says what is in the file. */
async function drawing(run) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "pipec-test-"));
  const command = path.join(folder, "pipec");
  const script = `#!/bin/sh
for last; do :; done
cat "$2" >&2
grep -q drawn "$2" || exit 1
shift
echo "<html><body class=x>$*</body></html>" | sed "s|-o [^<]*||; s|${folder}/||" > "$last"
`;
  fs.writeFileSync(command, script);
  fs.chmodSync(command, 0o755);
  settings = { path: command };
  const save = (name, text) => {
    const document = { fileName: path.join(folder, name), uri: "uri", languageId: "pipe", save: async () => true };
    fs.writeFileSync(document.fileName, text);
    vscode.window.activeTextEditor = { document };
    return document;
  };
  said.panels.length = 0;
  try {
    await run(save, () => said.commands["pipec.timeline"]());
  } finally {
    said.panels.forEach((panel) => panel.dispose());
    fs.rmSync(folder, { recursive: true });
  }
}

test("the timeline is the page that `pipec plot` writes, and follows the source", async () => {
  await drawing(async (save, show) => {
    vscode.window.activeTextEditor = undefined;
    await show();
    assert.match(said.errors.at(-1), /open and saved/);
    const document = save("x.pipe", "drawn");
    symbols = undefined;
    await show();
    const [panel] = said.panels;
    assert.strictEqual(panel.title, "Timeline of x.pipe");
    assert.match(panel.webview.html, /<body class=x><pre role="alert"[^>]*>drawn<\/pre>x\.pipe *<\/body>/);
    // A source with an error: the last page stays, below what is said.
    fs.writeFileSync(document.fileName, "error: 1 < 2");
    await savings[0](document);
    assert.match(panel.webview.html, /<pre role="alert"[^>]*>error: 1 &lt; 2<\/pre>x\.pipe *<\/body>/);
    // Asked again, the same panel comes forward; other files are no reason to draw.
    await show();
    assert.deepStrictEqual([said.panels.length, panel.shown], [1, 2]);
    fs.writeFileSync(document.fileName, "drawn");
    await savings[0]({ languageId: "markdown" });
    assert.match(panel.webview.html, />error: /);
    await savings[0](document);
    assert.doesNotMatch(panel.webview.html, />error: /);
    // A closed panel is not drawn any more, and may be opened anew.
    panel.dispose();
    await savings[0](document);
    await show();
    assert.strictEqual(said.panels.length, 2);
  });
});

test("what is never drawn is told in an empty panel", async () => {
  await drawing(async (save, show) => {
    symbols = [{ name: "a", detail: "schedule" }];
    save("bad.pipe", "error: rejected");
    await show();
    assert.match(said.panels[0].webview.html, /^<pre role="alert"[^>]*>error: rejected<\/pre>$/);
    settings = { path: "/no/such/command" };
    await show();
    assert.match(said.panels[0].webview.html, /ENOENT/);
  });
});

test("of several pipelines, the user chooses one", async () => {
  await drawing(async (save, show) => {
    symbols = ["schedule a", "pipeline b", "pipeline c"].map((text) => ({ detail: text.split(" ")[0], name: text.split(" ")[1] }));
    save("several.pipe", "drawn");
    pick = undefined;
    await show();
    assert.deepStrictEqual([said.offered, said.panels.length], [["b", "c"], 0]);
    pick = "c";
    await show();
    assert.match(said.panels[0].webview.html, /several\.pipe --pipeline c/);
  });
});
