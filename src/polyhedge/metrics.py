"""How good a set and its decisions are on data they have not seen."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from scipy import stats

from polyhedge._support.alignment import is_missing
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.estimates import Estimate, Proportion, estimate, proportion
from polyhedge.evaluation import LOOKS, ConstraintMeasure, Evaluation, GroupMeasure
from polyhedge.problems import DecisionProblem
from polyhedge.problems.parameters import parameter_rows
from polyhedge.robust import Decisions, decide_knowing
from polyhedge.sets import Volume
from polyhedge.solvers.program import Status

__all__ = [
    "ConstraintMeasure",
    "Estimate",
    "Evaluation",
    "GroupMeasure",
    "Proportion",
    "RowMeasures",
    "by_group",
    "estimate",
    "evaluate_decisions",
    "level_of_each",
    "measure_rows",
    "proportion",
    "shortfalls",
]

_SAME_COST = 1e-12
"""Costs of one decision may differ by this share of them, where its sums are added up in another order."""
_SOLVED = 1e-7
"""Share of what decisions differ by up to which solvers find the best of them: a tenth of their tolerance."""

_OF_ALL = ("constraint_names", "complaint", "cost_unit")
"""What is said of all rows together."""


def by_group(measures: RowMeasures, labels: Any, alpha: float) -> tuple[GroupMeasure, ...]:
    """How the rows of each label fared, in the order of the labels; test data only.

    Parameters
    ----------
    measures : what happened row by row.
    labels : (N,) one for each row; missing ones are a group too.
    alpha : the level that was promised.
    """
    labels = np.asarray(labels)
    if labels.shape != measures.inside.shape:
        raise ValueError(f"by must have one label for each of {len(measures.inside)} rows, got shape {labels.shape}.")
    labels = np.where([is_missing(label) for label in labels], "(missing)", labels.astype(str))
    names = np.unique(labels)
    members = [labels == name for name in names]
    bounded = [rows & measures.has_bound for rows in members]
    p_values = shortfalls([measures.inside[rows] for rows in bounded], alpha)
    level = level_of_each(len(names))
    return tuple(
        GroupMeasure(
            str(name),
            proportion(measures.inside[held_to], level),
            proportion(measures.promise_held[held_to], level),
            estimate(measures.cost_bound[rows]),
            estimate(measures.realised[rows]),
            float(p),
            int(rows.sum() - held_to.sum()),
            measures.cost_unit,
            _known(measures.expected[rows]),
        )
        for name, rows, held_to, p in zip(names, members, bounded, p_values, strict=True)
    )


def level_of_each(n: int) -> float:
    """The level of the intervals of `n` groups that hold for all of them at once, in 95 % of cases (Bonferroni)."""
    return 1 - LOOKS / n


def shortfalls(hits: Sequence[Mask], alpha: float) -> Array:
    """p-values of so few hits in each group, corrected for their number by Holm's step-down method.

    Parameters
    ----------
    hits : for each group, which of its rows were covered.
    alpha : a row is missed with at most this probability if the promise holds.

    Examples
    --------
    >>> shortfalls([np.array([True] * 90 + [False] * 10), np.array([True] * 70 + [False] * 30)], 0.1).round(4)
    array([0.5487, 0.    ])
    """
    p_values = stats.binom.cdf([hit.sum() for hit in hits], [len(hit) for hit in hits], 1 - alpha)
    order = np.argsort(p_values)
    stepped = np.maximum.accumulate(p_values[order] * np.arange(len(order), 0, -1))
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected


def evaluate_decisions(
    problem: DecisionProblem,
    decisions: Decisions,
    inside: Mask,
    centers: Array,
    outcomes: Array,
    volume: Volume | None,
    alpha: float,
) -> Evaluation:
    """Compare decisions with what happened. Test data only: nothing here feeds back into the set.

    Parameters
    ----------
    problem, decisions, inside, centers, outcomes : as in `measure_rows`.
    volume : of the set, taken over; None where it is not told.
    alpha : the level that was promised.
    """
    return measure_rows(problem, decisions, inside, centers, outcomes).summary(alpha, volume=volume)


@dataclass(frozen=True, eq=False)
class RowMeasures:
    """What happened row by row, so that groups of rows can be summed up; NaN where there is no decision.

    Attributes
    ----------
    inside, held : (N,) whether the outcome lay in its region, and whether the cost kept to its bound.
    decided : (N,) whether there is a decision.
    cost_bound, realised : (N,) what a decision was said to cost at most, and what it came to cost.
    expected : (N,) what the plan expected its decision to cost; NaN also where nothing was expected.
    premium : (N,) the bound less the least cost if the prediction were true.
    regret : (N,) the cost less the least cost if the outcome had been known.
    over_nominal : (N,) the cost less that of the decision that trusts the prediction.
    violations, nominal_violations : (N, n_constraints) by how much each of the uncertain constraints was exceeded, by
        the decision and by the one that trusts the prediction: 0 where it held.
    has_bound : (N,) False where the radius is infinite, so that `inside` and `held` say nothing.
    has_promise : (N,) False there, and where a row has a bound that is not promised.
    constraint_names : of the uncertain constraints.
    complaint : what went wrong in deciding.
    cost_unit : in which costs are counted; empty where nobody said.
    """

    inside: Mask
    held: Mask
    decided: Mask
    cost_bound: Array
    premium: Array
    realised: Array
    regret: Array
    over_nominal: Array
    violations: Array
    nominal_violations: Array
    has_bound: Mask
    has_promise: Mask
    expected: Array
    constraint_names: tuple[str, ...] = ()
    complaint: str = ""
    cost_unit: str = ""

    def __repr__(self) -> str:
        return f"<RowMeasures: {len(self.inside)} rows, {int(self.held.sum())} of them kept to their bound>"

    @property
    def constraints_held(self) -> Mask:
        """Whether all uncertain constraints held."""
        return np.asarray(self.decided & (self.violations == 0).all(axis=1))

    @property
    def promise_held(self) -> Mask:
        """Whether bound and constraints held: what is promised for all but a share alpha of rows."""
        return self.held & self.constraints_held

    def held_by_width(self, n: int = 5) -> list[Proportion]:
        """How often the bound held in each of n parts of the rows, from the narrowest premium to the widest.

        A mean bound can be lowered by giving up contexts: where it was, these shares differ.
        """
        rows = np.flatnonzero(self.has_bound)
        premium = self.premium[rows]
        order = rows[np.argsort(np.where(np.isfinite(premium), premium, np.inf), kind="stable")]
        return [proportion(self.held[part]) for part in np.array_split(order, n) if len(part)]

    @classmethod
    def joined(cls, parts: Sequence[RowMeasures]) -> Self:
        """The rows of several parts, one below the other."""
        arrays = [field.name for field in fields(cls) if field.name not in _OF_ALL]
        rows = {name: np.concatenate([getattr(part, name) for part in parts]) for name in arrays}
        complaints = dict.fromkeys(part.complaint for part in parts if part.complaint)
        names, unit = parts[0].constraint_names, parts[0].cost_unit
        return cls(**rows, constraint_names=names, complaint=". ".join(complaints), cost_unit=unit)

    def among(self, rows: Indices, n: int) -> Self:
        """These measures at `rows` among `n` rows, the others of which could not be decided."""
        arrays: dict[str, Any] = {}
        for name in (field.name for field in fields(self) if field.name not in _OF_ALL):
            own = getattr(self, name)
            arrays[name] = np.full((n, *own.shape[1:]), False if own.dtype == bool else np.nan)
            arrays[name][rows] = own
        said = f"{n - len(rows)} of {n} decisions: {Status.NOT_DECIDED}"
        return replace(self, **arrays, complaint=". ".join(filter(None, (said, self.complaint))))

    def summary(
        self, alpha: float, rows: Mask | None = None, *, volume: Volume | None = None, level: float = 0.95
    ) -> Evaluation:
        """The evaluation of rows that were promised `1 - alpha`.

        Parameters
        ----------
        alpha : the level that was promised.
        rows : (N,) which rows to sum up; all by default.
        volume : of the set, taken over; None where it is not told.
        level : of the intervals.
        """
        chosen = np.ones(len(self.inside), dtype=bool) if rows is None else rows
        held_to = chosen & self.has_bound
        return Evaluation(
            coverage=proportion(self.inside[held_to], level),
            bound_held=proportion(self.held[held_to], level),
            promise_held=proportion(self.promise_held[held_to], level),
            without_bound=proportion(~self.has_bound[chosen], level),
            not_missed=proportion((self.inside | ~self.has_bound)[chosen], level),
            n_unpromised=int((held_to & ~self.has_promise).sum()),
            worst_case_cost=estimate(self.cost_bound[chosen]),
            premium=estimate(self.premium[chosen]),
            realised_cost=estimate(self.realised[chosen]),
            expected_cost=_known(self.expected[chosen]),
            regret=estimate(self.regret[chosen], among=self.realised[chosen]),
            volume=volume,
            promised=1 - alpha,
            n_undecided=int((~self.decided[chosen]).sum()),
            over_nominal=estimate(self.over_nominal[chosen], among=self.realised[chosen]),
            cost_unit=self.cost_unit,
            **self._constraint_summary(held_to, level),
        )

    def _constraint_summary(self, chosen: Mask, level: float) -> dict[str, Any]:
        if not self.constraint_names:
            return {}
        own, nominal = self.violations[chosen], self.nominal_violations[chosen]
        return {
            "constraints_held": proportion(self.constraints_held[chosen], level),
            "nominal_constraints_held": proportion((nominal == 0).all(axis=1), level),
            "constraints": tuple(
                ConstraintMeasure(name, *_of_constraint(own[:, k], level), *_of_constraint(nominal[:, k], level))
                for k, name in enumerate(self.constraint_names)
            ),
        }


def _known(expected: Array) -> Estimate | None:
    """The mean of expected costs; None where nothing was expected."""
    return estimate(expected) if np.isfinite(expected).any() else None


def _of_constraint(violations: Array, level: float) -> tuple[Proportion, float]:
    return proportion(violations == 0, level), float(violations.max(initial=0.0, where=np.isfinite(violations)))


def measure_rows(
    problem: DecisionProblem,
    decisions: Decisions,
    inside: Mask,
    centers: Array,
    outcomes: Array,
    parameters: Mapping[Any, Any] | None = None,
    unpromised: Collection[int] = (),
) -> RowMeasures:
    """Bound, realised cost, regret and the like of each row, at the problem's parameters; test data only.

    Parameters
    ----------
    problem, decisions : what was to be decided in N rows, and what was.
    inside : (N,) whether the outcome lay in its region.
    centers, outcomes : (N, d) what was predicted, and what came.
    parameters : values of the problem's parameters by name, where it has any.
    unpromised : numbers of the rows for which nothing is promised, although they may have a bound.
    """
    z, values = decisions.flat, parameter_rows(problem.parameters, parameters, len(outcomes))
    trusting, nominal = decide_knowing(problem, centers, values)
    realised = _realised(problem, z, outcomes, values)
    premium = decisions.cost_bound - nominal
    regret = realised - decide_knowing(problem, outcomes, values)[1]
    over_nominal = realised - _realised(problem, trusting, outcomes, values)
    over_nominal[np.abs(over_nominal) <= _SAME_COST * np.abs(realised)] = 0.0
    slack = _rounding(decisions, (premium, regret, over_nominal))
    decided = np.asarray(np.isfinite(z).all(axis=1), dtype=bool)
    has_bound = np.ones(len(z), dtype=bool) if decisions.radii is None else np.isfinite(decisions.radii)
    expected = np.full(len(z), np.nan) if decisions.expected_cost is None else decisions.expected_cost
    return RowMeasures(
        inside=inside,
        held=decided & (realised <= decisions.cost_bound + slack),
        decided=decided,
        cost_bound=decisions.cost_bound,
        premium=premium,
        realised=realised,
        regret=regret,
        over_nominal=over_nominal,
        violations=problem.violations(z, outcomes, values),
        nominal_violations=problem.violations(trusting, outcomes, values),
        has_bound=has_bound,
        has_promise=has_bound & ~np.isin(np.arange(len(z)), list(unpromised)),
        expected=np.where(decided, expected, np.nan),  # its mean is of the rows of which the mean cost is
        constraint_names=tuple(problem.constraint_names),
        complaint=decisions.complaint(),
        cost_unit=(problem.units or {}).get("cost", ""),
    )


def _realised(problem: DecisionProblem, z: Array, outcomes: Array, values: Array) -> Array:
    """The cost g(z_i, y_i), NaN where there is no decision."""
    decided = np.isfinite(z).all(axis=1)
    realised = np.full(len(z), np.nan)
    realised[decided] = problem.evaluate(z[decided], outcomes[decided], values[decided])
    return realised


def _rounding(decisions: Decisions, differences: Sequence[Array]) -> Array:
    """What solvers and floats may be off by: a share of what decisions differ by in this very row, and of the bound."""
    gap = np.where(np.isfinite(decisions.gap), decisions.gap, 0.0)
    scale = sum((np.where(np.isfinite(size), np.abs(size), 0.0) for size in differences), np.zeros(len(gap)))
    return np.asarray(gap + _SOLVED * scale + _SAME_COST * np.abs(decisions.cost_bound))
