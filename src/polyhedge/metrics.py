"""How good a set and its decisions are on data they have not seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from polyhedge._validation import Array, Mask
from polyhedge.problems import DecisionProblem
from polyhedge.problems.parameters import parameter_rows
from polyhedge.robust import Decisions, decide_knowing
from polyhedge.sets import Volume


@dataclass(frozen=True)
class Proportion:
    """A share of `n` trials with its exact (Clopper-Pearson) 95 % interval."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def proportion(hits: Mask, level: float = 0.95) -> Proportion:
    """The share of true entries of `hits` with its exact binomial interval.

    Examples
    --------
    >>> print(proportion(np.array([True] * 9 + [False])))
    0.900 [0.555, 0.997]
    """
    n, k = len(hits), int(np.sum(hits))
    if n == 0:
        raise ValueError("A share needs at least one row, got none.")
    interval = stats.binomtest(k, n).proportion_ci(confidence_level=level, method="exact")
    return Proportion(k / n, float(interval.low), float(interval.high), n)


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error."""

    value: float
    standard_error: float

    def __str__(self) -> str:
        return f"{self.value:.4g} ± {self.standard_error:.2g}"


def estimate(values: Array) -> Estimate:
    """The mean of the finite entries of `values` and its standard error."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return Estimate(np.nan, np.nan)
    error = float(finite.std(ddof=1) / np.sqrt(len(finite))) if len(finite) > 1 else np.nan
    return Estimate(float(finite.mean()), error)


def regrets(problem: DecisionProblem, z: Array, outcomes: Array) -> Array:
    r"""$g(z_i, y_i) - \min_z g(z, y_i)$ for each row: what knowing the outcome would have saved.

    A robust decision has regret by design; low regret with low worst-case cost is the aim.
    """
    flat = z.reshape(len(z), -1)
    return problem.evaluate(flat, outcomes) - decide_knowing(problem, outcomes)[1]


@dataclass(frozen=True)
class Evaluation:
    """What held on a test split.

    Attributes
    ----------
    coverage : share of outcomes inside their sets.
    bound_held : share of rows whose realised cost was at most the bound (at least the coverage).
    worst_case_cost : mean of the bounds.
    premium : mean of the bounds minus the cost of deciding as if the prediction were true.
    realised_cost : mean of g(z(x), y).
    regret : mean of g(z(x), y) - min_z g(z, y).
    volume : mean Lebesgue volume of the sets.
    promised : 1 - alpha.
    n_undecided : rows without a decision; they count as not covered by the bound.
    over_nominal : mean of g(z(x), y) - g(z'(x), y) for z'(x), the decision that trusts the prediction; negative
        where robustness paid.
    """

    coverage: Proportion
    bound_held: Proportion
    worst_case_cost: Estimate
    premium: Estimate
    realised_cost: Estimate
    regret: Estimate
    volume: Volume
    promised: float
    n_undecided: int = 0
    over_nominal: Estimate = Estimate(np.nan, np.nan)

    def __str__(self) -> str:
        lines = [
            f"coverage         {self.coverage}  (promised {self.promised:.3g})",
            f"bound held       {self.bound_held}",
            f"worst-case cost  {self.worst_case_cost}",
            f"premium          {self.premium}",
            f"realised cost    {self.realised_cost}",
            f"regret           {self.regret}",
            f"over nominal     {self.over_nominal}",
            f"volume           {float(self.volume):.4g}",
        ]
        if self.n_undecided:
            lines.append(f"undecided rows   {self.n_undecided}")
        return "\n".join(lines)


def evaluate_decisions(
    problem: DecisionProblem,
    decisions: Decisions,
    inside: Mask,
    centers: Array,
    outcomes: Array,
    volume: Volume,
    alpha: float,
) -> Evaluation:
    """Compare decisions with what happened. Test data only: nothing here feeds back into the set."""
    return measure_rows(problem, decisions, inside, centers, outcomes).summary(volume, alpha)


@dataclass(frozen=True, eq=False)
class RowMeasures:
    """What happened row by row, so that groups of rows can be summed up; NaN where there is no decision."""

    inside: Mask
    held: Mask
    decided: Mask
    cost_bound: Array
    premium: Array
    realised: Array
    regret: Array
    over_nominal: Array

    def summary(self, volume: Volume, alpha: float, rows: Mask | None = None) -> Evaluation:
        """The evaluation of the chosen rows, all of them by default."""
        chosen = np.ones(len(self.inside), dtype=bool) if rows is None else rows
        return Evaluation(
            coverage=proportion(self.inside[chosen]),
            bound_held=proportion(self.held[chosen]),
            worst_case_cost=estimate(self.cost_bound[chosen]),
            premium=estimate(self.premium[chosen]),
            realised_cost=estimate(self.realised[chosen]),
            regret=estimate(self.regret[chosen]),
            volume=volume,
            promised=1 - alpha,
            n_undecided=int((~self.decided[chosen]).sum()),
            over_nominal=estimate(self.over_nominal[chosen]),
        )


def measure_rows(
    problem: DecisionProblem,
    decisions: Decisions,
    inside: Mask,
    centers: Array,
    outcomes: Array,
    parameters: Mapping[Any, Any] | None = None,
) -> RowMeasures:
    """Bound, realised cost, regret and the like of each row, at the problem's parameters; test data only."""
    z, values = decisions.flat, parameter_rows(problem.parameters, parameters, len(outcomes))
    trusting, nominal = decide_knowing(problem, centers, values)
    realised = _realised(problem, z, outcomes, values)
    slack = _rounding(decisions, nominal)
    decided = np.asarray(np.isfinite(z).all(axis=1), dtype=bool)
    return RowMeasures(
        inside=inside,
        held=decided & (realised <= decisions.cost_bound + slack),
        decided=decided,
        cost_bound=decisions.cost_bound,
        premium=decisions.cost_bound - nominal,
        realised=realised,
        regret=realised - decide_knowing(problem, outcomes, values)[1],
        over_nominal=realised - _realised(problem, trusting, outcomes, values),
    )


def _realised(problem: DecisionProblem, z: Array, outcomes: Array, values: Array) -> Array:
    """The cost g(z_i, y_i), NaN where there is no decision."""
    decided = np.isfinite(z).all(axis=1)
    realised = np.full(len(z), np.nan)
    realised[decided] = problem.evaluate(z[decided], outcomes[decided], values[decided])
    return realised


def _rounding(decisions: Decisions, nominal: Array) -> Array:
    """What solvers and floats may be off by, on the scale of the premium and of the numbers themselves."""
    premium = decisions.cost_bound - nominal
    typical = float(np.median(np.abs(premium[np.isfinite(premium)]))) if np.isfinite(premium).any() else 0.0
    gap = np.where(np.isfinite(decisions.gap), decisions.gap, 0.0)
    return gap + 1e-7 * typical + 1e-12 * np.abs(decisions.cost_bound)
