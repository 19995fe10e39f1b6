// Colours every algorithm of the repository, and compares them with the words of the grammar.
"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const oniguruma = require("vscode-oniguruma");
const { INITIAL, Registry, parseRawGrammar } = require("vscode-textmate");

const root = path.join(__dirname, "../..");
const words = new Set();
const pest = fs.readFileSync(path.join(root, "dsl/src/algo.pest"), "utf8");
for (const [, word] of pest.match(/^keyword = @\{([^}]*)\}/m)[1].matchAll(/"(\w+)"/g)) words.add(word);

/** Returns the paths of all texts below a folder. */
function texts(folder) {
  const found = [];
  for (const entry of fs.readdirSync(folder, { withFileTypes: true })) {
    if (["target", "node_modules", ".git"].includes(entry.name)) continue;
    const at = path.join(folder, entry.name);
    if (entry.isDirectory()) found.push(...texts(at));
    else if (entry.name.endsWith(".algo")) found.push(at);
  }
  return found;
}

/** Returns what a word must be, or nothing if more than one thing would be right. */
function wanted(word, before) {
  if (/^["/]/.test(word)) return word.startsWith('"') ? "string." : "comment.";
  if (/^[0-9]/.test(word)) return "constant.numeric.";
  if (words.has(word)) return ["true", "false"].includes(word) ? "constant.language." : /^(keyword|storage)\./;
  if (/^(copy|reduce)$/.test(word) && /:\s*$/.test(before)) return "keyword.operator.word.";
  return /^(variable|support|entity)\./;
}

async function main() {
  assert.ok(words.size > 20, "the grammar has keywords");
  const wasm = fs.readFileSync(require.resolve("vscode-oniguruma/release/onig.wasm"));
  await oniguruma.loadWASM(wasm.buffer.slice(wasm.byteOffset, wasm.byteOffset + wasm.byteLength));
  const file = path.join(__dirname, "syntaxes/algo.tmLanguage.json");
  const registry = new Registry({
    onigLib: Promise.resolve({
      createOnigScanner: (patterns) => new oniguruma.OnigScanner(patterns),
      createOnigString: (text) => new oniguruma.OnigString(text),
    }),
    loadGrammar: async () => parseRawGrammar(fs.readFileSync(file, "utf8"), file),
  });
  const grammar = await registry.loadGrammar("source.algo");
  let checked = 0;
  const all = texts(root);
  for (const name of all) {
    const text = fs.readFileSync(name, "utf8");
    const scopes = [];
    let state = INITIAL;
    for (const line of text.split("\n")) {
      const { tokens, ruleStack } = grammar.tokenizeLine(line, state);
      state = ruleStack;
      for (const token of tokens) scopes.push([token.endIndex - token.startIndex, token.scopes.at(-1)]);
      // The tokens of a line end where it does, or one behind.
      const covered = tokens.at(-1)?.endIndex ?? 0;
      scopes.push([line.length + 1 - covered, "end of line"]);
    }
    const at = [];
    for (const [length, scope] of scopes) for (let i = 0; i < length; i++) at.push(scope);
    for (const found of text.matchAll(/\/\/.*|\/\*[^]*?\*\/|"[^"\n]*"|[A-Za-z0-9_]+/g)) {
      const meant = wanted(found[0], text.slice(0, found.index));
      const scope = at[found.index];
      const right = typeof meant === "string" ? scope.startsWith(meant) : meant.test(scope);
      assert.ok(right, `${name}: \`${found[0]}\` at ${found.index} is ${scope}, not ${meant}`);
      checked += 1;
    }
  }
  assert.ok(all.length > 70, "the library is among the texts");
  console.log(`${checked} words of ${all.length} texts have the colour that the grammar gives them`);
}

main().catch((fault) => {
  console.error(fault.message);
  process.exit(1);
});
