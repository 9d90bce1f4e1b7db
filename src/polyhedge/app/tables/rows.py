"""Decisions and measures for the rows of a table, batch by batch, and decisions as a table."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyhedge._support.frames import distinct_names
from polyhedge._support.progress import batches_of, tell
from polyhedge._support.validation import Array
from polyhedge.app.tables.parameters import take_parameters
from polyhedge.estimator import RobustDecider
from polyhedge.evaluation import Proportion, RowMeasures, proportion
from polyhedge.predictors.schema import Labels
from polyhedge.regions import Work
from polyhedge.robust import Decisions
from polyhedge.sets import Volume
from polyhedge.solvers.program import Status

__all__ = ["decide_table", "decisions_frame", "measure_table", "quick_volume", "thinned_coverage"]

_log = logging.getLogger(__name__)


def decide_table(
    decider: RobustDecider, X: Any, parameters: Mapping[str, Array] | None = None, labels: Any = None
) -> Decisions | None:
    """Decisions for the rows of a data frame, with progress in the log; None where there are no rows."""
    work = Work(progress=lambda done, total: tell(_log, "deciding", done, total))
    return decider.model_.decide(X, parameters, work, labels) if len(X) else None


def measure_table(
    decider: RobustDecider, X: Any, Y: Array, parameters: Mapping[str, Array] | None = None, labels: Any = None
) -> RowMeasures:
    """What happened row by row, with progress in the log. Rows that were not used for fitting only."""
    parts = []
    for batch in batches_of(len(X)):
        values = take_parameters(parameters or {}, batch)
        own = None if labels is None else labels[batch]
        parts.append(decider.measure(X.iloc[batch], Y[batch], parameters=values, labels=own))
        tell(_log, "evaluating", batch.stop, len(X))
    return RowMeasures.joined(parts)


def quick_volume(decider: RobustDecider, X: Any, labels: Any = None) -> Volume | None:
    """The mean volume of the sets at these rows where it is quick, as in `RobustDecider.evaluate`."""
    return decider.mean_volume(X, labels=labels) if decider.model_.family.has_quick_volume else None


def thinned_coverage(measures: RowMeasures, groups: Any, rng: np.random.Generator) -> Proportion:
    """Coverage of one random row with a bound of each group: these are independent, so that its interval is exact."""
    order = rng.permutation(len(groups))
    order = order[measures.has_bound[order]]
    chosen = order[np.unique(np.asarray(groups)[order], return_index=True)[1]]
    return proportion(measures.inside[chosen])


def decisions_frame(
    decider: RobustDecider,
    decisions: Decisions | None,
    outcomes: Sequence[str],
    reasons: Labels,
    notes: Labels,
) -> Any:
    """One row for each input row, in its order: the decision, its bound, the worst outcome, status and note.

    Where the decision taken is guarded there is no worst outcome; its expected cost stands there instead.

    Parameters
    ----------
    decider : fitted.
    decisions : of the rows whose reason is empty, in their order.
    outcomes : names of the outcomes.
    reasons : why a row was not decided; empty text where it was.
    notes : what is odd about a row.
    """
    import pandas as pd

    decided = np.array([not reason for reason in reasons], dtype=bool)
    is_guarded = decider.model_.guarantee == "cost"
    told = ["expected_cost"] if is_guarded else [f"worst_{name}" for name in outcomes]
    names = [*decider.problem_.decision_names, "cost_bound", *told]
    values = np.full((len(reasons), len(names)), np.nan)
    status = np.full(len(reasons), str(Status.NOT_DECIDED).partition(":")[0], dtype=object)
    remarks = np.array([reason or note for reason, note in zip(reasons, notes, strict=True)], dtype=object)
    if decisions is not None:
        z = decisions.z.reshape(len(decisions), -1)
        more = decisions.worst_outcome if decisions.expected_cost is None else decisions.expected_cost
        values[decided] = np.column_stack([z, decisions.cost_bound, more])
        # The first words of a status are its name; what follows explains it.
        status[decided] = [str(s).partition(":")[0] for s in decisions.status]
        # Details are optional and come for every row or for none.
        details = decisions.detail or ("",) * len(decisions)
        for row, s, gap, detail in zip(np.flatnonzero(decided), decisions.status, decisions.gap, details, strict=True):
            size = f"gap {gap:.2g}" if s == Status.STOPPED_EARLY else ""
            texts = [str(s).partition(": ")[2], size, detail, remarks[row]]
            remarks[row] = "; ".join(text for text in texts if text)
    frame = pd.DataFrame(values, columns=distinct_names([*names, "status", "note"])[:-2])
    return frame.assign(status=status, note=remarks)
