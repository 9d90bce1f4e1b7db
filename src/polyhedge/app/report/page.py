"""One page in one file: it works offline, on a phone, in the dark and on paper."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from polyhedge._support.files import replace_file
from polyhedge.app.report.blocks import Block, escaped, inline
from polyhedge.app.report.figures import Chart, plotly_library

__all__ = ["Page", "Section", "write_page"]

# The browser itself refuses whatever is not in the file.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "form-action 'none'; base-uri 'none'"
)


@dataclass(frozen=True)
class Section:
    """A part of a page: `blocks` under a `title` that the table of contents shows."""

    title: str
    blocks: Sequence[Block]

    @property
    def anchor(self) -> str:
        """What a link to it ends in."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "section"


@dataclass(frozen=True)
class Page:
    """A page: a `title`, the `lead` below it, `sections` and a `closing` line.

    Examples
    --------
    >>> from polyhedge.app.report.blocks import Text
    >>> page = Page("Loads", "What was <decided>", [Section("First", [Text("Hello")])])
    >>> "What was &lt;decided&gt;" in page.html(), "<p>Hello</p>" in page.html()
    (True, True)
    """

    title: str
    lead: str
    sections: Sequence[Section]
    closing: str = ""

    def html(self) -> str:
        """The whole page; nothing in it refers to anything outside."""
        sections = list(zip(self.sections, _distinct(section.anchor for section in self.sections), strict=True))
        links = "".join(f'<li><a href="#{anchor}">{inline(section.title)}</a></li>' for section, anchor in sections)
        body = "".join(
            f'<section id="{anchor}"><h2>{inline(section.title)}</h2>{_joined(section.blocks)}</section>'
            for section, anchor in sections
        )
        return _PAGE.format(
            policy=html.escape(_POLICY),
            title=escaped(self.title),
            style=_asset("page.css"),
            heading=inline(self.title),
            lead=inline(self.lead),
            links=links,
            body=body,
            closing=inline(self.closing),
            library=self._library(),
            script=_asset("page.js"),
        )

    def _library(self) -> str:
        """Plotly, once, where some chart needs it."""
        if not any(isinstance(block, Chart) for section in self.sections for block in _flat(section.blocks)):
            return ""
        library = plotly_library()
        if library is None:
            raise ImportError("Charts need plotly: pip install 'polyhedge[plot]'.")
        return f"<script>{library}</script>"


def write_page(page: Page, path: Path) -> Path:
    """Write a `page` to a `path`; the file appears whole or not at all."""
    replace_file(path, page.html().encode())
    return path


def _joined(blocks: Iterable[Block]) -> str:
    return "".join(block.html() for block in blocks)


def _flat(blocks: Iterable[Any]) -> Iterator[Any]:
    for block in blocks:
        yield block
        yield from _flat(getattr(block, "items", ()) if not isinstance(getattr(block, "items", ()), dict) else ())


def _distinct(names: Iterable[str]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name}-{seen[name]}"


def _asset(name: str) -> str:
    return resources.files("polyhedge.app.report").joinpath(name).read_text(encoding="utf-8")


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<header><h1>{heading}</h1><p class="lead">{lead}</p><nav aria-label="Contents"><ul>{links}</ul></nav></header>
<main>{body}</main>
<footer>{closing}</footer>
{library}<script>{script}</script>
</body>
</html>
"""
