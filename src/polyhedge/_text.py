"""Text of strangers: names, categories and messages that a terminal must not take as commands."""

from __future__ import annotations

import unicodedata

__all__ = ["printable"]


def printable(text: str) -> str:
    r"""The text with control characters, line breaks and marks that turn the reading order shown as escapes.

    Examples
    --------
    >>> print(printable("load \x1b[2J\n"))
    load \x1b[2J\n
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(letter: str) -> str:
    # Spaces of other widths than the usual one are harmless, and common in numbers and names.
    if letter.isprintable() or unicodedata.category(letter) == "Zs":
        return letter
    return letter.encode("unicode_escape").decode()
