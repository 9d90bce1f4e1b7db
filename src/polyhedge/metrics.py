"""How good a set and its decisions are on data they have not seen."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from scipy import stats

from polyhedge._frames import as_frame, as_html
from polyhedge._validation import Array, Mask
from polyhedge.estimates import Estimate, Proportion, estimate, proportion
from polyhedge.problems import DecisionProblem
from polyhedge.problems.parameters import parameter_rows
from polyhedge.robust import Decisions, decide_knowing
from polyhedge.sets import Volume

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

_LOOKS = 0.05
"""Chance that any of many groups looks worse than it is: that of the 95 % intervals elsewhere."""


@dataclass(frozen=True)
class ConstraintMeasure:
    """How an uncertain constraint fared on a test split.

    Attributes
    ----------
    name : of the constraint.
    held : share of rows where it held; rows without a decision count as if it had not.
    largest_violation : the most by which it was exceeded, in its own units; 0 if it never was.
    nominal_held, nominal_largest_violation : the same for the decision that trusts the prediction.
    """

    name: str
    held: Proportion
    largest_violation: float
    nominal_held: Proportion
    nominal_largest_violation: float

    def __str__(self) -> str:
        nominal = f"{self.nominal_held.value:.3f}{_by(self.nominal_largest_violation)}"
        return f"{self.held}{_by(self.largest_violation)}  (nominal {nominal})"


def _by(violation: float) -> str:
    return f", exceeded by up to {violation:.3g}" if violation > 0 else ""


@dataclass(frozen=True)
class Evaluation:
    """What held on a test split.

    What is promised is that bound and uncertain constraints hold *together*: `promise_held` is the share to compare
    with `promised`. Where there are uncertain constraints, `bound_held` alone says little.

    A row with an infinite radius has no bound, so that nothing can be held against it: shares of what held are among
    rows with a bound, and `without_bound` tells how many have none.

    Attributes
    ----------
    coverage : share of outcomes inside their sets.
    bound_held : share of rows whose realised cost was at most the bound (at least the coverage).
    promise_held : share of rows for which the bound and all uncertain constraints held (at least the coverage).
    without_bound : share of all rows that have no finite bound.
    not_missed : share of all rows whose outcome was not outside of what it was promised, where rows without a bound
        count as held: the share that the promises of `Online` and `Weighted` are about.
    n_unpromised : rows with a bound for which nothing is promised, such as those of an unseen category that were given
        the radius of all rows; they are among the rows above.
    worst_case_cost : mean of the bounds.
    premium : mean of the bounds minus the cost of deciding as if the prediction were true.
    realised_cost : mean of g(z(x), y).
    regret : mean of g(z(x), y) - min_z g(z, y).
    volume : mean Lebesgue volume of the sets; None where it was not asked for and is not quick and exact.
    promised : 1 - alpha.
    n_undecided : rows without a decision; those with a finite radius count as not held.
    over_nominal : mean of g(z(x), y) - g(z'(x), y) for z'(x), the decision that trusts the prediction; negative
        where robustness paid.
    constraints_held : share of rows for which all uncertain constraints held; None where there are none.
    nominal_constraints_held : the same for the decision that trusts the prediction.
    constraints : how each uncertain constraint fared.
    groups : how each group of rows fared, where labels were given.

    Examples
    --------
    >>> import polyhedge as ph
    >>> X, Y = ph.data.make_synthetic(200, rng=np.random.default_rng(0))
    >>> problem, learner = ph.problems.simplex_linear([0.0, 0.0]), ph.learners.OneSidedBox()
    >>> decider = ph.RobustDecider(problem, learner=learner, random_state=0)
    >>> e = decider.fit(X[:120], Y[:120]).evaluate(X[120:], Y[120:])
    >>> f"{e.coverage:.2f}", e.coverage > 0.5, list(e.to_frame().columns)
    ('0.88', True, ['value', 'low', 'high', 'standard_error', 'n'])
    """

    coverage: Proportion
    bound_held: Proportion
    promise_held: Proportion
    worst_case_cost: Estimate
    premium: Estimate
    realised_cost: Estimate
    regret: Estimate
    over_nominal: Estimate
    promised: float
    without_bound: Proportion
    not_missed: Proportion
    n_unpromised: int = 0
    volume: Volume | None = None
    n_undecided: int = 0
    constraints_held: Proportion | None = None
    nominal_constraints_held: Proportion | None = None
    constraints: tuple[ConstraintMeasure, ...] = ()
    groups: tuple[GroupMeasure, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"coverage         {self.coverage}  (promised {self.promised:.3g})",
            *self._held_lines(),
            *self._unbounded_lines(),
            f"worst-case cost  {self.worst_case_cost}",
            f"premium          {self.premium}",
            f"realised cost    {self.realised_cost}",
            f"regret           {self.regret}",
            f"over nominal     {self.over_nominal}",
        ]
        if self.volume is not None:
            lines.append(f"volume           {float(self.volume):.4g}")
        if self.n_undecided:
            lines.append(f"undecided rows   {self.n_undecided}")
        lines += [f"  {group}" for group in self.groups]
        return "\n".join(lines)

    def _unbounded_lines(self) -> list[str]:
        lines = []
        if self.without_bound > 0:
            lines.append(f"without a bound  {self.without_bound} of all rows, which are left out above")
            lines.append(f"not missed       {self.not_missed} of all rows: those without a bound count as held")
        if self.n_unpromised:
            lines.append(f"without promise  {self.n_unpromised} of the rows with a bound")
        return lines

    def to_frame(self) -> Any:
        """Each figure in a row (pandas): its value, its interval or standard error, and the number of rows."""
        figures = {field.name: getattr(self, field.name) for field in fields(self)}
        numbers = {name: value for name, value in figures.items() if isinstance(value, float)}
        parts = ("low", "high", "standard_error", "n")
        rows = [[float(value), *(getattr(value, part, np.nan) for part in parts)] for value in numbers.values()]
        columns = dict(zip(("value", *parts), np.array(rows, dtype=float).T, strict=True))
        return as_frame(columns, "pandas", list(numbers))

    def _repr_html_(self) -> str:
        """The figures as a table."""
        return as_html(f"Promised: {self.promised:.3g} of rows keep to their bound.", self.to_frame())

    def _held_lines(self) -> list[str]:
        bound = f"bound held       {self.bound_held}"
        if self.constraints_held is None:
            return [bound]
        return [
            f"promise held     {self.promise_held}  (bound and constraints together)",
            bound,
            f"constraints held {self.constraints_held}  (nominal {self.nominal_constraints_held})",
            *(f"  {constraint.name}: {constraint}" for constraint in self.constraints),
        ]


@dataclass(frozen=True)
class GroupMeasure:
    """How one group of rows fared, with a correction for looking at all of them.

    Attributes
    ----------
    label : of the group.
    coverage, promise_held : shares of the rows with a bound, whose intervals hold for all groups at once, in 95 % of
        cases (Bonferroni).
    worst_case_cost, realised_cost : means of the bounds and of what the decisions cost.
    p_value : of so few rows covered if this model covers at least 1 - alpha of the group's rows, corrected by Holm's
        method: naming every group below 0.05 names one wrongly in at most 5 % of cases. Rows must be independent.
    n_without_bound : rows of the group that have no finite bound.
    """

    label: str
    coverage: Proportion
    promise_held: Proportion
    worst_case_cost: Estimate
    realised_cost: Estimate
    p_value: float
    n_without_bound: int = 0

    @property
    def is_short(self) -> bool:
        """Whether the group is covered less than promised, beyond chance."""
        return self.p_value <= _LOOKS

    def __str__(self) -> str:
        short = "  covered less than promised" if self.is_short else ""
        none = f", {self.n_without_bound} more rows without a bound" if self.n_without_bound else ""
        return f"{self.label} (n={self.coverage.n}): {self.coverage}, cost {self.realised_cost}{none}{short}"


def by_group(measures: RowMeasures, labels: Any, alpha: float) -> tuple[GroupMeasure, ...]:
    """How the rows of each label fared, in the order of the labels; test data only."""
    labels = np.asarray(labels)
    if labels.shape != measures.inside.shape:
        raise ValueError(f"by must have one label for each of {len(measures.inside)} rows, got shape {labels.shape}.")
    labels = labels.astype(str)
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
        )
        for name, rows, held_to, p in zip(names, members, bounded, p_values, strict=True)
    )


def level_of_each(n: int) -> float:
    """The level of the intervals of n groups that hold for all of them at once, in 95 % of cases (Bonferroni)."""
    return 1 - _LOOKS / n


def shortfalls(hits: Sequence[Mask], alpha: float) -> Array:
    """p-values of so few hits in each group, corrected for their number by Holm's step-down method.

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
    """Compare decisions with what happened. Test data only: nothing here feeds back into the set."""
    return measure_rows(problem, decisions, inside, centers, outcomes).summary(alpha, volume=volume)


@dataclass(frozen=True, eq=False)
class RowMeasures:
    """What happened row by row, so that groups of rows can be summed up; NaN where there is no decision.

    `violations` and `nominal_violations` (N, n_constraints) say by how much each of the uncertain constraints was
    exceeded, by the decision and by the one that trusts the prediction: 0 where it held. `complaint` says what went
    wrong in deciding. `has_bound` is False where the radius is infinite, so that `inside` and `held` say nothing;
    `has_promise` also where a row has a bound that is not promised.
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
    constraint_names: tuple[str, ...] = ()
    complaint: str = ""

    @property
    def constraints_held(self) -> Mask:
        """Whether all uncertain constraints held."""
        return np.asarray(self.decided & (self.violations == 0).all(axis=1))

    @property
    def promise_held(self) -> Mask:
        """Whether bound and constraints held: what is promised for all but a share alpha of rows."""
        return self.held & self.constraints_held

    def held_by_width(self, n: int = 5) -> list[Proportion]:
        """How often the bound held among rows with the narrowest premium, up to those with the widest finite one.

        A mean bound can be lowered by giving up contexts: where it was, these shares differ.
        """
        rows = np.flatnonzero(self.has_bound)
        premium = self.premium[rows]
        order = rows[np.argsort(np.where(np.isfinite(premium), premium, np.inf), kind="stable")]
        return [proportion(self.held[part]) for part in np.array_split(order, n) if len(part)]

    @classmethod
    def joined(cls, parts: Sequence[RowMeasures]) -> Self:
        """The rows of several parts, one below the other."""
        names = [field.name for field in fields(cls) if field.name not in ("constraint_names", "complaint")]
        rows = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        complaints = dict.fromkeys(part.complaint for part in parts if part.complaint)
        return cls(**rows, constraint_names=parts[0].constraint_names, complaint=". ".join(complaints))

    def summary(
        self, alpha: float, rows: Mask | None = None, *, volume: Volume | None = None, level: float = 0.95
    ) -> Evaluation:
        """The evaluation of the chosen rows, all by default, with intervals of this level; the volume is taken over."""
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
            regret=estimate(self.regret[chosen]),
            volume=volume,
            promised=1 - alpha,
            n_undecided=int((~self.decided[chosen]).sum()),
            over_nominal=estimate(self.over_nominal[chosen]),
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

    Rows by these numbers are `unpromised`, although they may have a bound.
    """
    z, values = decisions.flat, parameter_rows(problem.parameters, parameters, len(outcomes))
    trusting, nominal = decide_knowing(problem, centers, values)
    realised = _realised(problem, z, outcomes, values)
    premium = decisions.cost_bound - nominal
    regret = realised - decide_knowing(problem, outcomes, values)[1]
    over_nominal = realised - _realised(problem, trusting, outcomes, values)
    slack = _rounding(decisions, (premium, regret, over_nominal))
    decided = np.asarray(np.isfinite(z).all(axis=1), dtype=bool)
    has_bound = np.ones(len(z), dtype=bool) if decisions.radii is None else np.isfinite(decisions.radii)
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
        constraint_names=tuple(problem.constraint_names),
        complaint=decisions.complaint(),
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
    return np.asarray(gap + 1e-7 * scale + 1e-12 * np.abs(decisions.cost_bound))
