"""TOML text with limits: Python's reader takes memory with the square of the depth, and recurses."""

from __future__ import annotations

import re
import tomllib
from typing import Any

MAX_BYTES = 4 * 2**20
"""Some 200 000 numbers; the reader takes seconds for more."""
MAX_DEPTH = 32
"""A problem file needs five levels."""
# Every letter is looked at once, also in a text that does not end; two quotes may stand before the three that end one.
_TEXT_OR_COMMENT = re.compile(
    r"""
    \"{3} (?: \\. | [^\\"] | "(?!"") )*+ (?: "{3,5}+ )?
    | '{3} (?: [^'] | '(?!'') )*+ (?: '{3,5}+ )?
    | " (?: \\. | [^"\\\n] )*+ "?
    | ' [^'\n]*+ '?
    | \# [^\n]*+
    """,
    re.DOTALL | re.VERBOSE,
)
_DOTTED_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{MAX_DEPTH}}}")
_TOO_DEEP = (
    f"it is nested more than {MAX_DEPTH} levels deep. A problem file needs five: look for brackets that are not closed."
)


def read_toml(content: bytes) -> dict[str, Any]:
    """The tables of a file; ValueError where it is large, nested deep or no TOML.

    Examples
    --------
    >>> read_toml(b"lower = [0, 1]")
    {'lower': [0, 1]}
    >>> read_toml(b"lower = " + b"[" * 100 + b"]" * 100)
    Traceback (most recent call last):
        ...
    ValueError: it is nested more than 32 levels deep. A problem file needs five: look for brackets that are not closed.
    """
    if len(content) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes. Write a large problem in Python, as FILE.py:NAME.")
    text = content.decode("utf-8")
    _check_depth(text)
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error


def _check_depth(text: str) -> None:
    bare = _TEXT_OR_COMMENT.sub("s", text)
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", bare):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    if deepest > MAX_DEPTH or _DOTTED_KEY.search(bare):
        raise ValueError(_TOO_DEEP)
