"""A table as CSV text that no spreadsheet runs: texts that look like formulas get an apostrophe in front."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["csv_text", "neutralised", "restored"]

# What a spreadsheet may skip in front of a formula: controls, spaces of every width and none, and marks of direction.
_UNSEEN = (
    r"\s\x00-\x20\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f"
    r"\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"
)
# What it takes for the beginning of one, also in full width or small; a control in front of anything is not shown.
_FORMULA = re.compile(
    rf"'*+(?:[{_UNSEEN}]*+[=+\-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b]|[\x00-\x1f\x7f-\x9f])"
)
_NUMBER = re.compile(r"\s*[+-]?(?:\d[\d.,]*|[.,]\d+)(?:[eE][+-]?\d+)?\s*")
# With other settings a spreadsheet would split at these, and the second half may be a formula.
_QUOTED = re.compile(r"""[,;\t|"\r\n]""")


def csv_text(frame: Any, *, raw: bool = False) -> str:
    r"""The rows of a pandas data frame as CSV, with texts and names `neutralised` unless they are wanted `raw`.

    Examples
    --------
    >>> import pandas as pd
    >>> csv_text(pd.DataFrame({"plan": ["=1+1", "-2.5", "a"], "cost": [-1.0, 0.5, None]}))
    "plan,cost\n'=1+1,-1.0\n-2.5,0.5\na,\n"
    """
    if raw:
        return str(frame.to_csv(index=False, lineterminator="\n"))
    columns = [_cells(frame.iloc[:, place]) for place in range(frame.shape[1])]
    lines = [[_cell(str(name)) for name in frame.columns], *map(list, zip(*columns, strict=True))]
    # A line that is empty would be no row.
    return "".join(f"{','.join(line) or chr(34) * 2}\n" for line in lines)


def neutralised(text: str) -> str:
    """The text with an apostrophe in front if a spreadsheet would take it for a formula; numbers are none.

    Examples
    --------
    >>> neutralised("=HYPERLINK(1)"), neutralised("-1.5e3"), neutralised("'@x"), neutralised("it's")
    ("'=HYPERLINK(1)", '-1.5e3', "''@x", "it's")
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def restored(text: str) -> str:
    """What `neutralised` made the text from.

    Examples
    --------
    >>> restored("'=HYPERLINK(1)"), restored("-1.5e3"), restored("''@x"), restored("'quoted'")
    ('=HYPERLINK(1)', '-1.5e3', "'@x", "'quoted'")
    """
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def _cells(column: Any) -> list[str]:
    """The values as pandas writes them, texts made safe."""
    if column.dtype.kind in "mM" or column.dtype in ("float16", "float32"):  # times and short floats are rounded
        return [line.strip('"') for line in column.to_csv(index=False, header=False).splitlines()]
    values, missing = column.tolist(), column.isna().tolist()
    return [
        "" if is_missing else _cell(value) if isinstance(value, str) else _quoted(str(value))
        for value, is_missing in zip(values, missing, strict=True)
    ]


def _cell(text: str) -> str:
    return _quoted(neutralised(text))


def _quoted(text: str) -> str:
    return '"{}"'.format(text.replace('"', '""')) if _QUOTED.search(text) else text
