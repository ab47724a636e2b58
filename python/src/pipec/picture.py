"""Timelines: pages for notebooks and browsers, figures for papers."""

from __future__ import annotations

import html
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .command import Target, call, failure, flags
from .errors import CompileError


@dataclass(frozen=True)
class Picture:
    """The timeline of a target: who does what when, and what it holds. Drawn when it is looked at; a rejected target
    too.
    """

    target: Target
    options: Mapping[str, Any]

    @cached_property
    def page(self) -> str:
        """A page that needs nothing else: it scrolls, zooms and explains each task."""
        return self._drawn("page.html")

    @cached_property
    def svg(self) -> str:
        """A figure as SVG."""
        return self._drawn("figure.svg")

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        for_: str | None = None,
        width: str | int | None = None,
        height: str | int | None = None,
        title: str | None = None,
        crop: str | None = None,
        show: str | list[str] | None = None,
    ) -> None:
        """Writes a page (`.html`) or a figure (`.svg`, `.pdf`), as `pipec plot -o PATH` does.

        Args:
            path: The file; its ending says what it is.
            for_: `screen`, or `paper`: in points, for a column of a paper.
            width: Such as `85mm`, `240pt`, `column` or `page`.
            height: Such as `60mm`.
            title: Its words, or `none`.
            crop: `fit`, or the pieces to show.
            show: Layers: `memory`, `transfers`, `copies`, `collectives`, `critical-path`.

        Raises:
            CompileError: The target cannot be drawn, or an option is wrong.
        """
        more = flags(for_=for_, width=width, height=height, title=title, crop=crop, show=show)
        ended = call("plot", self.target, self.options, ["-o", os.path.abspath(path), "--quiet", *more])
        # A rejected target is drawn up to where it stands; the exit code still says that it is rejected.
        if ended.returncode != 0 and not os.path.exists(path):
            raise failure("plot", ended)

    def _drawn(self, name: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            self.save(path)
            return path.read_text(encoding="utf-8")

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that its style and keys stay inside; or why there is none."""
        try:
            page = self.page
        except CompileError as error:
            return preformatted(str(error))
        return (
            f'<iframe srcdoc="{html.escape(page)}" title="Timeline" '
            'style="width: 100%; height: 480px; border: 0" sandbox="allow-scripts allow-downloads"></iframe>'
        )


def preformatted(text: str) -> str:
    """A text as HTML, as a terminal shows it."""
    return f'<pre style="font-family: monospace; white-space: pre; line-height: 1.2">{html.escape(text)}</pre>'
