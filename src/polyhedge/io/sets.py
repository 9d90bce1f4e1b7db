"""Uncertainty sets in model files: one row a shape, and the spread that scales them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from polyhedge.learners import Spread
from polyhedge.sets import Ball, Box, Ellipsoid, Polyhedron, Shape, UnionOfBalls


@runtime_checkable
class _Stored(Protocol):
    def state(self) -> dict[str, Any]: ...


MAX_SET_ENTRIES = 500_000
"""A union of balls has the residuals of all learning rows: 50 000 rows of 10 outcomes."""

# A shape can be stored once its class and the arguments that make it again stand here.
SETS: dict[str, tuple[type, tuple[str, ...]]] = {
    "Polyhedron": (Polyhedron, ("W", "b")),
    "Box": (Box, ("scale", "center")),
    "Ball": (Ball, ("n_outcomes", "norm", "center")),
    "Ellipsoid": (Ellipsoid, ("shape", "center")),
    "UnionOfBalls": (UnionOfBalls, ("anchors",)),
}


def set_to_state(shape: Shape) -> dict[str, Any]:
    """Plain data of a set.

    Examples
    --------
    >>> set_to_state(Ball(2, norm=1))
    {'kind': 'Ball', 'n_outcomes': 2, 'norm': 1, 'center': array([0., 0.])}
    """
    state = shape.state() if isinstance(shape, _Stored) else {}
    known = SETS.get(state.get("kind", ""), (None,))[0]
    # A subclass with the state of its parent may have scores of its own.
    if known is None or (type(shape) is not known and vars(known)["state"] is getattr(type(shape), "state", None)):
        raise ValueError(
            f"A set of type {type(shape).__name__} cannot be stored; one of {', '.join(SETS)} can, and any other whose "
            "method state describes it as one of these. Use its facets() where it has them."
        )
    return {name: state[name] for name in ("kind", *SETS[state["kind"]][1])}


def set_from_state(state: Mapping[str, Any]) -> Shape:
    """The set that `set_to_state` described."""
    if state["kind"] not in SETS:
        raise ValueError(f"{state['kind']!r} is not a known shape of set.")
    cls, names = SETS[state["kind"]]
    values = {name: state[name] for name in names}
    entries = sum(value.size for value in values.values() if isinstance(value, np.ndarray))
    if entries > MAX_SET_ENTRIES:
        raise ValueError(f"A set of {MAX_SET_ENTRIES} numbers is the largest that is read, this one has {entries}.")
    for name, value in values.items():
        # Numbers where arrays belong would be repeated to any announced size.
        if name not in ("n_outcomes", "norm") and (not isinstance(value, np.ndarray) or not value.ndim):
            raise ValueError(f"The field {name} of the set must be an array.")
    made: Shape = cls(**values)
    return made


def spread_to_state(spread: Spread) -> dict[str, Any]:
    """Plain data of a spread."""
    return {**spread.state(), "names": list(spread.names)}


def spread_from_state(state: Mapping[str, Any] | None) -> Spread | None:
    """The spread that `spread_to_state` described; None where there is none."""
    if state is None:
        return None
    return Spread(**{**state, "names": tuple(str(name) for name in state["names"])})
