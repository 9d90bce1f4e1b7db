"""Samples and problem in units of their own, so that no learner's tolerance depends on the user's.

Residuals have a mean size of about 1 there, in each outcome or in all together, outcomes and costs count from their
middle, costs differ by about 1 over the residuals, and decisions go as far as about 1. A search may turn at the last
bit of a number, and that is what another unit changes: samples are rounded to nine digits of their size, so that a
learner sees the same numbers in every unit. In units that are powers of two times others it gives the same set to the
last bit. `steady.py` says what searches see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.data.splits import evenly_chosen
from polyhedge.learners.exact.bound import CertifiedBound
from polyhedge.learners.result import LearnResult
from polyhedge.learners.samples import Samples
from polyhedge.problems import DecisionProblem
from polyhedge.problems.units import DecisionUnits, Units, scaled
from polyhedge.robust import decide_knowing
from polyhedge.sets import Polyhedron
from polyhedge.solvers.scaling import power_of_two, rounded_to

_FAR = 1024.0
"""In units: what is nearer to 0 than this stays where it is, and with it all its digits; see `_has_closed_forms`."""
_FEW = 256
"""Residuals from which the spread of costs is read."""
_TRIES = 8
"""Outcomes whose best decisions are tried where the usual one costs the same whatever happens."""
_NOTHING = 2.0**-20
"""Share of the spread at other decisions below which one is 0: a decision of nothing that a solver found nearly."""
_CHANCE = 2.0**-40
"""Share of an outcome below which residuals are rounding: it never differs from what is predicted."""
_CERTAIN = 2.0**-20
"""Share of itself that an outcome is open to which never differs from its prediction: nothing a cost would notice."""
_MEAN_SIZE = 0.75
"""Of residuals in a unit of their own: next to a power of two, rounding would decide how many bits of them are seen."""
_BITS = 32
"""Bits of the mean size of residuals and of centres that learners see, of 53: what the others say is below any noise,
and another unit moves one of some thousand numbers to its neighbour in one of a hundred fits."""


@dataclass(frozen=True, eq=False)
class OwnUnits:
    """What a learner sees, and the way back."""

    units: Units
    samples: Samples

    @classmethod
    def of(cls, samples: Samples, *, of_each: bool = False) -> OwnUnits:
        """The units of some learning samples, one of each outcome's own; those of samples that are in them are 1."""
        residuals, centers, problem = samples.residuals, samples.centers, samples.problem
        if problem.parameters or problem.is_in_own_units or not len(residuals) or not len(centers):
            return cls(Units(), replace(samples))
        units = _units_of(residuals, centers, problem, of_each)
        seen = _rounded(residuals / units.outcomes), _rounded((centers - units.shift) / units.outcomes)
        return cls(units, Samples(*seen, scaled(problem, units), samples.alpha))

    def result(self, learned: LearnResult) -> LearnResult:
        """A learner's result in the user's units."""
        if self.units.are_usual:
            return learned
        return replace(
            learned,
            set=self._set(learned),
            objective=self._cost(learned.objective),
            lower_bound=self._cost(learned.lower_bound),
            trace=tuple(self._cost(value) for value in learned.trace),
        )

    def bound(self, certified: CertifiedBound) -> CertifiedBound:
        """A certificate in the user's units."""
        if self.units.are_usual:
            return certified
        lower, upper = self._cost(certified.lower), self._cost(certified.upper)
        return replace(certified, lower=min(lower, upper), upper=upper, unit=self.units.cost * certified.unit)

    def _cost(self, value: float) -> float:
        return self.units.cost_shift + self.units.cost * value

    def _set(self, learned: LearnResult) -> Any:
        """The same family of sets; facets keep what their scores are measured in."""
        facets = learned.set.facets()
        assert facets is not None  # the learners of this package learn polyhedra
        score = {"outcomes": self.units.outcome, "costs": self.units.cost, "spreads": 1.0}[learned.scores_in]
        return Polyhedron(score / self.units.outcomes * facets.W, score * facets.b)


Learn = Callable[..., LearnResult]


def in_own_units(learn: Learn) -> Learn:
    """A method `learn` that sees samples and problem in their own units, each outcome in its own; see `Learner`."""
    return _seen_in_units(learn, of_each=True)


def in_one_unit(learn: Learn) -> Learn:
    """The same with one unit for all outcomes: the sets of the paper's methods keep the proportions of outcomes."""
    return _seen_in_units(learn, of_each=False)


def _seen_in_units(learn: Learn, of_each: bool) -> Learn:
    @wraps(learn)
    def wrapped(self: Any, samples: Samples, random_state: Any = None) -> LearnResult:
        own = OwnUnits.of(samples, of_each=of_each)
        return own.result(learn(self, own.samples, random_state))

    return wrapped


def _rounded(rows: Array) -> Array:
    """Rows (n, d) to the bits of each column's mean size that learners see."""
    sizes = np.abs(rows).mean(axis=0).tolist()
    return np.column_stack([rounded_to(column, size, _BITS) for column, size in zip(rows.T, sizes, strict=True)])


def _units_of(residuals: Array, centers: Array, problem: DecisionProblem, of_each: bool) -> Units:
    sizes = [float(np.abs(rows).mean()) for rows in (residuals, centers)]
    outcome = next((size for size in sizes if size > 0), 1.0)
    of_each = of_each and residuals.shape[1] > 1  # one alone is the unit
    each = tuple((_sizes(residuals, centers, outcome) / (_MEAN_SIZE * outcome)).tolist()) if of_each else ()
    units, middle = Units(outcome, each=each), centers.mean(axis=0)
    deviation, value = _costs_around(problem.relaxed(), middle, residuals)
    decisions, is_plain = DecisionUnits.of(problem, outcome, each), _has_closed_forms(problem)
    cost = _cost_unit(deviation, 0.0 if is_plain else outcome * decisions.slope)
    units = replace(units, cost=cost, columns=decisions.with_costs(problem, outcome, cost, each))
    if not is_plain:
        cost_shift = value if np.isfinite(value) else 0.0
        return replace(units, outcome_shift=tuple(middle.tolist()), cost_shift=cost_shift)
    # A formula that is compiled anew may rest on the sign of outcomes, which a shift would hide.
    rests_on_sign = problem.structure.has_known_support and not problem.structure.has_pieces
    if not rests_on_sign and (np.abs(middle) > _FAR * units.outcomes).any():
        shift = units.outcomes * np.round(middle / units.outcomes)
        units = replace(units, outcome_shift=tuple(shift.tolist()))
    is_far = np.isfinite(value) and abs(value) > _FAR * cost
    return replace(units, cost_shift=float(cost * np.round(value / cost))) if is_far else units


def _sizes(residuals: Array, centers: Array, usual: float) -> Array:
    """The mean size (d,) of each outcome's residuals; a share of itself where it never differs from its prediction."""
    sizes, far = np.abs(residuals).mean(axis=0), np.abs(centers).mean(axis=0)
    return np.where(sizes > _CHANCE * far, sizes, _CERTAIN * np.where(far > 0, far, usual))


def _has_closed_forms(problem: DecisionProblem) -> bool:
    """Whether nothing turns at a last digit: a straight segment's closed forms, and no search without a list of pieces.

    Numbers then stay as they are unless they are far from 0. So they do where outcomes are known to have a sign, which
    formulas may rest on.
    """
    structure = problem.structure
    return structure.is_on_straight_segment or not structure.has_pieces or structure.has_known_support


def _cost_unit(deviation: float, slope: float) -> float:
    """The deviation of costs, to a power of two in terms of what an outcome changes: coefficients are then whole."""
    if not deviation or not slope:
        return deviation or 1.0
    return float(slope * power_of_two(deviation / slope))


def _costs_around(problem: DecisionProblem, middle: Array, residuals: Array) -> tuple[float, float]:
    """How far costs differ over the residuals at the usual decision, and the cost of that in the middle."""
    chosen = residuals[evenly_chosen(len(residuals), _FEW)]
    # What an interior-point method leaves open would be part of every number that a learner sees.
    is_bent = not problem.feasible.program.is_linear
    z, value = decide_knowing(problem, middle[None])
    deviation = _deviation(problem, z[0], middle + chosen)
    if not deviation or is_bent:
        largest = np.argsort(-np.abs(chosen).max(axis=1), kind="stable")[:_TRIES]
        others, _ = decide_knowing(problem, middle + chosen[largest])
        most = max((_deviation(problem, other, middle + chosen) for other in others), default=0.0)
        deviation = deviation if deviation > _NOTHING * most else most
    return deviation, float(value[0])


def _deviation(problem: DecisionProblem, z: Array, outcomes: Array) -> float:
    """Mean distance of the costs from their middle one; 0 where there is no decision."""
    if not np.isfinite(z).all():
        return 0.0
    costs = problem.evaluate(np.tile(z, (len(outcomes), 1)), outcomes)
    deviation = float(np.abs(costs - np.median(costs)).mean())
    rounding = float(np.finfo(float).eps) * float(np.abs(costs).max())
    return deviation if np.isfinite(deviation) and deviation > _FAR * rounding else 0.0
