// Starts `pipec lsp` for .pipe files, and shows their timelines; everything else is pipec's work.

const { window, workspace, commands } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");
const timeline = require("./timeline.js");

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

async function activate(context) {
  context.subscriptions.push(
    ...timeline.register(pipec),
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
