"""What the entries of decisions and outcomes are called in tables and reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cvxpy as cp
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


def default_outcome_names(n_outcomes: int) -> list[str]:
    """u_1, u_2, ..."""
    return [f"u_{i + 1}" for i in range(n_outcomes)]


def default_decision_names(decision: cp.Variable) -> list[str]:
    """z_1, z_2, ... or the variable's own name, with an index for each axis.

    Examples
    --------
    >>> default_decision_names(cp.Variable(2)), default_decision_names(cp.Variable((1, 2), name="order"))
    (['z_1', 'z_2'], ['order_1_1', 'order_1_2'])
    """
    given = decision.name()
    stem = "z" if given == f"var{decision.id}" else given
    return ["_".join([stem, *(str(i + 1) for i in index)]) for index in np.ndindex(*decision.shape)]
