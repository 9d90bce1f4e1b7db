r"""The best residuals to keep, for any cost with a piece list: cutting planes and branch and bound.

A master chooses the residuals to drop from numbers alone: a mixture of residuals proves $v_i \ge \Phi$ unless
one of its members is dropped (`hull.py`), and chains of mixtures give star inequalities (`mixing.py`).
Selections that the master proposes are evaluated exactly, which gives upper bounds and new mixtures.
"""

from __future__ import annotations

import time

import numpy as np

from polyhedge._validation import Array, Mask
from polyhedge.learners.bound import CertifiedBound
from polyhedge.learners.hull import HullOracle, HullValues, Mixture, disjoint_mixtures
from polyhedge.learners.mixing import Master, star_inequality
from polyhedge.solvers.program import Status


class SelectionSearch:
    """Cutting planes on the continuous master, then branch and bound on the integer one."""

    def __init__(self, oracle: HullOracle, rank: int, tolerance: float, deadline: float) -> None:
        self.oracle, self.tolerance, self.deadline = oracle, tolerance, deadline
        self.n = len(oracle.residuals)
        self.n_drop = self.n - rank
        self.mixtures: list[dict[tuple[int, ...], float]] = [{} for _ in oracle.centers]
        self.best_kept = np.ones(self.n, dtype=bool)
        self.upper, self.lower = np.inf, -np.inf

    def run(self, start: Mask | None, began: float) -> CertifiedBound:
        """Search until the bounds meet or the deadline passes."""
        floor = self._first_values(start)
        m = len(self.oracle.centers)
        self.master = Master(self.n, self.n_drop, floor, np.full(m, 1 / m))
        try:
            self._tighten_continuous()
            self._tighten_integer()
            status = Status.OPTIMAL if self.upper - self.lower <= self._tolerance() else Status.STOPPED_EARLY
        except KeyboardInterrupt:
            status = Status.STOPPED_EARLY
        seconds = time.perf_counter() - began
        detail = f"{len(self.master.cuts)} star inequalities on {len(self.oracle.centers)} contexts"
        return CertifiedBound(self.lower, self.upper, self.best_kept, status, seconds, detail)

    def _tolerance(self) -> float:
        return self.tolerance * max(1.0, abs(self.upper))

    def _left(self) -> float:
        return self.deadline - time.perf_counter()

    def _first_values(self, start: Mask | None) -> Array:
        """Floors of all contexts from disjoint mixtures, which also make the first chains."""
        floors = np.full(len(self.oracle.centers), -np.inf)
        for i, center in enumerate(self.oracle.centers):
            if self._left() <= 0:
                break
            chain = disjoint_mixtures(
                self.oracle.problem, self.oracle.residuals, center, self.n_drop + 1, self.deadline
            )
            for mixture in chain:
                self.mixtures[i][mixture.members] = mixture.value
            if len(chain) > self.n_drop or (chain and not chain[-1].members):
                floors[i] = chain[-1].value
        self._visit(np.ones(self.n, dtype=bool))
        if start is not None and start.sum() >= self.n - self.n_drop:
            self._visit(start)
        lowest = -1e3 * (1 + abs(self.upper if np.isfinite(self.upper) else 1.0))
        return np.where(np.isfinite(floors), floors, lowest)

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

    def _tighten_continuous(self, max_rounds: int = 60) -> None:
        """Cuts at the relaxation's optimum; thresholds of its drops give selections to learn mixtures from."""
        previous = -np.inf
        for round_number in range(max_rounds):
            if self._left() <= 0:
                return
            solution = self.master.solve(integer=False, time_limit=self._left())
            if not solution.status.has_solution:
                return
            drop, levels = self.master.split(solution.x)
            self.lower = max(self.lower, solution.value)
            if self.upper - self.lower <= self._tolerance():
                return
            self._learn_from(drop)
            added = self._separate(drop, levels)
            stalled = round_number > 5 and solution.value - previous < 1e-5 * max(1e-3, self.upper - solution.value)
            if not added or stalled:
                return
            previous = solution.value

    def _learn_from(self, drop: Array) -> None:
        for threshold in (1e-6, 0.34, 0.67, 0.999):
            kept = drop <= threshold
            if self._left() > 0 and kept.any():
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
            if cut is not None and cut.value_at(drop) > levels[i] + 1e-9:
                self.master.cuts.append(cut)
                added += 1
        return added

    def _tighten_integer(self) -> None:
        while self._left() > 0 and self.upper - self.lower > self._tolerance():
            solution = self.master.solve(integer=True, time_limit=self._left())
            if not solution.status.has_solution:
                return
            self.lower = max(self.lower, solution.value - solution.gap)
            drop, levels = self.master.split(solution.x)
            self._visit(np.round(drop) == 0)
            if not self._separate(np.round(drop), levels) or solution.status is Status.STOPPED_EARLY:
                return
