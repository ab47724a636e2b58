// Statements that are marked in the text, because the timeline's pointer or selection is at a task of theirs.

const { window, OverviewRulerLane, Position, Range, Selection, TextEditorRevealType, ThemeColor } = require("vscode");

/** How a mark looks: that of the selected task, and that of the task under the pointer. */
let looks;

/** @type {Map<string, object>} What is marked, by the path of the source. */
const shown = new Map();

/** A place of the compiler, which counts characters from 1, in a document, which counts UTF-16 units from 0. */
function position(document, line, column) {
  const row = Math.min(line, document.lineCount) - 1;
  const before = [...document.lineAt(row).text].slice(0, column - 1).join("");
  return new Position(row, before.length);
}

const range = (document, { line, column, end_line, end_column }) =>
  new Range(position(document, line, column), position(document, end_line, end_column));

/** A position of a document as the compiler counts. */
function place(document, { line, character }) {
  return { line: line + 1, column: [...document.lineAt(line).text.slice(0, character)].length + 1 };
}

const editorsOf = (file) => window.visibleTextEditors.filter(({ document }) => document.fileName === file);

function paint(editor) {
  const marks = shown.get(editor.document.fileName) ?? {};
  for (const [name, look] of Object.entries(looks)) editor.setDecorations(look, marks[name] ? [range(editor.document, marks[name])] : []);
}

/** Marks the statements of the tasks that are looked at; that of the selected one is brought into view. */
function show(file, marks) {
  const isNew = marks.own && JSON.stringify(marks.own) !== JSON.stringify(shown.get(file)?.own);
  shown.set(file, marks);
  for (const editor of editorsOf(file)) {
    paint(editor);
    if (isNew) editor.revealRange(range(editor.document, marks.own), TextEditorRevealType.InCenterIfOutsideViewport);
  }
}

function clear(file) {
  shown.delete(file);
  editorsOf(file).forEach(paint);
}

/** Puts the cursor where a statement is. */
async function go(document, where) {
  const [there] = editorsOf(document.fileName);
  const editor = await window.showTextDocument(document, there?.viewColumn);
  const { start } = range(document, where);
  editor.selection = new Selection(start, start);
  editor.revealRange(range(document, where), TextEditorRevealType.InCenterIfOutsideViewport);
}

/** What the editor disposes of when the extension ends. */
function register() {
  const look = (colour, border) => window.createTextEditorDecorationType({
    backgroundColor: new ThemeColor(colour), border, borderColor: new ThemeColor("focusBorder"),
    overviewRulerColor: new ThemeColor("focusBorder"), overviewRulerLane: OverviewRulerLane.Center,
  });
  looks = { own: look("editor.selectionHighlightBackground", "1px solid"), under: look("editor.wordHighlightStrongBackground") };
  return [...Object.values(looks), window.onDidChangeVisibleTextEditors((editors) => editors.forEach(paint))];
}

module.exports = { register, show, clear, go, place };
