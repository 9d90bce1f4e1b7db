"""Calibrators by their names on the command line, such as "by-category:store"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyhedge.calibration.blocks import AllOf, Total
from polyhedge.calibration.by_category import ByCategory
from polyhedge.calibration.by_constraint import ByConstraint
from polyhedge.calibration.by_groups import ByGroups
from polyhedge.calibration.marginal import Marginal
from polyhedge.calibration.mean_cost import CVaR, Mean
from polyhedge.calibration.online import Online
from polyhedge.calibration.radii import Calibrator
from polyhedge.calibration.recent import Recent
from polyhedge.calibration.this_model import ThisModel
from polyhedge.calibration.weighted import Weighted

_MAKERS: dict[str, tuple[Callable[[str], Calibrator], str, bool]] = {
    "marginal": (lambda _: Marginal(), "", False),
    "total": (lambda given: Total(*_column_and_period(given)), "COLUMN[,EVERY]", True),
    "all-of": (lambda given: AllOf(*_column_and_period(given)), "COLUMN[,EVERY]", True),
    "by-category": (ByCategory, "COLUMN", True),
    "by-groups": (lambda columns: ByGroups([name.strip() for name in columns.split(",")]), "COLUMN,...", True),
    "by-constraint": (lambda levels: ByConstraint(_levels(levels)), "NAME=ALPHA,...", True),
    "mean": (lambda given: Mean(**_numbers(given, "delta", "largest")), "DELTA,LARGEST", False),
    "cvar": (lambda given: CVaR(**_numbers(given, "level", "largest", "delta")), "LEVEL,LARGEST,DELTA", False),
    "this-model": (lambda delta: ThisModel(_number(delta or "0.05")), "DELTA", False),
    "weighted": (lambda column: Weighted(weights=column), "COLUMN", True),
    "recent": (lambda half_life: Recent(_number(half_life)), "HALF_LIFE", True),
    "online": (lambda step: Online(_number(step) if step else "auto"), "STEP", False),
}
"""For each word: what it makes, what may follow a colon, and whether it must."""
WORDS = ", ".join(
    name + (f":{more}" if needed else f"[:{more}]" if more else "") for name, (_, more, needed) in _MAKERS.items()
)
"""What can be asked for."""


def _column_and_period(text: str) -> tuple[str, Any]:
    """A column of blocks, or a column of times and the length of a block, from a text such as "date,7D"."""
    column, _, every = text.partition(",")
    return column.strip(), _number(every.strip()) or None


def _number(text: str) -> Any:
    """The number that a text holds, or the text: the calibrator says what it must be."""
    try:
        return float(text)
    except ValueError:
        return text


def _numbers(text: str, *names: str) -> dict[str, Any]:
    """The numbers in a text such as "0.05,,1000" by name, without those that are left out."""
    return {name: _number(part) for name, part in zip(names, text.split(","), strict=False) if part.strip()}


def _levels(text: str) -> dict[str, Any]:
    """Levels by name from a text such as "cost=0.1,load is met=0.01"."""
    parts = [part.rpartition("=") for part in text.split(",")]
    return {name.strip(): _number(level) for name, _, level in parts}


def calibrator_named(text: str) -> Calibrator:
    """The calibrator of these words."""
    name, _, more = text.partition(":")
    make, allowed, needed = _MAKERS.get(name, (None, "", False))
    has_too_many = "..." not in allowed and more.count(",") > allowed.count(",")
    if make is None or (needed and not more) or (more and not allowed) or has_too_many:
        raise ValueError(f"calibration must be one of {WORDS}; got {text!r}.")
    try:
        return make(more)
    except ValueError as error:
        raise ValueError(f"calibration {text!r}: {error}") from error
