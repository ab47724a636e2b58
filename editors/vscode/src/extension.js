// Starts `pipec lsp` for .pipe files, and shows the page that `pipec plot` draws; everything else is their work.

const { execFile } = require("node:child_process");
const fs = require("node:fs/promises");
const os = require("node:os");
const path = require("node:path");
const { window, workspace, commands, ViewColumn } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

/** @type {LanguageClient | undefined} */
let client;

const pipec = () => workspace.getConfiguration("pipec").get("path") || "pipec";

async function start() {
  const command = pipec();
  const server = { command, args: ["lsp"] };
  client = new LanguageClient("pipec", "pipec", server, { documentSelector: [{ language: "pipe" }] });
  try {
    await client.start();
  } catch (error) {
    client = undefined;
    window.showErrorMessage(`pipec: \`${command} lsp\` does not start (${error.message ?? error}). The setting pipec.path says where it is.`);
  }
}

async function stop() {
  const running = client;
  client = undefined;
  await running?.stop();
}

/** The timeline of the saved file, in a tab beside its text; what speaks against it where there is none. */
async function timeline() {
  const document = window.activeTextEditor?.document;
  if (document?.languageId !== "pipe" || document.isUntitled || !(await document.save())) {
    window.showErrorMessage("pipec: a timeline is that of a .pipe file that is open and saved.");
    return;
  }
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), "pipec-"));
  try {
    const page = path.join(folder, "timeline.html");
    const said = await new Promise((resolve) => {
      execFile(pipec(), ["plot", document.fileName, "-o", page], (error, _, text) => resolve(text || error?.message));
    });
    const html = await fs.readFile(page, "utf8").catch(() => undefined);
    if (html === undefined) {
      window.showErrorMessage(`pipec: there is no timeline. ${said ?? ""}`);
      return;
    }
    const title = path.basename(document.fileName);
    const panel = window.createWebviewPanel("pipec.timeline", title, ViewColumn.Beside, { enableScripts: true });
    panel.webview.html = html;
  } finally {
    await fs.rm(folder, { recursive: true, force: true });
  }
}

async function activate(context) {
  context.subscriptions.push(
    commands.registerCommand("pipec.timeline", timeline),
    commands.registerCommand("pipec.restart", async () => {
      await stop();
      await start();
    }),
    workspace.onDidChangeConfiguration(async (event) => {
      if (event.affectsConfiguration("pipec.path")) {
        await stop();
        await start();
      }
    }),
  );
  await start();
}

module.exports = { activate, deactivate: stop };
