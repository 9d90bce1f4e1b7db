"""Text for readers: names of strangers that a terminal must not take as commands, and numbers with their units."""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    r"""The text with control characters, line breaks and marks that turn the reading order shown as escapes.

    Examples
    --------
    >>> print(printable("load \x1b[2J\n"))
    load \x1b[2J\n
    """
    # Spaces of other widths than the usual one are harmless, and common in numbers and names.
    return "".join(
        letter
        if letter.isprintable() or unicodedata.category(letter) == "Zs"
        else letter.encode("unicode_escape").decode()
        for letter in text
    )


def counted(n: int, what: str) -> str:
    """How many there are of something."""
    return f"{n} {what}{'' if n == 1 else 's'}"


def with_unit(name: str, unit: str | None) -> str:
    """The head of a column, with the unit of what stands below it where that is known."""
    return f"{name} [{unit}]" if unit else name


def amount(number: object, unit: str | None) -> str:
    """A number in words, with its unit where that is known."""
    return f"{number} {unit}" if unit else str(number)
