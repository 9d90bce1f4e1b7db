r"""The best residuals to keep: cutting planes and branch and bound over the residuals to drop.

A master chooses drops $d_j$ and levels $\eta$ from numbers alone. Let a level be at least $\Phi_l$ unless one of the
residuals `members_l` is dropped. Along a chain with falling values $\Phi_1 \ge \Phi_2 \ge \dots \ge$ floor,

$$\eta \ge \Phi_1 - \sum_l (\Phi_l - \Phi_{l+1}) \sum_{j \in \text{members}_l} d_j$$

holds for every choice of drops, and is tight where single rows with a big M are not: the star inequalities of mixing
sets (Luedtke, Ahmed and Nemhauser, 2010, for one residual a link). Selections that the master proposes are evaluated
exactly, which gives upper bounds and new chains.

| search              | levels                             | links                          | objective                |
|---------------------|------------------------------------|--------------------------------|--------------------------|
| FixedDirectionSearch | reach along each direction q_l    | single residuals               | tangents of convex F     |
| SelectionSearch     | value $v_i$ of each context        | mixtures of residuals (`hull`) | mean of the levels       |

The lower bound rests on the floor of each level, which no selection can undercut, the star inequalities over it, the
tangents, and the master's own dual bound. Where a context has no floor, nothing is proven and the bound is -inf.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from polyhedge._support.tolerances import OPTIMAL, SOLVER
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.learners.exact.bound import Budget, CertifiedBound, certified
from polyhedge.learners.exact.hull import HullOracle, HullValues, floors_of_contexts
from polyhedge.learners.objective import reach_cost
from polyhedge.learners.samples import Samples
from polyhedge.problems import NoSolutionError
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicProgram, Solution, Status

Ranked = Iterable[tuple[float, tuple[int, ...]]]


@dataclass(frozen=True)
class Cut:
    """levels[level] >= top - slopes @ d[members]."""

    level: int
    top: float
    members: Indices
    slopes: Array

    def value_at(self, drop: Array) -> float:
        """The bound on the level at a (fractional) choice of drops."""
        return float(self.top - self.slopes @ drop[self.members])


def star_inequality(level: int, ranked: Ranked, drop: Array, floor: float) -> Cut | None:
    """The tightest chain at the point `drop`, from (value, members) by falling value.

    A link helps only if its members are dropped less than all before it.
    """
    chain: list[tuple[float, tuple[int, ...]]] = []
    least = np.inf
    for value, members in ranked:
        share = float(drop[list(members)].sum())
        if value > floor and share < least - 1e-9 and share < 1 - 1e-9:
            chain.append((value, members))
            least = share
        if least <= 1e-9:
            break
    if not chain:
        return None
    slopes: dict[int, float] = {}
    for (value, members), after in zip(chain, [v for v, _ in chain[1:]] + [floor], strict=True):
        for j in members:
            slopes[j] = slopes.get(j, 0.0) + value - after
    return Cut(level, chain[0][0], np.array(list(slopes), dtype=np.int64), np.array(list(slopes.values())))


class Master:
    """Choose at most `n_drop` of n residuals to drop and levels above their cuts, at least cost.

    The cost is the mean of the levels, or the maximum of `tangents` (constant, slopes) where it `has_tangents`. The
    solver sees levels less their floors, in units of how far they can rise.
    """

    def __init__(self, n: int, n_drop: int, floor: Array, unit: float, *, has_tangents: bool) -> None:
        self.n, self.n_drop, self.floor, self.unit, self.has_tangents = n, n_drop, floor, unit or 1.0, has_tangents
        self.cuts: list[Cut] = []
        self.tangents: list[tuple[float, Array]] = []

    @property
    def n_rows(self) -> int:
        """Rows of the program, without bounds."""
        return len(self.cuts) + len(self.tangents) + 1

    def solve(self, *, integer: bool, budget: Budget) -> tuple[Solution, Array, Array]:
        """The solution of the relaxation or, with `integer`, of the selection itself, with its drops and levels."""
        n, m, unit = self.n, len(self.floor), self.unit
        width = n + m + self.has_tangents
        cut_rows = np.zeros((len(self.cuts), width))
        for row, cut in zip(cut_rows, self.cuts, strict=True):
            row[cut.members], row[n + cut.level] = -cut.slopes / unit, -1.0
        cut_b = [-(cut.top - self.floor[cut.level]) / unit for cut in self.cuts]
        tangent_rows = np.zeros((len(self.tangents), width))
        at_floor = np.array([constant + slopes @ self.floor for constant, slopes in self.tangents])
        base = float(at_floor.max()) if self.has_tangents else float(self.floor.mean())
        for row, (_, slopes) in zip(tangent_rows, self.tangents, strict=True):
            row[n : n + m], row[-1] = slopes, -1.0
        drops, levels = sp.eye_array(n, width, format="csr"), sp.eye_array(m, width, k=n, format="csr")
        total = sp.csr_array(np.concatenate([np.ones(n), np.zeros(width - n)])[None])
        b = np.concatenate([cut_b, (base - at_floor) / unit, [float(self.n_drop)], np.ones(n), np.zeros(n + m)])
        costs = np.append(np.zeros(m), 1.0) if self.has_tangents else np.full(m, 1 / m)
        program = ConicProgram(
            c=np.concatenate([np.zeros(n), costs]),
            A=sp.vstack(
                [sp.csr_array(cut_rows), sp.csr_array(tangent_rows), total, drops, -drops, -levels], format="csr"
            ),
            b=b,
            cones=(Cone("nonneg", len(b)),),
            integer=np.arange(n) if integer else np.zeros(0, dtype=np.int64),
        )
        max_nodes = budget.affords(self.n_rows) if integer else None
        # The dual bound counts, so that no proof depends on the gap at which the solver stops.
        solution = LinearSolver(program, time_limit=budget.seconds, max_nodes=max_nodes, relative_gap=OPTIMAL).solve()
        budget.spend(self.n_rows, times=1 + solution.n_nodes)
        found = replace(solution, value=base + unit * solution.value, gap=unit * solution.gap)
        return found, solution.x[:n], self.floor + unit * solution.x[n : n + m]


class _Search:
    """Bounds of a search that tightens a master; subclasses know what a selection costs."""

    master: Master
    levels: str

    def __init__(self, samples: Samples, tolerance: float, budget: Budget) -> None:
        self.samples, self.tolerance, self.budget = samples, tolerance, budget
        self.n, self.n_drop = samples.n, samples.n - samples.rank
        self.lower, self.upper, self.unit = -np.inf, np.inf, 0.0
        self.best_kept = np.ones(self.n, dtype=bool)

    def run(self, start: Mask | None = None) -> CertifiedBound:
        """Search until the bounds meet or the budget is spent; `start` are residuals that a good set keeps."""
        began = time.perf_counter()
        first = self._visit(np.ones(self.n, dtype=bool))
        self._search(first, start if start is not None and start.sum() >= self.samples.rank else None)
        settings, seconds = {"unit": self.unit, "tolerance": self.tolerance}, time.perf_counter() - began
        detail = f"{len(self.master.cuts)} star inequalities {self.levels}"
        detail = detail if np.isfinite(self.lower) else "no floor is proven, so there is no bound"
        return certified(self.lower, self.upper, self.best_kept, **settings, seconds=seconds, detail=detail)

    def _visit(self, kept: Mask) -> HullValues | None:
        """Evaluate a selection exactly: an upper bound, and what else it proves."""
        raise NotImplementedError

    def _search(self, first: HullValues | None, start: Mask | None) -> None:
        raise NotImplementedError

    def _ranked(self, level: int) -> Ranked:
        """Values that a level has unless members are dropped, by falling value."""
        raise NotImplementedError

    @property
    def _is_done(self) -> bool:
        return self.budget.is_over or self.upper - self.lower <= self.tolerance * self.unit

    def _reach(self, upper: float, kept: Mask) -> None:
        if kept.sum() >= self.samples.rank and upper < self.upper:
            self.upper, self.best_kept = upper, kept.copy()

    def _separate(self, drop: Array, levels: Array) -> int:
        """Add the most violated star inequality of each level; less than a solver's tolerance is none."""
        cuts = [star_inequality(k, self._ranked(k), drop, float(self.master.floor[k])) for k in range(len(levels))]
        added = [cut for cut in cuts if cut and cut.value_at(drop) > levels[cut.level] + SOLVER * self.master.unit]
        self.master.cuts += added
        return len(added)

    def _rounded(self, drop: Array) -> Mask:
        kept = np.ones(self.n, dtype=bool)
        kept[np.argsort(-drop, kind="stable")[: self.n_drop]] = False
        return kept


class SelectionSearch(_Search):
    """Any cost with a list of pieces: mixtures of residuals prove the values of contexts."""

    def __init__(self, samples: Samples, tolerance: float, budget: Budget) -> None:
        super().__init__(samples, tolerance, budget)
        self.oracle = HullOracle(samples.problem, samples.residuals, samples.centers, budget)
        self.mixtures: list[dict[tuple[int, ...], float]] = [{} for _ in samples.centers]
        self.levels = f"on {samples.n_contexts} contexts"
        self.master = Master(self.n, self.n_drop, np.full(samples.n_contexts, -np.inf), 0.0, has_tangents=False)

    def _visit(self, kept: Mask) -> HullValues:
        values = self.oracle.evaluate(kept)
        for known, mixture in zip(self.mixtures, values.mixtures, strict=True):
            known[mixture.members] = max(mixture.value, known.get(mixture.members, -np.inf))
        self._reach(float(values.values.mean()), kept)
        return values

    def _ranked(self, level: int) -> Ranked:
        return sorted(((value, members) for members, value in self.mixtures[level].items()), reverse=True)

    def _search(self, first: HullValues | None, start: Mask | None) -> None:
        assert first is not None
        self.unit = self.oracle.cost_range(first.z)
        if not self.n_drop or not np.ptp(self.samples.residuals, axis=0).any():
            self.lower = self.upper  # all selections cost the same
            return
        if start is not None:
            self._visit(start)
        floor = self._floors()
        self.lower = float(floor.mean())
        if not np.isfinite(self.lower):
            return
        rise = np.maximum(first.values - floor, 0.0)
        self.unit = max(float(rise.mean()), self.unit)
        self.master = Master(self.n, self.n_drop, floor, float(rise.max()), has_tangents=False)
        self._tighten_continuous()
        self._tighten_integer()

    def _floors(self) -> Array:
        """Floors from points that no selection avoids, raised by disjoint mixtures for at most half of the work."""
        samples, m = self.samples, self.samples.n_contexts
        floors = np.full(m, -np.inf)
        if not self.budget.is_over:
            floors = floors_of_contexts(samples.problem, samples.residuals, samples.centers, self.n_drop)
            self.budget.spend(len(samples.problem.feasible.program.b), times=m)
        enough = self.budget.spent + 0.5 * (self.budget.work - self.budget.spent)
        for i in range(m):
            if self.budget.is_over or self.budget.spent > enough:
                break
            chain = self.oracle.disjoint_mixtures(i, self.n_drop + 1)
            self.mixtures[i] |= {mixture.members: mixture.value for mixture in chain}
            if len(chain) > self.n_drop or (chain and not chain[-1].members):
                floors[i] = max(floors[i], chain[-1].value)
        return floors

    def _tighten_continuous(self) -> None:
        """Cuts at the relaxation's optimum; thresholds of its drops give selections to learn mixtures from."""
        previous = -np.inf
        for round_number in range(60):
            if self._is_done:
                return
            solution, drop, levels = self.master.solve(integer=False, budget=self.budget)
            if solution.status is not Status.OPTIMAL:
                return
            self.lower = max(self.lower, solution.value - solution.gap)
            if self._is_done:
                return
            for threshold in (1e-6, 0.34, 0.67, 0.999):
                kept = drop <= threshold
                if not self.budget.is_over and kept.any():
                    # Fewer residuals than any set covers may leave the cost unbounded.
                    with suppress(NoSolutionError, RuntimeError):
                        self._visit(kept)
            self._visit(self._rounded(drop))
            is_stalled = round_number > 5 and solution.value - previous < 1e-5 * (self.upper - solution.value)
            if not self._separate(drop, levels) or is_stalled:
                return
            previous = solution.value

    def _tighten_integer(self) -> None:
        while not self._is_done:
            solution, drop, levels = self.master.solve(integer=True, budget=self.budget)
            if not solution.status.has_solution:
                return
            self.lower = max(self.lower, solution.value - solution.gap)
            self._visit(np.round(drop) == 0)
            if not self._separate(np.round(drop), levels) or solution.status is Status.STOPPED_EARLY:
                return


class FixedDirectionSearch(_Search):
    r"""A cost that rises along finitely many fixed directions (newsvendors).

    The cost sees a selection S only through its reach $y_l = \max_{j \in S} q_l^\top e_j$ along each direction, and the
    mean cost F(y) over the contexts is a convex function of these few numbers. Along each direction one of the
    n_drop + 1 furthest residuals is kept, which gives the floor.
    """

    def __init__(self, samples: Samples, tolerance: float, budget: Budget) -> None:
        super().__init__(samples, tolerance, budget)
        problem = samples.problem
        self.heights = samples.residuals @ problem.structure.pieces.q.T
        self.orders = np.argsort(-self.heights, axis=0, kind="stable")
        floor = -np.sort(-self.heights, axis=0)[self.n_drop]
        rise = float((self.heights.max(axis=0) - floor).max())
        self.master = Master(self.n, self.n_drop, floor, rise, has_tangents=True)
        self.cost = reach_cost(problem, samples.centers)
        self.levels = f"along {len(floor)} directions"
        self.tangent_programs = 0 if self.cost.is_closed_form else samples.n_contexts
        self.n_rows = len(problem.feasible.program.b) + len(problem.structure.pieces)

    def _touch(self, reach: Array) -> float:
        value, constant, slopes = self.cost.tangent(reach)
        self.budget.spend(self.n_rows, times=self.tangent_programs)
        self.master.tangents.append((constant, slopes))
        return value

    def _visit(self, kept: Mask) -> None:
        self._reach(self._touch(self.heights[kept].max(axis=0)), kept)

    def _ranked(self, level: int) -> Ranked:
        return ((float(self.heights[j, level]), (int(j),)) for j in self.orders[:, level])

    def _search(self, first: HullValues | None, start: Mask | None) -> None:
        highest = self.upper
        self.lower = self._touch(self.master.floor)
        self.unit = max(highest - self.lower, float(np.ptp(self.heights, axis=0).max()))
        if start is not None:
            self._visit(start)
        for integer in (False, True):
            self._tighten(integer=integer)

    def _tighten(self, *, integer: bool) -> None:
        while not self._is_done:
            solution, drop, levels = self.master.solve(integer=integer, budget=self.budget)
            is_stopped = solution.status is Status.STOPPED_EARLY
            if not solution.status.has_solution or (is_stopped and not integer):
                return
            self.lower = max(self.lower, solution.value - solution.gap)
            added = self._separate(drop, levels)
            behind = self._touch(levels) - solution.value
            self._visit(self._rounded(drop))
            if is_stopped or (not added and behind <= SOLVER * self.master.unit):
                return
