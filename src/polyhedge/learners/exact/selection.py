r"""The best residuals to keep, for any cost with a piece list: cutting planes and branch and bound.

A master chooses the residuals to drop from numbers alone: a mixture of residuals proves $v_i \ge \Phi$ unless
one of its members is dropped (`hull.py`), and chains of mixtures give star inequalities (`mixing.py`).
Selections that the master proposes are evaluated exactly, which gives upper bounds and new mixtures.

What the lower bound rests on: the floor of each context, which no selection can undercut (`floors.py`, and the last
of n_drop + 1 disjoint mixtures); the star inequalities over it; and the master's own dual bound. Where a context has
no floor, nothing is proven and the bound is -inf.
"""

from __future__ import annotations

import time
from contextlib import suppress

import numpy as np

from polyhedge._support.tolerances import SOLVER
from polyhedge._support.validation import Array, Mask
from polyhedge.learners.budget import Budget
from polyhedge.learners.exact.bound import CertifiedBound, certified
from polyhedge.learners.exact.floors import floors_of_contexts
from polyhedge.learners.exact.hull import HullOracle, HullValues, Mixture, disjoint_mixtures
from polyhedge.learners.exact.mixing import Master, star_inequality
from polyhedge.problems import NoSolutionError
from polyhedge.solvers.program import Status

_MAX_ROUNDS = 60
"""A guard against rounds that gain less and less; the work that may be spent mostly ends them before."""
_CHAIN_SHARE = 0.5
"""Share of the work that may go into floors before the search begins."""
_THRESHOLDS = (1e-6, 0.34, 0.67, 0.999)
"""Residuals dropped by more than this in the relaxation are left out, to see what the others prove."""


class SelectionSearch:
    """Cutting planes on the continuous master, then branch and bound on the integer one."""

    def __init__(self, oracle: HullOracle, rank: int, tolerance: float, budget: Budget) -> None:
        self.oracle, self.tolerance, self.budget = oracle, tolerance, budget
        oracle.budget = budget
        self.n = len(oracle.residuals)
        self.n_drop = self.n - rank
        self.mixtures: list[dict[tuple[int, ...], float]] = [{} for _ in oracle.centers]
        self.best_kept = np.ones(self.n, dtype=bool)
        self.upper, self.lower, self.unit = np.inf, -np.inf, 0.0
        self.n_cuts = 0

    def run(self, start: Mask | None, began: float) -> CertifiedBound:
        """Search until the bounds meet or the budget is spent."""
        highest = self._visit(np.ones(self.n, dtype=bool))
        interrupted = False
        try:
            self._search(highest, start)
        except KeyboardInterrupt:
            interrupted = True
        detail = f"{self.n_cuts} star inequalities on {len(self.oracle.centers)} contexts"
        return certified(
            self.lower,
            self.upper,
            self.best_kept,
            unit=self.unit,
            tolerance=self.tolerance,
            seconds=time.perf_counter() - began,
            interrupted=interrupted,
            detail=detail if np.isfinite(self.lower) else "no floor is proven, so there is no bound",
        )

    def _search(self, highest: HullValues, start: Mask | None) -> None:
        self.unit = self.oracle.cost_range(highest.z)
        if not self.n_drop or not np.ptp(self.oracle.residuals, axis=0).any():
            self.lower = self.upper  # all selections cost the same
            return
        if start is not None and start.sum() >= self.n - self.n_drop:
            self._visit(start)
        floor = self._floors()
        self.lower = float(floor.mean())
        if not np.isfinite(self.lower):
            return
        # Rounding may put a floor above what is reached where nothing is uncertain.
        rise = np.maximum(highest.values - floor, 0.0)
        self.unit = max(float(rise.mean()), self.unit)
        m = len(self.oracle.centers)
        self.master = Master(self.n, self.n_drop, floor, np.full(m, 1 / m), float(rise.max()))
        self._tighten_continuous()
        self._tighten_integer()

    def _allowed(self) -> float:
        """The gap at which the search ends: a share of how much residuals differ in cost, or can save."""
        return self.tolerance * self.unit

    @property
    def _is_done(self) -> bool:
        return self.budget.is_over or self.upper - self.lower <= self._allowed()

    def _floors(self) -> Array:
        """Floors from points that no selection avoids, raised by chains of disjoint mixtures as far as work allows."""
        oracle, m = self.oracle, len(self.oracle.centers)
        floors = np.full(m, -np.inf)
        if not self.budget.is_over:
            floors = floors_of_contexts(oracle.problem, oracle.residuals, oracle.centers, self.n_drop)
            self.budget.spend(len(oracle.problem.feasible.program.b), times=m)
        enough = self.budget.spent + _CHAIN_SHARE * (self.budget.work - self.budget.spent)
        for i, center in enumerate(oracle.centers):
            if self.budget.is_over or self.budget.spent > enough:
                break
            chain = disjoint_mixtures(oracle.problem, oracle.residuals, center, self.n_drop + 1, self.budget)
            self.mixtures[i] |= {mixture.members: mixture.value for mixture in chain}
            if len(chain) > self.n_drop or (chain and not chain[-1].members):
                floors[i] = max(floors[i], chain[-1].value)
        return floors

    def _visit(self, kept: Mask) -> HullValues:
        """Evaluate a selection exactly: an upper bound, and a mixture for every context."""
        values = self.oracle.evaluate(kept)
        self._remember(values.mixtures)
        total = float(values.values.mean())
        if kept.sum() >= self.n - self.n_drop and total < self.upper:
            self.upper, self.best_kept = total, kept.copy()
        return values

    def _remember(self, mixtures: tuple[Mixture, ...]) -> None:
        for known, mixture in zip(self.mixtures, mixtures, strict=True):
            known[mixture.members] = max(mixture.value, known.get(mixture.members, -np.inf))

    def _tighten_continuous(self) -> None:
        """Cuts at the relaxation's optimum; thresholds of its drops give selections to learn mixtures from."""
        previous = -np.inf
        for round_number in range(_MAX_ROUNDS):
            if self._is_done:
                return
            solution = self.master.solve(integer=False, time_limit=self.budget.seconds)
            self.budget.spend(self.master.n_rows)
            if solution.status is not Status.OPTIMAL:
                return
            drop, levels = self.master.split(solution.x)
            self.lower = max(self.lower, solution.value - solution.gap)
            if self.upper - self.lower <= self._allowed():
                return
            self._learn_from(drop)
            added = self._separate(drop, levels)
            stalled = round_number > 5 and solution.value - previous < 1e-5 * (self.upper - solution.value)
            if not added or stalled:
                return
            previous = solution.value

    def _learn_from(self, drop: Array) -> None:
        for threshold in _THRESHOLDS:
            kept = drop <= threshold
            if not self.budget.is_over and kept.any():
                # Fewer residuals than any set covers may leave the cost unbounded.
                with suppress(NoSolutionError, RuntimeError):
                    self._visit(kept)
        order = np.argsort(-drop, kind="stable")
        rounded = np.ones(self.n, dtype=bool)
        rounded[order[: self.n_drop]] = False
        self._visit(rounded)

    def _separate(self, drop: Array, levels: Array) -> int:
        """Add the most violated star inequality of each context."""
        added = 0
        for i, known in enumerate(self.mixtures):
            ranked = sorted(((value, members) for members, value in known.items()), reverse=True)
            cut = star_inequality(i, ranked, drop, self.master.floor[i])
            if cut is not None and cut.value_at(drop) > levels[i] + SOLVER * self.master.unit:
                self.master.cuts.append(cut)
                added += 1
        self.n_cuts = len(self.master.cuts)
        return added

    def _tighten_integer(self) -> None:
        while not self._is_done:
            n_rows = self.master.n_rows
            solution = self.master.solve(
                integer=True, time_limit=self.budget.seconds, max_nodes=self.budget.affords(n_rows)
            )
            self.budget.spend(n_rows, times=1 + solution.n_nodes)
            if not solution.status.has_solution:
                return
            self.lower = max(self.lower, solution.value - solution.gap)
            drop, levels = self.master.split(solution.x)
            self._visit(np.round(drop) == 0)
            if not self._separate(np.round(drop), levels) or solution.status is Status.STOPPED_EARLY:
                return
