// The TextMate grammar: every keyword of the language has a colour, and standard sources are coloured as they are meant.

const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const { test } = require("node:test");
const oniguruma = require("vscode-oniguruma");
const textmate = require("vscode-textmate");

const here = path.join(__dirname, "..");
const root = path.join(here, "..", "..");
const grammarPath = path.join(here, "syntaxes", "pipe.tmLanguage.json");
const pest = fs.readFileSync(path.join(root, "grammar", "pipe.pest"), "utf8");

async function load() {
  const wasm = fs.readFileSync(require.resolve("vscode-oniguruma/release/onig.wasm"));
  await oniguruma.loadWASM(wasm.buffer.slice(wasm.byteOffset, wasm.byteOffset + wasm.byteLength));
  const registry = new textmate.Registry({
    onigLib: Promise.resolve({
      createOnigScanner: (patterns) => new oniguruma.OnigScanner(patterns),
      createOnigString: (text) => new oniguruma.OnigString(text),
    }),
    loadGrammar: async () => textmate.parseRawGrammar(fs.readFileSync(grammarPath, "utf8"), grammarPath),
  });
  return registry.loadGrammar("source.pipe");
}

const loaded = load();

/** Words of a text with the innermost scope of each. */
async function scopes(text) {
  const grammar = await loaded;
  let state = textmate.INITIAL;
  const found = [];
  for (const line of text.split("\n")) {
    const { tokens, ruleStack } = grammar.tokenizeLine(line, state);
    state = ruleStack;
    for (const token of tokens) {
      found.push([line.slice(token.startIndex, token.endIndex).trim(), token.scopes.at(-1)]);
    }
  }
  return found.filter(([word]) => word !== "");
}

test("every keyword of the grammar has a colour, and no other word has one of theirs", async () => {
  const keywords = [...pest.matchAll(/^kw_(\w+) =/gm)].map((match) => match[1]);
  assert.ok(keywords.length > 60, `${keywords.length} keywords`);
  for (const word of keywords) {
    const [[, scope]] = await scopes(word);
    assert.match(scope, /^(keyword|storage)\./, word);
  }
  const raw = JSON.parse(fs.readFileSync(grammarPath, "utf8"));
  for (const { match } of raw.repository.word.patterns) {
    for (const word of match.slice(3, -3).split("|")) {
      assert.ok(keywords.includes(word), `${word} is no keyword`);
    }
  }
});

test("words are coloured as they are meant", async () => {
  const text = `/// Documentation.
schedule 1f1b_twice(chunks = 2) { // comment
    stages chunks * D
    block every 3 { BW[s] at min(s, 1.5e-3) }
}
import std.models.gpt
pipeline p { devices 4 memory 64MiB  train { data "a // b" } }`;
  const found = await scopes(text);
  const scope = (word) => found.find(([other]) => other === word)?.[1];
  for (const [word, wanted] of [
    ["/// Documentation.", "comment.line.documentation.pipe"],
    ["// comment", "comment.line.double-slash.pipe"],
    ["1f1b_twice", "entity.name.type.pipe"],
    ["stages", "keyword.other.pipe"],
    ["D", "variable.language.pipe"],
    ["BW", "support.function.task.pipe"],
    ["min", "entity.name.function.pipe"],
    ["1.5e-3", "constant.numeric.pipe"],
    ["64MiB", "constant.numeric.pipe"],
    ["std.models.gpt", "entity.name.namespace.pipe"],
    ['"a // b"', "string.quoted.double.pipe"],
    ["import", "storage.type.pipe"],
  ]) {
    assert.strictEqual(scope(word), wanted, word);
  }
});

test("standard sources and examples have a colour for every comment, keyword and number", async () => {
  const keywords = new Set([...pest.matchAll(/^kw_(\w+) =/gm)].map((match) => match[1]));
  const folders = ["stdlib/schedules", "stdlib/models", "examples"].map((folder) => path.join(root, folder));
  const files = folders.flatMap((folder) => fs.readdirSync(folder).map((name) => path.join(folder, name)));
  const sources = files.filter((file) => file.endsWith(".pipe"));
  assert.ok(sources.length > 25, `${sources.length} sources`);
  for (const file of sources) {
    for (const [word, scope] of await scopes(fs.readFileSync(file, "utf8"))) {
      const plain = scope === "source.pipe";
      assert.ok(!(plain && (keywords.has(word) || word.includes("//") || /^\d+$/.test(word))), `${file}: ${word}`);
    }
  }
});

test("the manifest is consistent", () => {
  const manifest = JSON.parse(fs.readFileSync(path.join(here, "package.json"), "utf8"));
  const { languages, commands, menus } = manifest.contributes;
  JSON.parse(fs.readFileSync(path.join(here, languages[0].configuration), "utf8"));
  const known = commands.map(({ command }) => command);
  for (const { command } of Object.values(menus).flat()) {
    assert.ok(known.includes(command), `${command} is no command`);
  }
});

test("snippets are in the style, and have a place for the cursor at their end", () => {
  const snippets = JSON.parse(fs.readFileSync(path.join(here, "snippets", "pipe.json"), "utf8"));
  const prefixes = Object.values(snippets).flatMap(({ prefix }) => prefix);
  assert.strictEqual(new Set(prefixes).size, prefixes.length, `${prefixes}`);
  for (const [name, { body, description }] of Object.entries(snippets)) {
    assert.ok(description.length > 0 && body.at(-1) === "$0", name);
    const holes = [...body.join("\n").matchAll(/\$\{(\d+):[^}]+\}/g)].map(([, number]) => Number(number));
    assert.deepStrictEqual(holes, holes.map((_, index) => index + 1), name);
  }
});
