// The book: sources have colours that can be read, open in the playground, and are not cut off; old addresses lead on.

import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { ALL, close, open, root, visit } from "./browser.js";

const book = join(root, "target", "book");
const skip = existsSync(join(book, "card.html")) ? false : "mdbook build docs was not run";
const hasPlayground = existsSync(join(book, "playground", "dist", "built.js"));
const url = (page) => `file://${join(book, page)}`;
// Some pages, or all of them in `.ci/full`.
const SOME = ["card.html", "language/schedules.html", "language.html", "tutorial.html", "gallery.html", "errors.html", "coming_from/pytorch.html", "tune.html", "zero.html", "examples.html", "python.html", "search/reaches.html"];
const PAGES = ALL && !skip ? readdirSync(book, { recursive: true }).filter((name) => name.endsWith(".html") && !/^(toc|print|404|playground.dist)/.test(name)) : SOME;

before(open);
after(close);

/// How much lighter one colour is than another, by WCAG 2.
function contrast(one, other) {
  const light = (colour) => {
    const [red, green, blue] = colour.match(/[\d.]+/g).map(Number).map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
  };
  const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
  return high / low;
}

describe("the book", { skip }, () => {
  for (const theme of ["light", "rust", "coal", "navy", "ayu"]) {
    test(`colours of sources and links can be read: ${theme}`, async () => {
      const page = await visit(url("card.html"), { allowed: "file:" });
      await page.evaluate((theme) => localStorage.setItem("mdbook-theme", theme), theme);
      await page.reload();
      const pieces = await page.evaluate(() => [...document.querySelectorAll("code.language-pipe")].flatMap((code) => {
        const ground = getComputedStyle(code).backgroundColor;
        return [code, ...code.querySelectorAll("span")].map((piece) => [piece.className, getComputedStyle(piece).color, ground]);
      }));
      pieces.push(...await page.evaluate(() => [...document.querySelectorAll("main p > a[href]")].map((link) => ["a link", getComputedStyle(link).color, getComputedStyle(document.documentElement).backgroundColor])));
      const kinds = new Set(pieces.map(([kind]) => kind));
      for (const kind of ["hljs-keyword", "hljs-comment", "hljs-task", "hljs-number", "hljs-string"]) assert.ok(kinds.has(kind), `${kind} of ${[...kinds]}`);
      for (const [kind, ink, ground] of pieces) assert.ok(contrast(ink, ground) >= 4.5, `${kind}: ${contrast(ink, ground)} of ${ink} on ${ground}`);
      await page.close();
    });
  }

  test("the Tab key skips the list of pages", async () => {
    const page = await visit(url("index.html"), { allowed: "file:" });
    await page.keyboard.press("Tab");
    const shown = await page.evaluate(() => ({ text: document.activeElement.textContent, top: document.activeElement.getBoundingClientRect().top }));
    assert.equal(shown.text, "Skip to the page");
    assert.ok(shown.top >= 0, "it is seen when it has the focus");
    await page.keyboard.press("Enter");
    await page.keyboard.press("Tab");
    assert.ok(await page.evaluate(() => document.activeElement.closest("main") !== null), "the next stop is a link of the page");
    await page.close();
  });

  for (const width of [1440, 800, 390]) {
    test(`no page is wider than the window, and code and tables are not, or can be moved where that is narrow: ${width}`, async () => {
      for (const name of PAGES) {
        const page = await visit(url(name), { allowed: "file:", viewport: { width, height: 900 } });
        await page.waitForTimeout(200);
        const { wide, cut, tables, moved } = await page.evaluate((isNarrow) => ({
          wide: document.documentElement.scrollWidth - innerWidth,
          cut: [...document.querySelectorAll("main pre > code")].filter((code) => code.scrollWidth > code.clientWidth + 1)
            .filter((code) => !isNarrow || getComputedStyle(code).overflowX !== "auto" || code.tabIndex !== 0 || code.classList.contains("language-pipe")).map((code) => code.textContent),
          tables: [...document.querySelectorAll(".table-wrapper")].filter((one) => one.scrollWidth > one.clientWidth + 1 && (innerWidth > 1000 || one.tabIndex !== 0)).map((one) => one.textContent.slice(0, 80)),
          moved: [...document.querySelectorAll("main img.is-wide")].every((image) => isNarrow && getComputedStyle(image.closest("p")).overflowX === "auto"),
        }), width < 700);
        assert.ok(wide <= 0, `${name}: ${wide} pixels`);
        assert.deepEqual([cut, tables, moved], [[], [], true], name);
        await page.close();
      }
    });
  }

  test("complete sources open in the playground, where the book has it", { skip: hasPlayground ? false : "docs/playground/build.sh was not run" }, async () => {
    const page = await visit(url("language/schedules.html"), { allowed: "file:" });
    await page.locator(".right-buttons .playground-link").waitFor();
    const source = await page.locator("code.language-pipe").first().evaluate((code) => code.source);
    const href = await page.locator(".playground-line a").first().evaluate((a) => a.href);
    assert.ok(href.length < source.length + 120, `${href.length} letters for ${source.length}`);
    const opened = await visit(href, { allowed: "blob:" });
    await opened.waitForFunction(() => playground.editor && playground.asked > 0);
    assert.equal(await opened.locator("textarea").inputValue(), source);
    await opened.close();
    const other = await visit(url("tutorial.html"), { allowed: "file:" });
    // They come one after the other.
    await other.waitForFunction(() => document.querySelectorAll(".playground-line").length === sources.filter((code) => isComplete(whole(code))).length);
    // A file that is imported is on the same page.
    const closed = await other.evaluate(() => sources.filter((code) => code.closest("pre").nextElementSibling?.className !== "playground-line").map((code) => code.source));
    assert.deepEqual(closed, []);
    await other.close();
    // One imports itself, under another name there.
    const errors = await visit(url("errors.html"), { allowed: "file:" });
    const [closedErrors, cycle] = await errors.evaluate(() => [sources.filter((code) => !isComplete(whole(code))).map((code) => code.source), sources.map(whole).filter((source) => source.includes("playground.pipe"))]);
    assert.deepEqual([closedErrors, cycle.length], [[], 1]);
    await errors.close();
    await page.close();
  });

  test("every keyword has its colour", async () => {
    const page = await visit(url("card.html"), { allowed: "file:" });
    const plain = await page.evaluate(() => KEYWORDS.trim().split(/\s+/).filter((word) => !hljs.highlight("pipe", word).value.includes("hljs-keyword")));
    assert.deepEqual(plain, []);
    await page.close();
  });

  test("old addresses lead on", async () => {
    for (const [old, now] of [["language.html#recomputation", "language/recomputation.html"], ["language.html#what-waits-for-w", "language/proved.html#what-waits-for-w"], ["search.html#what-it-reaches", "search/reaches.html"]]) {
      const page = await visit(url(old), { allowed: "file:" });
      await page.waitForURL((address) => address.href.endsWith(now));
      await page.close();
    }
  });

  test("the search of the book finds a page", async () => {
    const page = await visit(`${url("card.html")}?search=recomputation`, { allowed: "file:" });
    await page.locator("#mdbook-searchresults li, #searchresults li").first().waitFor();
    await page.close();
  });
});
