"""What held on rows that a decider has not seen, for a reader who compares costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from polyhedge._support.text import amount, with_unit
from polyhedge._support.validation import Array
from polyhedge.app.report.blocks import Block, Text
from polyhedge.app.report.pictures import bound_picture
from polyhedge.app.report.tables import Cell, Column, Table
from polyhedge.app.tables import thinned_coverage
from polyhedge.diagnosing import diagnostics_of_evaluation, row_hashes, seen_diagnostic, seen_rows
from polyhedge.estimator import RobustDecider
from polyhedge.evaluation import Evaluation, Proportion, RowMeasures, estimate

__all__ = ["HeldOut", "observe", "observed_blocks"]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out rows, and what robust decisions, trust in the prediction and foresight cost on them.

    Attributes
    ----------
    X, Y : the rows.
    rows : what happened row by row.
    evaluation : the same in the mean, without the volume: a reader of the page has no use for it.
    complaint : what went wrong with decisions, empty if nothing did.
    evidence : coverage of rows that are independent of each other: all of them, or one of each group of near-copies.
    has_groups : whether there are such groups.
    has_set : whether outcomes are promised to lie in a set; otherwise costs are promised to be at most their bound.
    parameters : values (n, *shape) of the problem's parameters at these rows, by name.
    labels : labels or weights (n,) that calibration reads; None where it asks for none.
    seen : what is to be said where rows trained or shaped the model; empty where they did not.
    """

    X: Any
    Y: Array
    rows: RowMeasures
    evaluation: Evaluation
    complaint: str
    evidence: Proportion
    has_groups: bool
    has_set: bool
    parameters: Mapping[str, Array]
    labels: Any = None
    seen: str = ""

    @property
    def costs(self) -> dict[str, Array]:
        """Realised costs (n,) of the three ways to decide."""
        robust = self.rows.realised
        return {
            "Robust decision": robust,
            "Trusting the prediction": robust - self.rows.over_nominal,
            "Knowing the outcome": robust - self.rows.regret,
        }


def observe(
    decider: RobustDecider,
    X: Any,
    Y: ArrayLike,
    groups: Any = None,
    parameters: Mapping[str, Array] | None = None,
    labels: Any = None,
    n_units: int | None = None,
) -> HeldOut:
    """Decide held-out rows in all three ways; nothing flows back to the decider.

    `n_units` independent rows or groups set the radius; all calibration rows by default.
    """
    parameters = {} if parameters is None else parameters
    model = decider.model_
    outcomes, rows = model.outcomes(X, Y), model.measure(X, Y, parameters, labels)
    evaluation = rows.summary(model.radii.alpha)
    evidence = evaluation.coverage if groups is None else thinned_coverage(rows, groups, np.random.default_rng(0))
    found = diagnostics_of_evaluation(
        model, evidence, rows, decider.n_calibrate_ if n_units is None else n_units, groups
    )
    evaluation = replace(evaluation, diagnostics=tuple(found))
    has_set = model.guarantee == "outcome"
    are_grouped, told = groups is not None, rows.complaint
    seen = "".join(seen_diagnostic(seen_rows(model), row_hashes(model.features(X), outcomes)))
    return HeldOut(X, outcomes, rows, evaluation, told, evidence, are_grouped, has_set, parameters, labels, seen)


def observed_blocks(held_out: HeldOut) -> list[Block]:
    """A table of the three ways to decide, and the bounds against what came."""
    level, unit = 100 * held_out.evaluation.promised, held_out.evaluation.cost_unit
    costs = held_out.costs
    rows = [_row(name, cost, costs["Knowing the outcome"], level) for name, cost in costs.items()]
    columns = [
        Column("how it is decided"),
        Column(with_unit("mean cost", unit)),
        Column(with_unit("regret", unit)),
        Column(with_unit(f"cost on a bad day ({level:.3g} % quantile)", unit)),
        Column(with_unit("highest cost", unit)),
    ]
    note = (
        "± standard error. Regret: mean cost above what knowing the outcome would have cost. What a robust decision "
        "buys is a bound known before, not a lower mean."
    )
    return [
        Text(_sentence(held_out)),
        *_constraint_blocks(held_out.evaluation),
        Table("Realised cost on held-out rows", columns, rows, note),
        *bound_picture(held_out.rows),
    ]


def _constraint_blocks(evaluation: Evaluation) -> list[Block]:
    """A table of the uncertain constraints, by the robust decision and by trust in the prediction."""
    if not evaluation.constraints:
        return []
    columns = [
        Column("constraint"),
        Column("held"),
        Column("exceeded by up to"),
        Column("held, trusting the prediction"),
        Column("exceeded by up to"),
    ]
    rows = [
        [
            Cell(one.name),
            Cell(f"{100 * one.held.value:.1f} %", one.held.value),
            Cell(f"{one.largest_violation:.3g}", one.largest_violation),
            Cell(f"{100 * one.nominal_held.value:.1f} %", one.nominal_held.value),
            Cell(f"{one.nominal_largest_violation:.3g}", one.nominal_largest_violation),
        ]
        for one in evaluation.constraints
    ]
    note = "Share of held-out rows in which a constraint held, and the most by which it did not, in its own units."
    return [Table("Constraints on held-out rows", columns, rows, note)]


def _row(name: str, cost: Array, oracle: Array, level: float) -> list[Cell]:
    mean, regret = estimate(cost), estimate(cost - oracle)
    finite = cost[np.isfinite(cost)]
    bad, highest = (float(np.percentile(finite, q)) if len(finite) else np.nan for q in (level, 100.0))
    return [
        Cell(name),
        Cell(f"{mean.value:.4g}", mean.value, detail=mean.error_text),
        Cell(f"{regret.value:.4g}", regret.value, detail=regret.error_text),
        Cell(f"{bad:.4g}", bad),
        Cell(f"{highest:.4g}", highest),
    ]


def _sentence(held_out: HeldOut) -> str:
    evaluation = held_out.evaluation
    diagnostic, fresh = (f"{held_out.seen} ", "") if held_out.seen else ("", " that the model had not seen")
    if not evaluation.coverage.n:
        n_rows = evaluation.without_bound.n
        return f"{diagnostic}None of {n_rows} rows{fresh} has a finite bound, so that nothing was promised."
    n, inside, held = evaluation.coverage.n, _share(evaluation.coverage), _share(evaluation.bound_held)
    if held_out.has_groups:
        inside, held = (f"{100 * share.value:.1f} %" for share in (evaluation.coverage, evaluation.bound_held))
    groups = f" {evidence_in_words(held_out)}" if held_out.has_groups else ""
    within = f"{inside} of the outcomes lay inside their set, and " if held_out.has_set else ""
    rows = "rows" if not evaluation.without_bound > 0 else "rows with a bound"
    bound, came, premium = (
        amount(each, evaluation.cost_unit)
        for each in (evaluation.worst_case_cost, evaluation.realised_cost, evaluation.premium)
    )
    if evaluation.expected_cost is not None:
        came = f"{came}, where the policy expected {amount(evaluation.expected_cost, evaluation.cost_unit)}"
    return (
        f"{diagnostic}On {n} {rows}{fresh}, {within}{held} of the "
        f"rows cost at most their bound.{_constraints_in_words(evaluation)}{groups} "
        f"The bound was {bound} in the mean, the cost that came {came}. "
        f"The bound lies {premium} above the cost if the prediction were true."
    )


def _constraints_in_words(evaluation: Evaluation) -> str:
    if evaluation.constraints_held is None or evaluation.nominal_constraints_held is None:
        return ""
    shares = evaluation.constraints_held, evaluation.nominal_constraints_held, evaluation.promise_held
    kept, nominal, both = (f"{100 * share.value:.1f} %" for share in shares)
    return (
        f" All constraints that depend on the outcome held in {kept} of the rows (trusting the prediction: {nominal}); "
        f"bound and constraints held together, as promised, in {both}."
    )


def evidence_in_words(held_out: HeldOut) -> str:
    """What rows that are near-copies of each other prove."""
    evidence = held_out.evidence
    kept = "lay inside" if held_out.has_set else "kept to their bound"
    return f"Rows of one group are near-copies: of one row of each of {evidence.n} groups, {_share(evidence)} {kept}."


def _share(share: Proportion) -> str:
    return f"{100 * share.value:.1f} % (95 % interval {100 * share.low:.1f} to {100 * share.high:.1f} %)"
