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
    createWebviewPanel: (id, title) => {
      const panel = { title, webview: {} };
      said.panels.push(panel);
      return panel;
    },
  },
  workspace: {
    getConfiguration: () => ({ get: (key) => settings[key] }),
    onDidChangeConfiguration: (listener) => listeners.push(listener),
  },
  ViewColumn: { Beside: -2 },
  commands: { registerCommand: (name, run) => (said.commands[name] = run) },
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

test("the timeline is the page that `pipec plot` writes", async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "pipec-test-"));
  const command = path.join(folder, "pipec");
  fs.writeFileSync(command, '#!/bin/sh\ncase "$2" in *bad*) echo "error: rejected" >&2; exit 1;; esac\necho "<p>$1 $2</p>" > "$4"\n');
  fs.chmodSync(command, 0o755);
  settings = { path: command };
  await said.commands["pipec.timeline"]();
  assert.match(said.errors.at(-1), /open and saved/);
  const open = (fileName) => (vscode.window.activeTextEditor = { document: { fileName, languageId: "pipe", save: async () => true } });
  open("/a/x.pipe");
  await said.commands["pipec.timeline"]();
  assert.strictEqual(said.panels[0].title, "x.pipe");
  assert.strictEqual(said.panels[0].webview.html, "<p>plot /a/x.pipe</p>\n");
  open("/a/bad.pipe");
  await said.commands["pipec.timeline"]();
  assert.match(said.errors.at(-1), /there is no timeline. error: rejected/);
  assert.strictEqual(said.panels.length, 1);
  fs.rmSync(folder, { recursive: true });
});
