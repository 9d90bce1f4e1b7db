"""What held on a test split, for a reader: figures that print, as a frame and in a notebook."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from polyhedge._support.frames import as_frame, as_html
from polyhedge._support.text import amount, with_unit
from polyhedge.estimates import Estimate, Proportion
from polyhedge.sets import Volume

__all__ = ["LOOKS", "ConstraintMeasure", "Evaluation", "GroupMeasure"]

LOOKS = 0.05
"""Chance that any of many groups looks worse than it is: that of the 95 % intervals elsewhere."""
_COSTS = ("worst_case_cost", "premium", "expected_cost", "realised_cost", "regret", "over_nominal")
"""Figures in the unit of the cost."""


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
    expected_cost : mean of what the plan expected its decisions to cost, to compare with `realised_cost`; None where
        it is not known, as with sets.
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
    cost_unit : unit of the costs, where the problem says it.
    diagnostics : findings: coverage below the promise or notably above it, and an expected cost far from the
        realised one.

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
    cost_unit: str = ""
    expected_cost: Estimate | None = None
    diagnostics: tuple[str, ...] = ()

    def __str__(self) -> str:
        costs = {name: amount(getattr(self, name), self.cost_unit) for name in _COSTS}
        expected = [] if self.expected_cost is None else [f"expected cost    {costs['expected_cost']}"]
        lines = [
            f"coverage         {self.coverage}  (promised {self.promised:.3g})",
            *self._held_lines(),
            *self._unbounded_lines(),
            f"mean bound       {costs['worst_case_cost']}",
            f"premium          {costs['premium']}",
            *expected,
            f"realised cost    {costs['realised_cost']}",
            f"regret           {costs['regret']}",
            f"over nominal     {costs['over_nominal']}",
        ]
        if self.volume is not None:
            lines.append(f"volume           {float(self.volume):.4g}")
        if self.n_undecided:
            lines.append(f"undecided rows   {self.n_undecided}")
        lines += [*(f"  {group}" for group in self.groups), *self.diagnostics]
        return "\n".join(lines)

    def __repr__(self) -> str:
        expected = "" if self.expected_cost is None else f"expected {self.expected_cost:.4g}, "
        told = f"bound {self.worst_case_cost:.4g}, {expected}realised {self.realised_cost:.4g}"
        costs = amount(told, self.cost_unit)
        return f"<Evaluation: coverage {self.coverage}, promised {self.promised:.3g}; {costs}>"

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
        shown = self.to_frame()
        shown.index = [with_unit(name, self.cost_unit if name in _COSTS else None) for name in shown.index]
        told = " ".join([f"Promised: {self.promised:.3g} of rows keep to their bound.", *self.diagnostics])
        whole = as_html(told, shown)
        if not self.groups:
            return whole
        return whole + as_html("By group, with intervals that hold for all of them at once:", self._by_group())

    def _by_group(self) -> Any:
        """A row for each group (pandas), for a reader."""
        shares = ("coverage", "low", "high")
        is_expected = any(group.expected_cost is not None for group in self.groups)
        costs = ("worst_case_cost", *(["expected_cost"] if is_expected else []), "realised_cost")
        columns: dict[str, Any] = {
            "n": [group.coverage.n for group in self.groups],
            **{
                name: [float(getattr(group.coverage, name, group.coverage)) for group in self.groups] for name in shares
            },
            **{
                with_unit(name, self.cost_unit): [_or_nan(getattr(group, name)) for group in self.groups]
                for name in costs
            },
            "p_value": [group.p_value for group in self.groups],
        }
        return as_frame(columns, "pandas", [group.label for group in self.groups])

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


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else float(value)


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
    cost_unit : unit of the costs, where it is known.
    expected_cost : mean of what the plan expected; None where it is not known.
    """

    label: str
    coverage: Proportion
    promise_held: Proportion
    worst_case_cost: Estimate
    realised_cost: Estimate
    p_value: float
    n_without_bound: int = 0
    cost_unit: str = ""
    expected_cost: Estimate | None = None

    @property
    def is_short(self) -> bool:
        """Whether the group is covered less than promised, beyond chance."""
        return self.p_value <= LOOKS

    def __str__(self) -> str:
        short = "  covered less than promised" if self.is_short else ""
        none = f", {self.n_without_bound} more rows without a bound" if self.n_without_bound else ""
        cost = amount(self.realised_cost, self.cost_unit)
        cost += "" if self.expected_cost is None else f" (expected {self.expected_cost:.4g})"
        return f"{self.label} (n={self.coverage.n}): {self.coverage}, cost {cost}{none}{short}"

    def __repr__(self) -> str:
        return f"<GroupMeasure {self}>"
