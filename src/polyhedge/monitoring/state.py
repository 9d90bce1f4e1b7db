"""What a decider goes on with once its file is read: how rows are split, its seed, what came of its bounds so far."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from datetime import timedelta
from numbers import Integral
from typing import Any

import numpy as np

from polyhedge._support.validation import Array, check_count
from polyhedge.data import GroupSplit, TimeSplit
from polyhedge.io import ModelFileError
from polyhedge.model import Model
from polyhedge.monitoring.alarm import Alarm
from polyhedge.monitoring.monitor import Followed, not_followed

__all__ = ["fed_from", "followed_from", "life_of", "seed_from", "split_from"]


def life_of(
    split: Any,
    followed: Followed | None,
    random_state: Any = None,
    keys: Collection[str] = (),
    *,
    are_alone: bool = False,
) -> dict[str, Any]:
    """The split, the seed and what came of bounds, as numbers, texts, lists and finite arrays.

    Times that a split was given are of rows that are no more needed, and stay outside: `refresh` asks for those of its
    own rows. A generator has a state and no seed: then none is kept. `keys` are those of rows that were fed, and
    `are_alone` says whether outcomes were fed that no log knows.
    """
    is_seed = isinstance(random_state, Integral) and not isinstance(random_state, bool)
    return {
        "split": _split_state(split),
        "seed": int(random_state) if is_seed else None,
        "followed": None if followed is None else _followed_state(followed),
        "fed": {"keys": sorted(keys), "alone": bool(are_alone)},
    }


def seed_from(life: Any) -> int | None:
    """The seed that `life_of` was given; None where a file knows none. A ValueError where it is no seed."""
    seed = life.get("seed") if isinstance(life, dict) else None
    return None if seed is None else check_count(seed, "The seed", minimum=0)


def fed_from(life: Any) -> tuple[frozenset[str], bool]:
    """The keys that `life_of` was given, and whether outcomes were fed alone; none where a file knows of none."""
    state = _part(life, "fed")
    if state is None:
        return frozenset(), _part(life, "followed") is not None
    keys, alone = state["keys"], state["alone"]
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or type(alone) is not bool:
        raise ModelFileError("The rows that were fed must have names that are texts.")
    return frozenset(keys), alone


def split_from(life: Any) -> Any:
    """The split that `life_of` was given; None where a file does not know it. A ValueError where it is no split."""
    state = _part(life, "split")
    if state is None:
        return None
    kind = state["kind"]
    if kind == "time":
        return "time"
    shares = tuple(_numbers(state["shares"]))
    if len(shares) not in (3, 4) or not all(math.isfinite(share) for share in shares):
        raise ModelFileError("A split must have three or four finite shares.")
    if kind == "shares":
        return shares
    if kind == "groups":
        return GroupSplit(_column(state["column"]), shares)
    if kind != "time split":
        raise ModelFileError(f"The file has a split of the kind {str(kind)[:40]!r}, which is not known.")
    column = None if state["column"] is None else _column(state["column"])
    starts = None if state["starts"] is None else tuple(_time(start) for start in state["starts"])
    times = () if state["has_times"] is True and column is None else None
    return TimeSplit(column, times, shares, starts, _time(state["gap"]))


def followed_from(life: Any, model: Model) -> Followed | None:
    """What came of the bounds of this model; None before any `update`. A ValueError where it cannot have come."""
    state = _part(life, "followed")
    if state is None:
        return None
    missed, radii, infinite = (
        _vector(state[name], kind) for name, kind in (("missed", "i"), ("radii", "f"), ("infinite", "i"))
    )
    if not len(missed) == len(radii) == len(infinite):
        raise ModelFileError("Rows that were followed must each have a radius.")
    if not (np.isin(missed, (0, 1)).all() and np.isin(infinite, (-1, 0, 1)).all()):
        raise ModelFileError("Whether a row was covered must be 0 or 1, and the sign of an infinite radius -1, 0 or 1.")
    begun = not_followed(model)
    return Followed(
        missed.astype(bool),
        np.where(infinite == 0, radii, np.copysign(math.inf, infinite)),
        begun.promised,
        _alarm(state["alarm"], begun.alarm, missed[infinite == 0].astype(bool)),
        state["was_recomputed"] is True,
    )


def _split_state(split: Any) -> dict[str, Any] | None:
    """None for what is not one of the splits of this library."""
    if isinstance(split, str):
        return {"kind": "time"}
    if type(split) is GroupSplit:
        return {"kind": "groups", "column": _plain(split.column), "shares": _floats(split.shares)}
    if type(split) is TimeSplit:
        return {
            "kind": "time split",
            "column": _plain(split.column),
            "has_times": split.times is not None,
            "shares": _floats(split.shares),
            "starts": None if split.starts is None else [_plain(start) for start in split.starts],
            "gap": _plain(split.gap),
        }
    return {"kind": "shares", "shares": _floats(split)} if isinstance(split, (tuple, list, np.ndarray)) else None


def _plain(value: Any) -> Any:
    """A column, a time or a length of time as a number or a text."""
    if isinstance(value, (timedelta, np.timedelta64)):
        return f"{np.timedelta64(value).astype('timedelta64[us]').astype(np.int64)}us"
    if isinstance(value, (np.integer, np.floating)):
        return value.item()
    return value if value is None or isinstance(value, (int, float, str)) else str(np.datetime64(value, "us"))


def _floats(values: Any) -> list[float]:
    return [float(value) for value in values]


def _followed_state(followed: Followed) -> dict[str, Any]:
    is_finite, alarm = np.isfinite(followed.radii), followed.alarm
    told = None if alarm is None else [_floats(alarm.wealth), float(alarm.highest), alarm.raised_at]
    return {
        "missed": followed.missed.astype(np.int64),
        "radii": np.where(is_finite, followed.radii, 0.0),
        "infinite": np.where(is_finite, 0, np.sign(followed.radii)).astype(np.int64),
        "was_recomputed": bool(followed.was_recomputed),
        "alarm": told,
    }


def _alarm(state: Any, begun: Alarm | None, missed: Any) -> Alarm | None:
    """The alarm after these rows, which had bounds: what follows is computed, what bets have won is checked."""
    if begun is None or state is None:
        if begun is not None or state is not None:
            raise ModelFileError("A model has an alarm where its promise has an exact law, and only there.")
        return None
    wealth, highest, raised_at = state
    wealth, n = np.array(_numbers(wealth)), len(missed)
    is_row = raised_at is None or 1 <= check_count(raised_at, "raised_at", minimum=1) <= n
    if wealth.shape != begun.wealth.shape or not (wealth >= 0).all() or not float(highest) >= 1 or not is_row:
        raise ModelFileError("What the alarm has won so far is not what an alarm can have.")
    if (raised_at is not None) != (highest >= 1 / begun.rate):
        raise ModelFileError(
            "The alarm is raised where its wealth has reached the inverse of its rate, and only there."
        )
    return begun.after(missed, wealth, float(highest), raised_at)


def _part(life: Any, name: str) -> Mapping[str, Any] | None:
    if not isinstance(life, dict):
        raise ModelFileError("What a decider goes on with must be a dictionary.")
    state = life.get(name)
    if state is not None and not isinstance(state, dict):
        raise ModelFileError(f"What the file says of {name} must be a dictionary.")
    return state


def _numbers(values: Any) -> list[float]:
    if not isinstance(values, list) or not all(type(value) in (int, float) for value in values):
        raise ModelFileError(f"Expected a list of numbers, got {str(values)[:80]!r}.")
    return [float(value) for value in values]


def _vector(values: Any, kind: str) -> Array:
    if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind != kind:
        raise ModelFileError("What came of bounds must be arrays with one entry a row.")
    return values


def _column(column: Any) -> str | int:
    if type(column) not in (str, int):
        raise ModelFileError(f"A column must be a name or a number, got {str(column)[:80]!r}.")
    return column


def _time(value: Any) -> Any:
    if type(value) not in (str, int, float):
        raise ModelFileError(f"A time must be a number or a text, got {str(value)[:80]!r}.")
    return value
