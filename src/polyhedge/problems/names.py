"""What the entries of decisions and outcomes are called in tables and reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Source:
    """Where a problem was written: a file (and the name in it), and a SHA-256 digest of its text."""

    reference: str
    digest: str


def check_names(names: Sequence[str], size: int, what: str, default: Sequence[str]) -> tuple[str, ...]:
    """Return one distinct name for each entry; the default ones where none are given.

    Examples
    --------
    >>> check_names(["heating", "cooling"], 2, "outcome_names", ["u_1", "u_2"])
    ('heating', 'cooling')
    """
    if isinstance(names, (list, tuple)) and not names and default:
        return tuple(default)
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"{what} must be a list of non-empty texts, got {names!r}.")
    if len(names) != size:
        raise ValueError(f"{what} must have {size} name(s), one for each entry, got {len(names)}.")
    if len(set(names)) < size:
        raise ValueError(f"{what} must be distinct, got {list(names)}.")
    return tuple(names)


def order_outcomes(names: Sequence[str], given: Sequence[str]) -> tuple[str, ...]:
    """Columns that hold outcomes, in the order of the outcomes' `names` where they are called alike; else as given.

    Examples
    --------
    >>> order_outcomes(["heating", "cooling"], ["cooling", "heating"]), order_outcomes(["u_1", "u_2"], ["b", "a"])
    (('heating', 'cooling'), ('b', 'a'))
    """
    if set(given) == set(names):
        return tuple(names)
    for column, outcome in zip(given, names, strict=True):
        if column in names and column != outcome:
            raise ValueError(
                f"The columns {', '.join(given)} would stand for the outcomes {', '.join(names)} in this order, and so "
                f"{column} for {outcome}. Name the column of each outcome, in the order of the outcomes."
            )
    return tuple(given)


def default_outcome_names(n_outcomes: int) -> list[str]:
    """u_1, u_2, ..."""
    return [f"u_{i + 1}" for i in range(n_outcomes)]


def entry_names(stems: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> list[str]:
    """Each stem with an index for each axis of its shape, row-major.

    Examples
    --------
    >>> entry_names(["z", "level"], [(1, 2), ()])
    ['z_1_1', 'z_1_2', 'level']
    """
    return [
        "_".join([stem, *(str(i + 1) for i in index)])
        for stem, shape in zip(stems, shapes[: len(stems)], strict=True)
        for index in np.ndindex(*shape)
    ]
