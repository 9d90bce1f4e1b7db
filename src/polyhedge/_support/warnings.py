"""Warnings with a code: the text is for the reader, the code for the program."""

from __future__ import annotations

import warnings
from enum import StrEnum


class Code(StrEnum):
    """What a diagnostic or a warning is about; the texts of most diagnostics begin with it."""

    DRIFT = "Drift"
    ORDER = "Order"
    TIES = "Ties"
    FEW_ROWS = "Few rows"
    COVERAGE = "Coverage"
    EXPECTED_COST = "Expected cost"
    REFRESH = "Refresh"
    GROUPS = "Groups"
    COPIES = "Copies"
    SEEN = "Seen before"
    LEFT_OUT = "Left out"
    NO_DECISION = "No decision"
    LEVEL = "Level"
    NO_FOLDS = "No folds"
    NO_TIMES = "No times"
    GUARANTEE = "Guarantee"
    REFITTED = "Refitted"
    FEW_IN_CATEGORY = "Few in a category"
    LARGE_FILE = "Large file"
    SECOND_STAGE = "Second stage"


class CodedWarning(Warning):
    """A warning with a code, for programs; every warning of Polyhedge is one.

    Parameters
    ----------
    text : the warning as it is shown.
    code : what it is about, such as "Few rows" or "Level"; None where none was given.

    Examples
    --------
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn(Code.LEVEL, "alpha=0.9 looks like a coverage level")
    >>> caught[0].message.code
    <Code.LEVEL: 'Level'>
    """

    def __init__(self, text: str = "", code: Code | None = None) -> None:
        super().__init__(text)
        self.code = code


class UseWarning(CodedWarning, RuntimeWarning):
    """Something in the rows, the settings or the results does not go as one would expect."""


class SettingWarning(CodedWarning, UserWarning):
    """A setting means something else than one may think."""


def warn(code: Code, text: str, *, stacklevel: int = 2, category: type[CodedWarning] = UseWarning) -> None:
    """Warn with a code; `stacklevel` counts as that of `warnings.warn`, from the caller of this function."""
    warnings.warn(category(text, code), stacklevel=stacklevel + 1)
