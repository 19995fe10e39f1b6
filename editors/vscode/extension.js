// The client of `roundelay lsp`, and drawings beside the text.
"use strict";

const { execFile } = require("node:child_process");
const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

/** Returns the program of the settings. */
function program() {
  return vscode.workspace.getConfiguration("roundelay").get("path", "roundelay");
}

async function start() {
  const server = { command: program(), args: ["lsp"] };
  client = new LanguageClient("roundelay", "Roundelay", server, {
    documentSelector: [{ language: "algo" }],
  });
  try {
    await client.start();
  } catch (fault) {
    const hint = "Install it (pip install roundelay), or set roundelay.path.";
    vscode.window.showErrorMessage(`roundelay lsp does not start: ${fault.message}. ${hint}`);
  }
}

async function restart() {
  if (client) await client.stop().catch(() => {});
  await start();
}

/** Shows the drawing of the algorithm of the text, as it stands in the file. */
async function draw() {
  const editor = vscode.window.activeTextEditor;
  if (!editor || editor.document.languageId !== "algo") {
    vscode.window.showInformationMessage("Open a text with an algorithm first.");
    return;
  }
  if (!(await editor.document.save())) return;
  const settings = vscode.workspace.getConfiguration("roundelay");
  const file = editor.document.uri.fsPath;
  const picture = vscode.Uri.joinPath(vscode.Uri.file(require("node:os").tmpdir()), `roundelay-${process.pid}.html`);
  const names = algorithms(editor.document.getText());
  const name = names.length > 1 ? await vscode.window.showQuickPick(names, { title: "Draw which?" }) : names[0];
  if (!name) return;
  const given = ["draw", file, "--algorithm", name, "-n", settings.get("ranks", "4"), "-o", picture.fsPath];
  execFile(program(), given, async (fault, _, said) => {
    if (fault) {
      vscode.window.showErrorMessage(said.trim() || fault.message);
      return;
    }
    const page = Buffer.from(await vscode.workspace.fs.readFile(picture)).toString("utf8");
    const panel = vscode.window.createWebviewPanel("roundelay.drawing", name, vscode.ViewColumn.Beside, {
      enableScripts: true,
    });
    panel.webview.html = page;
  });
}

/** Returns the names of the algorithms of a text. */
function algorithms(text) {
  const bare = text.replace(/\/\/.*|\/\*[^]*?\*\//g, "");
  return [...bare.matchAll(/\balgorithm\s+([A-Za-z_]\w*)/g)].map((found) => found[1]);
}

exports.activate = async (context) => {
  context.subscriptions.push(
    vscode.commands.registerCommand("roundelay.draw", draw),
    vscode.commands.registerCommand("roundelay.restart", restart),
  );
  await start();
};

exports.deactivate = () => client?.stop();
exports.algorithms = algorithms;
