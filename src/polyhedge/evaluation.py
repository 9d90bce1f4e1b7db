"""What held on rows that a model has not seen: coverage, bounds, costs and regret, with their uncertainty."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from polyhedge._support.frames import as_frame, as_html, is_missing
from polyhedge._support.text import amount, with_unit
from polyhedge._support.tolerances import CANCELLATION, SOLVED
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.decisions import Decisions
from polyhedge.problems import DecisionProblem
from polyhedge.robust import decide_knowing
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
    "measure_rows",
    "proportion",
    "shortfalls",
]

LOOKS = 0.05
"""Chance that any of many groups looks worse than it is: that of the 95 % intervals elsewhere."""
_STAGES = ("first_cost", "second_cost")
"""What both stages cost, where there is recourse."""
_COSTS = ("worst_case_cost", "premium", "expected_cost", "realised_cost", *_STAGES, "regret", "over_nominal")
"""Figures in the unit of the cost."""
_OF_ALL = ("constraint_names", "complaint", "cost_unit", "risk", "levels")
"""Fields of `RowMeasures` that describe all rows together."""
_FILLS = {"b": False, "U": ""}
"""What stands at rows without a decision in flags and texts; NaN in numbers."""


@dataclass(frozen=True)
class ConstraintMeasure:
    """How an uncertain constraint fared on a test split.

    Attributes
    ----------
    name : of the constraint.
    held : share of rows where it held; rows without a decision count as if it had not.
    largest_violation : the most by which it was exceeded, in its own units; 0 if it never was.
    nominal_held, nominal_largest_violation : the same for the decision that trusts the prediction.
    promised : the share promised for this constraint alone; None where one promise is for all together.
    """

    name: str
    held: Proportion
    largest_violation: float
    nominal_held: Proportion
    nominal_largest_violation: float
    promised: float | None = None

    def __str__(self) -> str:
        nominal = f"nominal {self.nominal_held.value:.3f}{_by(self.nominal_largest_violation)}"
        promised = "" if self.promised is None else f"promised {self.promised:.3g}; "
        return f"{self.held}{_by(self.largest_violation)}  ({promised}{nominal})"


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
    expected_cost : mean of what the policy expected its decisions to cost, to compare with `realised_cost`; None where
        it is not known, as with sets.
    regret : mean of g(z(x), y) - min_z g(z, y).
    first_cost, second_cost : means of both parts of the realised cost; None without recourse.
    volume : mean Lebesgue volume of the sets; None where it was not asked for and is not quick and exact.
    promised : 1 - alpha.
    n_undecided : rows without a decision; those with a finite radius count as not held.
    n_infeasible : rows of infinite cost, whose second stage is infeasible: they are not held, and no mean has them.
    over_nominal : mean of g(z(x), y) - g(z'(x), y) for z'(x), the decision that trusts the prediction; negative
        where robustness paid.
    constraints_held : share of rows for which all uncertain constraints held; None where there are none.
    nominal_constraints_held : the same for the decision that trusts the prediction.
    constraints : how each uncertain constraint fared.
    groups : how each group of rows fared, where labels were given.
    cost_unit : unit of the costs, where the problem says it.
    diagnostics : findings: rows that the model has seen, coverage below the promise or notably above it, and an
        expected cost far from the realised one.
    blocks_held : share of blocks that kept what is promised for blocks; None where nothing is.
    one_a_group : coverage of one random row of each group of near-copies; None where rows count one by one.
    risk : the worst share of rows, their mean cost and the bound on it; None without such a bound.
    rows : bounds and costs row by row, which `plot` draws.

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
    n_infeasible: int = 0
    constraints_held: Proportion | None = None
    nominal_constraints_held: Proportion | None = None
    constraints: tuple[ConstraintMeasure, ...] = ()
    groups: tuple[GroupMeasure, ...] = ()
    cost_unit: str = ""
    expected_cost: Estimate | None = None
    first_cost: Estimate | None = None
    second_cost: Estimate | None = None
    diagnostics: tuple[str, ...] = ()
    blocks_held: Proportion | None = None
    one_a_group: Proportion | None = None
    risk: tuple[float, float, float] | None = None
    rows: RowMeasures | None = field(default=None, repr=False, compare=False)

    @property
    def evidence(self) -> Proportion:
        """How often held what is promised, of units that are independent of each other."""
        if self.blocks_held is not None and self._is_of_blocks:
            return self.blocks_held
        return self.coverage if self.one_a_group is None else self.one_a_group

    @property
    def _is_of_blocks(self) -> bool:
        """Whether the promise is that all rows of a block keep to their bounds."""
        return self.rows is not None and self.rows.blocks is not None and self.rows.total_bound is None

    def __str__(self) -> str:
        return "\n".join([*self.lines(), *self.diagnostics])

    def lines(self) -> list[str]:
        """The figures in words, a line each, without the diagnostics."""
        what = "of rows, the promise is for blocks" if self._is_of_blocks else f"promised {self.promised:.3g}"
        shares = {"coverage": f"{self.coverage}  ({what})"}
        if self.constraints_held is not None:
            shares["promise held"] = f"{self.promise_held}  (bound and constraints together)"
        shares["bound held"] = f"{self.bound_held}"
        if self.constraints_held is not None and self.nominal_constraints_held is not None:
            nominal = f"(nominal {self.nominal_constraints_held.value:.3f})"
            shares["constraints held"] = f"{self.constraints_held}  {nominal}"
            shares |= {f"  {one.name}:": str(one) for one in self.constraints}
        if self.blocks_held is not None:
            shares["blocks held"] = f"{self.blocks_held} of {self.blocks_held.n} blocks  (promised {self.promised:.3g})"
        if self.risk is not None:
            share, realised, bound = self.risk
            whose = "mean cost" if share == 1 else f"worst {share:g} cost"
            shares[whose] = f"{amount(f'{realised:.4g}', self.cost_unit)} (at most {bound:.4g})"
        if self.without_bound > 0:
            shares["without a bound"] = f"{self.without_bound} of all rows, which are left out above"
            shares["not missed"] = f"{self.not_missed} of all rows: those without a bound count as held"
        if self.n_unpromised:
            shares["without promise"] = f"{self.n_unpromised} of the rows with a bound"
        stages = ("  first stage", "  second stage")
        names = ("mean bound", "extra cost", "expected cost", "realised cost", *stages, "regret", "over nominal")
        costs = {name: getattr(self, field) for name, field in zip(names, _COSTS, strict=True)}
        shares |= {name: amount(cost, self.cost_unit) for name, cost in costs.items() if cost is not None}
        if self.volume is not None:
            shares["volume"] = f"{float(self.volume):.4g}"
        if self.n_undecided:
            shares["undecided rows"] = str(self.n_undecided)
        if self.n_infeasible:
            shares["infinite cost"] = f"{self.n_infeasible} rows, which no mean above has"
        if self.one_a_group is not None:  # near-copies are no independent evidence: an interval of all is too narrow
            shares["one row a group"] = f"{self.one_a_group} of {self.one_a_group.n} groups covered"
        return [*(f"{name:<16} {text}" for name, text in shares.items()), *(f"  {group}" for group in self.groups)]

    def __repr__(self) -> str:
        expected = "" if self.expected_cost is None else f"expected {self.expected_cost:.4g}, "
        costs = f"bound {self.worst_case_cost:.4g}, {expected}realised {self.realised_cost:.4g}"
        costs = amount(costs, self.cost_unit)
        return f"<Evaluation: coverage {self.coverage}, promised {self.promised:.3g}; {costs}>"

    def to_frame(self) -> Any:
        """Each figure in a row (pandas): its value, its interval or standard error, and the number of rows."""
        figures = {field.name: getattr(self, field.name) for field in fields(self)}
        numbers = {name: value for name, value in figures.items() if isinstance(value, float)}
        parts = ("low", "high", "standard_error", "n")
        rows = [[float(value), *(getattr(value, part, np.nan) for part in parts)] for value in numbers.values()]
        columns = dict(zip(("value", *parts), np.array(rows, dtype=float).T, strict=True))
        return as_frame(columns, "pandas", list(numbers))

    def plot(self, ax: Any = None) -> Any:
        """Draw the bound of each row against its realised cost, with the coverage as the title (matplotlib Axes)."""
        if self.rows is None:
            raise ValueError("Only the evaluation of RobustDecider.evaluate knows its rows, and can draw them.")
        # Pictures are made from results, not the other way round: looked up when one is asked for.
        drawn = import_module("polyhedge.plots").bounds_and_costs(self.rows, ax)
        drawn.set_title(f"bound held in {100 * self.bound_held:.1f} % of rows, promised {100 * self.promised:.3g} %")
        return drawn

    def _repr_html_(self) -> str:
        """The figures as a table."""
        shown = self.to_frame()
        shown.index = [with_unit(name, self.cost_unit if name in _COSTS else None) for name in shown.index]
        units = "blocks keep to their bounds" if self._is_of_blocks else "rows keep to their bound"
        text = " ".join([f"Promised: {self.promised:.3g} of {units}.", *self.diagnostics])
        whole = as_html(text, shown)
        if not self.groups:
            return whole
        shares = [group.coverage for group in self.groups]
        columns: dict[str, Any] = {"n": [share.n for share in shares], "coverage": [float(share) for share in shares]}
        columns |= {"low": [share.low for share in shares], "high": [share.high for share in shares]}
        for name in ("worst_case_cost", "expected_cost", "realised_cost"):
            costs = [getattr(group, name) for group in self.groups]
            if getattr(self, name) is not None:
                columns[with_unit(name, self.cost_unit)] = [np.nan if cost is None else float(cost) for cost in costs]
        columns["p_value"] = [group.p_value for group in self.groups]
        by_label = as_frame(columns, "pandas", [group.label for group in self.groups])
        return whole + as_html("By group, with intervals that hold for all of them at once:", by_label)


@dataclass(frozen=True)
class GroupMeasure(Evaluation):
    """The evaluation of one group of rows, with a correction for looking at all of them.

    Attributes
    ----------
    label : of the group.
    p_value : probability of so few covered rows if this model covers at least 1 - alpha of the group's rows, corrected
        by Holm's method. Naming every group below 0.05 names one wrongly in at most 5 % of cases. Rows must be
        independent.
    coverage, bound_held, promise_held, without_bound, not_missed, constraints_held, nominal_constraints_held : as in
        `Evaluation`, with intervals that hold for all groups at once, in 95 % of cases (Bonferroni).
    worst_case_cost, premium, realised_cost, regret, over_nominal, expected_cost, cost_unit : as in `Evaluation`.
    first_cost, second_cost : as in `Evaluation`.
    promised, n_unpromised, volume, n_undecided, constraints, groups, diagnostics : as in `Evaluation`.
    blocks_held, risk, one_a_group, rows, n_infeasible : as in `Evaluation`.
    """

    label: str = ""
    p_value: float = 1.0

    @property
    def is_short(self) -> bool:
        """Whether the group is covered less than promised, beyond chance."""
        return self.p_value <= LOOKS

    @property
    def n_without_bound(self) -> int:
        """Rows of the group that have no finite bound."""
        return self.without_bound.n - self.coverage.n

    def __str__(self) -> str:
        short = "  covered less than promised" if self.is_short else ""
        none = f", {self.n_without_bound} more rows without a bound" if self.n_without_bound else ""
        cost = amount(self.realised_cost, self.cost_unit)
        cost += "" if self.expected_cost is None else f" (expected {self.expected_cost:.4g})"
        bound = f"bound {self.worst_case_cost:.4g}"
        return f"{self.label} (n={self.coverage.n}): {self.coverage}, {bound}, cost {cost}{none}{short}"

    def __repr__(self) -> str:
        return f"<GroupMeasure {self}>"


@dataclass(frozen=True, eq=False)
class RowMeasures:
    """What happened row by row, so that groups of rows can be summed up; NaN where there is no decision.

    Attributes
    ----------
    inside, held : (N,) whether the outcome lay in its region, and whether the cost kept to its bound.
    decided : (N,) whether there is a decision.
    cost_bound, realised : (N,) the bound on the cost of a decision, and its realised cost.
    expected : (N,) expected cost of the decision; NaN also if the policy expects nothing.
    first_cost : (N,) the part of the realised cost that the first stage causes; NaN without recourse.
    premium : (N,) the bound less the least cost if the prediction were true.
    regret : (N,) the cost less the least cost if the outcome had been known.
    over_nominal : (N,) the cost less that of the decision that trusts the prediction.
    violations, nominal_violations : (N, n_constraints) by how much each of the uncertain constraints was exceeded, by
        the decision and by the one that trusts the prediction: 0 where it held.
    has_bound : (N,) False where the radius is infinite, so that `inside` and `held` say nothing.
    has_promise : (N,) False there, and where a row has a bound that is not promised.
    constraint_names : of the uncertain constraints.
    complaint : what went wrong in deciding.
    cost_unit : in which costs are counted; empty if unknown.
    blocks, total_bound : (N,) the block of each row and its share in the bound of the block; shares are None where all
        bounds of a block are promised to hold, both are where nothing is promised for blocks.
    risk : the worst share of rows, their mean cost and the bound on it; None without such a bound.
    levels : of "cost" and of each uncertain constraint, where each has its own.
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
    first_cost: Array
    constraint_names: tuple[str, ...] = ()
    complaint: str = ""
    cost_unit: str = ""
    blocks: NDArray[np.str_] | None = None
    total_bound: Array | None = None
    risk: tuple[float, float, float] | None = None
    levels: Mapping[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<RowMeasures: {len(self.inside)} rows, {int(self.held.sum())} of them kept to their bound>"

    @property
    def constraints_held(self) -> Mask:
        """Whether all uncertain constraints held."""
        return np.asarray(self.decided & (self.violations == 0).all(axis=1))

    @property
    def blocks_held(self) -> Mask | None:
        """Whether each block kept what is promised for it (n_blocks,); None where nothing is."""
        if self.blocks is None:
            return None
        is_known = self.blocks != ""  # rows that could not be read are left out
        block_of = np.unique(self.blocks[is_known], return_inverse=True)[1]
        if self.total_bound is None:
            return np.bincount(block_of, ~self.promise_held[is_known]) == 0
        costs, bounds = (np.bincount(block_of, each[is_known]) for each in (self.realised, self.total_bound))
        return costs <= bounds + SOLVED * np.abs(bounds)

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

    def one_of_each(self, groups: Any) -> Proportion:
        """Coverage of one random row with a bound from each of the `groups`: independent rows, exact interval."""
        order = np.random.default_rng(0).permutation(len(groups))
        order = order[self.has_bound[order]]
        return proportion(self.inside[order[np.unique(np.asarray(groups)[order], return_index=True)[1]]])

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
        """The measures of all rows of several tables, the `parts`."""
        names = [name for name, own in vars(parts[0]).items() if isinstance(own, np.ndarray)]
        arrays: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return replace(parts[0], **arrays)

    def among(self, rows: Indices, n: int) -> Self:
        """Measures of `n` rows: these at `rows`, and no decision at the others."""
        arrays: dict[str, Any] = {}
        for name in (each.name for each in fields(self) if each.name not in _OF_ALL):
            if (own := getattr(self, name)) is not None:
                arrays[name] = np.full((n, *own.shape[1:]), _FILLS.get(own.dtype.kind, np.nan), own.dtype)
                arrays[name][rows] = own
        note = f"{n - len(rows)} of {n} decisions: {Status.NOT_DECIDED}"
        return replace(self, **arrays, complaint=". ".join(filter(None, (note, self.complaint))))

    def summary(
        self, alpha: float, rows: Mask | None = None, *, volume: Volume | None = None, level: float = 0.95
    ) -> Evaluation:
        """The evaluation of rows that were promised `1 - alpha`.

        Parameters
        ----------
        alpha : the level that was promised.
        rows : (N,) which rows to sum up; all by default.
        volume : of the set, taken over; None if unknown.
        level : of the intervals.
        """
        chosen = np.ones(len(self.inside), dtype=bool) if rows is None else rows
        held_to = chosen & self.has_bound
        has_stages = bool(np.isfinite(self.first_cost[chosen]).any())
        constraints: dict[str, Any] = {}
        if self.constraint_names:
            own, nominal = self.violations[held_to], self.nominal_violations[held_to]
            constraints = {
                "constraints_held": proportion(self.constraints_held[held_to], level),
                "nominal_constraints_held": proportion((nominal == 0).all(axis=1), level),
                "constraints": tuple(
                    ConstraintMeasure(
                        name,
                        *_of_constraint(own[:, k], level),
                        *_of_constraint(nominal[:, k], level),
                        1 - self.levels[name] if self.levels else None,
                    )
                    for k, name in enumerate(self.constraint_names)
                ),
            }
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
            expected_cost=estimate(self.expected[chosen]) if np.isfinite(self.expected[chosen]).any() else None,
            first_cost=estimate(self.first_cost[chosen]) if has_stages else None,
            second_cost=estimate((self.realised - self.first_cost)[chosen]) if has_stages else None,
            regret=estimate(self.regret[chosen], among=self.realised[chosen]),
            volume=volume,
            promised=1 - alpha,
            n_undecided=int((~self.decided[chosen]).sum()),
            n_infeasible=int(np.isposinf(self.realised[chosen]).sum()),
            over_nominal=estimate(self.over_nominal[chosen], among=self.realised[chosen]),
            cost_unit=self.cost_unit,
            blocks_held=None if rows is not None or (kept := self.blocks_held) is None else proportion(kept),
            risk=self.risk if rows is None else None,
            **constraints,
        )


def _of_constraint(violations: Array, level: float) -> tuple[Proportion, float]:
    return proportion(violations == 0, level), float(violations.max(initial=0.0, where=np.isfinite(violations)))


def measure_rows(
    problem: DecisionProblem,
    decisions: Decisions,
    inside: Mask,
    centers: Array,
    outcomes: Array,
    parameters: Array | None = None,
    unpromised: Collection[int] = (),
) -> RowMeasures:
    """Bound, realised cost, regret and the like of each row, at the problem's parameters; test data only.

    `problem` and its `parameters`, `decisions`, `centers` and `outcomes` are those of the rows; `inside` says whether
    outcomes lay in their regions. Nothing is promised for the rows `unpromised`, although they may have a bound.
    """
    z, values = decisions.flat, np.zeros((len(outcomes), 0)) if parameters is None else parameters
    trusting, nominal = decide_knowing(problem, centers, values)
    realised = _realised(problem, z, outcomes, values)
    premium = decisions.cost_bound - nominal
    regret = np.where(np.isfinite(realised), realised, np.nan) - decide_knowing(problem, outcomes, values)[1]
    with np.errstate(invalid="ignore"):  # a second stage may be infeasible after both decisions
        over_nominal = realised - _realised(problem, trusting, outcomes, values)
    over_nominal[np.abs(over_nominal) <= CANCELLATION * np.abs(realised)] = 0.0
    # What solvers and floats may be off by: a share of what decisions differ by in this very row, and of the bound.
    gap = np.where(np.isfinite(decisions.gap), decisions.gap, 0.0)
    sizes = [np.where(np.isfinite(each), np.abs(each), 0.0) for each in (premium, regret, over_nominal)]
    slack = gap + SOLVED * sum(sizes) + CANCELLATION * np.abs(decisions.cost_bound)
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
        first_cost=_realised(problem.first_stage, z, outcomes, values)
        if problem.has_recourse
        else np.full(len(z), np.nan),
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


def by_group(measures: RowMeasures, labels: Any, alpha: float) -> tuple[GroupMeasure, ...]:
    """How the rows of each label fared, in the order of the labels; test data only.

    `measures` have one of the `labels` for each row, missing ones are a group too; `1 - alpha` was promised.
    """
    labels = np.asarray(labels)
    if labels.shape != measures.inside.shape:
        raise ValueError(f"by must have one label for each of {len(measures.inside)} rows, got shape {labels.shape}.")
    labels = np.where([is_missing(label) for label in labels], "(missing)", labels.astype(str))
    members = {str(name): labels == name for name in np.unique(labels)}
    p_values = shortfalls([measures.inside[rows & measures.has_bound] for rows in members.values()], alpha)
    level = 1 - LOOKS / max(len(members), 1)
    return tuple(
        GroupMeasure(**vars(measures.summary(alpha, rows, level=level)), label=name, p_value=float(p))
        for (name, rows), p in zip(members.items(), p_values, strict=True)
    )


def shortfalls(hits: Sequence[Mask], alpha: float) -> Array:
    """p-values of so few hits in each group, corrected for their number by Holm's step-down method.

    `hits` are those of the rows of each group; `alpha` is the probability of a miss if the promise holds.

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


class _Number(float):
    """A number that knows how sure it is: it compares, rounds, formats and computes as a float."""

    def __new__(cls, value: float, *args: float, **kwargs: float) -> Self:
        return super().__new__(cls, value)


@dataclass(frozen=True, eq=False)
class Proportion(_Number):
    """A share of trials with its exact (Clopper-Pearson) 95 % interval; a float.

    Attributes
    ----------
    value : the share; NaN of no trials.
    low, high : ends of the interval.
    n : number of trials.

    Examples
    --------
    >>> held = Proportion(0.9, 0.555, 0.997, n=10)
    >>> print(held, f"{held:.1%}", held > 0.8)
    0.900 [0.555, 0.997] 90.0% True
    """

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self:.3f} [{self.low:.3f}, {self.high:.3f}]" if self.n else "unknown (no rows)"


def proportion(hits: Mask, level: float = 0.95) -> Proportion:
    """The share of true entries of `hits` with its exact binomial interval of this `level`; unknown of no entries.

    Examples
    --------
    >>> print(proportion(np.array([True] * 9 + [False])))
    0.900 [0.555, 0.997]
    >>> print(proportion(np.zeros(0, dtype=bool)))
    unknown (no rows)
    """
    n, k = len(hits), int(np.sum(hits))
    if n == 0:
        return Proportion(np.nan, 0.0, 1.0, 0)
    interval = stats.binomtest(k, n).proportion_ci(confidence_level=level, method="exact")
    return Proportion(k / n, float(interval.low), float(interval.high), n)


@dataclass(frozen=True, eq=False)
class Estimate(_Number):
    """A mean, the `value`, with its `standard_error`; a float.

    Examples
    --------
    >>> print(Estimate(0.97013, 0.0123), Estimate(0.97013, 1.7e-17))
    0.9701 ± 0.012 0.9701
    """

    value: float
    standard_error: float

    def __str__(self) -> str:
        if np.isnan(self):
            return "unknown"
        return f"{self:.4g} {self.error_text}".rstrip()

    @property
    def error_text(self) -> str:
        """The error behind its sign; empty where one row has none, or rows that are all the same only of rounding."""
        is_shown = self.standard_error > CANCELLATION * abs(self)
        return f"± {self.standard_error:.2g}" if is_shown else ""


def estimate(values: Array, among: Array | None = None) -> Estimate:
    """The mean of the finite entries of `values` and its standard error.

    `among` are the numbers of which the values are differences: what their rounding leaves behind counts as 0.

    Examples
    --------
    >>> costs = np.array([0.1 + 0.2, 0.3, 0.3])
    >>> print(estimate(np.array([1.0, 2.0, 6.0])), estimate(costs - 0.3, among=costs))
    3 ± 1.5 0
    """
    finite = values[np.isfinite(values)]
    if among is not None:
        size = np.abs(among[np.isfinite(among)]).max(initial=0.0)
        finite = np.where(np.abs(finite) <= CANCELLATION * size, 0.0, finite)
    if not len(finite):
        return Estimate(np.nan, np.nan)
    error = float(finite.std(ddof=1) / np.sqrt(len(finite))) if len(finite) > 1 else np.nan
    # Values that differ by rounding alone are one value.
    if error <= CANCELLATION * np.abs(finite).max():
        error = 0.0
    return Estimate(float(finite.mean()), error)
