"""Compiles figures as TikZ with pdflatex, and compares each page with the PDF that pipec itself writes.

Needs pdflatex with TikZ, and pdftoppm. `PIPEC` names the command.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

PIPEC = os.environ["PIPEC"]
ROOT = Path(__file__).parent.parent
LAYERS = "memory,transfers,critical-path"
# The largest mean difference of grey values, from 0 to 255, between two pages. LaTeX sets text in its own font.
MOST_DIFFERENCE = 8.0

DOCUMENT = r"""\documentclass{article}
\usepackage{tikz}\usetikzlibrary{patterns}
\begin{document}\hoffset=-1in\voffset=-1in
\def\page#1{\setbox0\hbox{\input{#1}\unskip}%
\pdfpagewidth=\wd0 \pdfpageheight=\dimexpr\ht0+\dp0\relax\shipout\box0}
"""


def targets() -> list[list[str]]:
    """Every standard schedule, plain and with all layers, and figures with all other parts that there are."""
    listed = subprocess.run([PIPEC, "std"], capture_output=True, text=True, check=True).stdout
    names = [f"std:{line.split()[0]}" for line in listed.split("\n\n")[0].splitlines()[1:]]
    found = [[name] for name in names]
    found += [[name, "--width", "page", "--show", LAYERS] for name in names]
    found += [
        ["std:1f1b", "std:zb_h1", "--title", "(a) 50% & more_#1 {x} ~ ^ \\ $", "--title", "(b) -- é …, ,, | ` ' λ ≤ ł Σ ² ₁ → ×"],
        ["std:v_half", "--set", "devices=8", "--set", "microbatches=24", "--crop", "fit", "--for", "paper"],
        ["std:1f1b", "--memory", "3"],
        ["tests/ui/deadlock/first_device_wants_its_backward.pipe"],
        ["examples/offload.pipe", "--show", "memory,copies"],
        ["examples/zero.pipe", "--show", "collectives"],
    ]
    return found


def pages(pdf: Path, dots: int = 72) -> list[np.ndarray]:
    """The pages of a document in grey, from 0 (black) to 255."""
    subprocess.run(["pdftoppm", "-gray", "-r", str(dots), pdf, pdf.with_suffix("")], check=True)
    found = []
    for path in sorted(pdf.parent.glob(f"{pdf.stem}-*.pgm")):
        _, size, _, dots_of_page = path.read_bytes().split(b"\n", 3)
        width, height = map(int, size.split())
        found.append(np.frombuffer(dots_of_page, np.uint8).reshape(height, width).astype(float))
    return found


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """How much two pages differ, as a mean over their dots."""
    height, width = np.minimum(one.shape, other.shape)
    return float(np.abs(one[:height, :width] - other[:height, :width]).mean())


def main() -> int:
    """Tries all figures; the exit code."""
    all_targets = targets()
    failures, most = [], 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, target in enumerate(all_targets):
            for form in ("tex", "pdf"):
                output = folder / f"figure{number}.{form}"
                subprocess.run([PIPEC, "plot", *target, "-o", output], cwd=ROOT, capture_output=True)
                assert output.exists(), f"pipec plot {' '.join(target)} wrote no {form}"
        inputs = "".join(f"\\page{{figure{number}}}\n" for number in range(len(all_targets)))
        (folder / "all.tex").write_text(DOCUMENT + inputs + "\\end{document}\n")
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
        compiled = subprocess.run(command, cwd=folder, capture_output=True)
        if compiled.returncode:
            print(compiled.stdout.decode(errors="replace")[-3000:])
            return 1
        drawn = pages(folder / "all.pdf")
        assert len(drawn) == len(all_targets), f"{len(drawn)} pages for {len(all_targets)} figures"
        for number, (target, page) in enumerate(zip(all_targets, drawn, strict=True)):
            (own,) = pages(folder / f"figure{number}.pdf")
            found = difference(page, own)
            most = max(most, found)
            if np.abs(np.subtract(page.shape, own.shape)).max() > 2:
                failures.append(f"{' '.join(target)}: {page.shape} dots instead of {own.shape}")
            if found > MOST_DIFFERENCE:
                failures.append(f"{' '.join(target)}: differs from the PDF by {found:.1f} of 255")
    print("\n".join(failures))
    print(f"{len(all_targets)} figures as TikZ tried, {most:.1f} of 255 away from pipec's own PDF at most")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
