"""What a page is made of: words, cards, facts, code. All text is escaped; `code` in backticks is set as code."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from polyhedge._support.text import printable

__all__ = [
    "Block",
    "Card",
    "Cards",
    "Code",
    "Facts",
    "Heading",
    "Missing",
    "Note",
    "Points",
    "Text",
    "escaped",
    "inline",
]


class Block(Protocol):
    """Anything that can stand on a page."""

    def html(self) -> str:
        """The block as HTML, with all text escaped."""


def escaped(text: str) -> str:
    """Text that is no markup, and no command of a terminal either, should somebody print the page there."""
    return html.escape("\n".join(map(printable, text.split("\n"))))


def inline(text: str) -> str:
    """Text as HTML: escaped, with `code` in backticks; a number and its percent sign stay on one line.

    Examples
    --------
    >>> inline("a < b, run `make`")
    'a &lt; b, run <code>make</code>'
    """
    text = re.sub(r"(?<=\d) (?=%)", "\u00a0", escaped(text))
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text)


@dataclass(frozen=True)
class Text:
    """A paragraph of `text`."""

    text: str

    def html(self) -> str:
        """A paragraph."""
        return f"<p>{inline(self.text)}</p>"


@dataclass(frozen=True)
class Heading:
    """A heading within a section, the `text`."""

    text: str

    def html(self) -> str:
        """A heading below those of the sections."""
        return f"<h3>{inline(self.text)}</h3>"


@dataclass(frozen=True)
class Points:
    """A list of sentences, the `items`."""

    items: Sequence[str]

    def html(self) -> str:
        """A list."""
        return f"<ul>{''.join(f'<li>{inline(item)}</li>' for item in self.items)}</ul>"


@dataclass(frozen=True)
class Note:
    """A sentence, the `text`, in a box; a `warning` stands out."""

    text: str
    warning: bool = False

    def html(self) -> str:
        """A box; screen readers hear that it is a warning."""
        kind, word = ("note warning", "Warning: ") if self.warning else ("note", "")
        return f'<div class="{kind}" role="note"><p><strong>{word}</strong>{inline(self.text)}</p></div>'


@dataclass(frozen=True)
class Missing:
    """A part that is not there: `what` is missing, and the `command` that makes it."""

    what: str
    command: str

    def html(self) -> str:
        """A line in soft ink."""
        return f'<p class="missing">{inline(self.what)} Make it with <code>{escaped(self.command)}</code>.</p>'


@dataclass(frozen=True)
class Code:
    """Commands or a program, the `text` as it is typed."""

    text: str

    def html(self) -> str:
        """Preformatted text."""
        return f"<pre><code>{escaped(self.text)}</code></pre>"


@dataclass(frozen=True)
class Facts:
    """Names and what they are, the `items`."""

    items: Mapping[str, str]

    def html(self) -> str:
        """A list of descriptions."""
        pairs = (f"<dt>{inline(name)}</dt><dd>{inline(value)}</dd>" for name, value in self.items.items())
        return f"<dl>{''.join(pairs)}</dl>"


@dataclass(frozen=True)
class Card:
    """One figure that matters: its `name`, its `value` and a line with `more` about it."""

    name: str
    value: str
    more: str = ""


@dataclass(frozen=True)
class Cards:
    """Figures side by side, the `items`."""

    items: Sequence[Card]

    def html(self) -> str:
        """A grid that folds to one column on a phone."""
        return f'<div class="cards">{"".join(map(_card, self.items))}</div>'


def _card(card: Card) -> str:
    more = f'<p class="more">{inline(card.more)}</p>' if card.more else ""
    name, value = f'<p class="name">{inline(card.name)}</p>', f'<p class="value">{inline(card.value)}</p>'
    return f'<div class="card">{name}{value}{more}</div>'
