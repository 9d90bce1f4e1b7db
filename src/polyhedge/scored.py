"""Rows at which settings were scored: where a search has chosen among them, these rows may not calibrate its choice.

A search such as `GridSearchCV` scores clones of a decider on folds of its rows and fits a last clone on all of them.
Clones know each other here, so that the last one can tell; in other processes, or by scorers of one's own, they do not.
"""

from __future__ import annotations

import re
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from polyhedge.model import Prints

__all__ = ["hand_on", "note_scored", "scored_at_several"]

_Rows = dict[str, Prints]
"""For each setting the rows at which it was scored."""
_LOCK = Lock()
_KNOWN: WeakKeyDictionary[Any, _Rows] = WeakKeyDictionary()
"""What clones of one decider have in common, as long as one of them lives.

It is no attribute of theirs: making a clone would then change its original, which scikit-learn forbids, and copies and
pickles would carry on what is true of the decider that was cloned alone.
"""
_NO_MATTER = ("problem", "random_state", "solver")
"""Settings that are not compared: a problem is the same object in all clones, another seed is no other setting."""


def hand_on(decider: Any, twin: Any) -> None:
    """Let a clone know what is known of the scores of its original, and the other way round."""
    with _LOCK:
        _KNOWN[twin] = _KNOWN.setdefault(decider, {})


def note_scored(decider: Any, rows: Prints | None) -> None:
    """Keep that a decider was scored at these rows."""
    if rows is None:
        return
    setting = _setting(decider)
    with _LOCK:
        known = _KNOWN.setdefault(decider, {})
        known[setting] = np.union1d(known[setting], rows) if setting in known else np.unique(rows)


def scored_at_several(decider: Any) -> Prints:
    """The rows at which a decider and its clones were scored with two different settings or more."""
    with _LOCK:
        known = [np.zeros(0, dtype=np.uint64), *_KNOWN.get(decider, {}).values()]
    rows, counts = np.unique(np.concatenate(known), return_counts=True)
    return np.asarray(rows[counts > 1])


def _setting(decider: Any) -> str:
    settings = {name: one for name, one in decider.get_params(deep=False).items() if name not in _NO_MATTER}
    # A copy of an object without a text of its own is elsewhere, but the same setting.
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr([settings, id(decider.problem)]))
