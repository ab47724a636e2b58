// What the package holds: all that the manifest names, and the code in one file.

const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const Module = require("node:module");
const { test } = require("node:test");

const root = path.join(__dirname, "..");
const manifest = require("../package.json");
const size = (file) => fs.statSync(path.join(root, file)).size;

/** The files that the manifest says it has, in any of its values. */
function named(value) {
  if (typeof value === "string") return /^(\.\/|images\/|dist\/|README)/.test(value) && /\.\w+$/.test(value) ? [value] : [];
  return value && typeof value === "object" ? Object.values(value).flatMap(named) : [];
}

test("every file that the manifest names is in the package", () => {
  const files = named(manifest).map((file) => path.normalize(file));
  assert.ok(files.length >= 8, files.join());
  for (const file of files) {
    assert.ok(fs.existsSync(path.join(root, file)), file);
    const isIn = manifest.files.some((entry) => file === entry || file.startsWith(`${entry}/`));
    assert.ok(isIn, `${file} is not in the package`);
  }
  for (const entry of manifest.files) assert.ok(fs.existsSync(path.join(root, entry)), entry);
});

test("the icon is a square of at least 128 pixels", () => {
  const picture = fs.readFileSync(path.join(root, manifest.icon));
  assert.strictEqual(picture.toString("latin1", 1, 4), "PNG");
  const [width, height] = [picture.readUInt32BE(16), picture.readUInt32BE(20)];
  assert.ok(width === height && width >= 128, `${width} x ${height}`);
});

test("the code is one file, which needs nothing but the editor and Node", () => {
  const code = fs.readFileSync(path.join(root, manifest.main), "utf8");
  const needed = new Set([...code.matchAll(/\brequire\("([^"]+)"\)/g)].map(([, name]) => name));
  const others = [...needed].filter((name) => name !== "vscode" && !Module.isBuiltin(name));
  assert.deepStrictEqual(others, []);
  assert.deepStrictEqual(Object.keys(manifest.dependencies ?? {}), []);
  assert.ok(size(manifest.main) < 600_000, `${size(manifest.main)} bytes`);
});
