#!/usr/bin/env python3
"""Make book.txt from the pages of this project's book: their paragraphs, without code, tables, lists and pictures.

    python3 make_book.py ../../docs book.txt
"""
import pathlib
import re
import sys

PAGES = ["zero", "offload", "cluster", "hosts", "search/works", "cuda", "models", "tune", "profile"]


def paragraphs(text):
    """Return the plain paragraphs of a page, each as one line."""
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    for part in (part.strip() for part in text.split("\n\n")):
        if not part or part[0] in "#|!<-[" or part[0].isdigit():
            continue
        part = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", part)
        part = re.sub(r"\s*\n\s*", " ", part.replace("**", "").replace("`", ""))
        part = part.encode("ascii", "ignore").decode()
        if len(part) > 40:
            yield part


def main():
    """Write the pages of the language, and some others."""
    docs, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    pages = sorted((docs / "language").glob("*.md")) + [docs / f"{name}.md" for name in PAGES]
    text = "\n\n".join(part for page in pages for part in paragraphs(page.read_text(encoding="utf-8")))
    out.write_text(text + "\n", encoding="ascii")


main()
