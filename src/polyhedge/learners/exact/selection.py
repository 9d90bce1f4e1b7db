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
| SelectionSearch     | value $v_i$ of each context        | mixtures of residuals          | mean of the levels       |

The lower bound rests on the floor of each level, which no selection can undercut, the star inequalities over it, the
tangents, and the master's own dual bound. Where a context has no floor, nothing is proven and the bound is -inf.

The scenario value of a selection of residuals, with the mixtures that prove it, and floors below every selection.

For a selection S and context i, $v_i(S) = \min_z \max_{j \in S} g(z, \hat f_i + e_j)$ is the cost of
the convex hull of S. By duality there is a mixture $\lambda$ over S with
$v_i(S) = \min_z \sum_j \lambda_j\, g(z, \hat f_i + e_j) =: \Phi_i(\lambda)$, and this number is a lower bound
of $v_i(T)$ for *every* selection T that contains the support of $\lambda$, whatever the cost looks like.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from scipy.optimize import nnls

from polyhedge._support.tolerances import OPTIMAL, SOLVER
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.learners.exact.bound import Budget, CertifiedBound, certified
from polyhedge.learners.objective import reach_cost
from polyhedge.learners.paper.model import direction_bounds
from polyhedge.learners.samples import Samples
from polyhedge.problems import DecisionProblem, NoSolutionError
from polyhedge.robust import decide_knowing
from polyhedge.robust.counterpart import Counterpart
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicForm, ConicProgram, Solution, Status

_TOLERANCE = 1e-8
"""Share of the spread of a context's costs that a solver may be off by."""
_WEIGHT = 1e-9
"""Weights below this are rounding: what they could prove is lost in the tolerance."""


class _Hull:
    """The convex hull of some residuals, as a set for the robust counterpart."""

    def __init__(self, points: Array) -> None:
        self.points = points
        self.n_outcomes = points.shape[1]

    def conic_form(self, radius: float) -> ConicForm:
        """E = points' w, 1'w = 1, w >= 0 with the weights w as auxiliary coordinates."""
        k, d = self.points.shape
        equations = np.block([[np.eye(d), -self.points.T], [np.zeros((1, d)), np.ones((1, k))]])
        bounds = sp.hstack([sp.csr_array((k, d)), -sp.eye_array(k)], format="csr")
        return ConicForm(
            G=sp.vstack([sp.csr_array(equations), bounds], format="csr"),
            g=np.concatenate([np.zeros(d), [1.0], np.zeros(k)]),
            cones=(Cone("zero", d + 1), Cone("nonneg", k)),
        )


@dataclass(frozen=True)
class Mixture:
    """Weights over a few residuals whose mixed cost is at least `value` for every decision in a context."""

    value: float
    members: tuple[int, ...]


@dataclass(frozen=True)
class HullValues:
    """Values v_i(S) (n,), decisions (n, p) and a proving mixture for each context."""

    values: Array
    z: Array
    mixtures: tuple[Mixture, ...]


class HullOracle:
    """Evaluate v_i(S) for many selections; residuals that were once active are tried first."""

    def __init__(
        self, problem: DecisionProblem, residuals: Array, centers: Array, budget: Budget | None = None
    ) -> None:
        self.problem, self.residuals, self.centers = problem, residuals, centers
        self.budget = Budget(np.inf) if budget is None else budget
        self.pool: set[int] = set()

    def evaluate(self, kept: Mask, contexts: Indices | None = None) -> HullValues:
        """Values of all (or some) contexts for the selection `kept`.

        The hull is grown lazily: solve with the pool's residuals, add those that a decision's cost
        directions show to lie outside, until none does.
        """
        chosen = np.arange(len(self.centers)) if contexts is None else contexts
        available, axes = np.flatnonzero(kept), np.eye(self.problem.n_outcomes)
        extremes = available[(self.residuals[available] @ np.vstack([axes, -axes]).T).argmax(axis=0)]
        pool = set(extremes.tolist()) | {j for j in self.pool if kept[j]}
        todo, solved = chosen, dict[int, tuple[float, Array, Mixture]]()
        while len(todo):
            members = np.array(sorted(pool))
            try:
                solved |= self._solve(members, todo)
            except NoSolutionError:
                if len(members) == kept.sum():
                    raise
                pool = set(available.tolist())  # a part of the hull may leave the cost unbounded
                continue
            missing, again = self._violated(available, members, np.array([solved[int(i)][1] for i in todo]))
            if not missing:
                break
            pool |= missing
            self.pool |= missing
            todo = todo[again]
        values, z, mixtures = zip(*(solved[int(i)] for i in chosen), strict=True)
        return HullValues(np.array(values), np.array(z).reshape(len(chosen), -1), mixtures)

    def _solve(self, members: Indices, contexts: Indices) -> dict[int, tuple[float, Array, Mixture]]:
        counterpart = Counterpart(self.problem, _Hull(self.residuals[members]), 0.0)  # type: ignore[arg-type]
        self.budget.spend(len(counterpart.parametric.at_zero.b), times=len(contexts))
        sees_outcome, solved = self.problem.structure.pieces.sees_outcome, {}
        for i in contexts.tolist():
            solution = counterpart.solve(self.centers[i])
            if solution.status is Status.FAILED or (solution.status.has_solution and not np.isfinite(solution.gap)):
                raise RuntimeError(f"Learning context {i} could not be solved: {solution.detail}.")
            if not solution.status.has_solution:
                raise NoSolutionError(
                    f"There is no best decision against the residuals of the learning split in context {i}: "
                    f"{solution.status}. Check the feasible set and the cost; a decision that lowers the cost without "
                    "limit needs bounds."
                )
            weights = solution.weighted_auxiliary[sees_outcome].sum(axis=0)
            active = members[np.flatnonzero(weights > _WEIGHT)]
            slack = _TOLERANCE * self.cost_range(solution.z[None], members) + solution.gap
            solved[i] = (solution.value, solution.z, Mixture(solution.value - slack, tuple(active.tolist())))
        return solved

    def cost_range(self, z: Array, members: Indices | None = None) -> float:
        """How much the residuals (some of them) differ in cost at decisions (N, p), in the mean over these."""
        residuals = self.residuals if members is None else self.residuals[members]
        return float(np.ptp(self.problem.structure.pieces.directions(z) @ residuals.T, axis=2).max(axis=1).mean())

    def _violated(self, available: Indices, members: Indices, z: Array) -> tuple[set[int], Mask]:
        """Kept residuals that exceed the hull of the members along the directions of some decision."""
        missing: set[int] = set()
        again = np.zeros(len(z), dtype=bool)
        directions = self.problem.structure.pieces.directions(z)
        for piece in range(directions.shape[1]):
            heights = directions[:, piece] @ self.residuals[available].T
            inside = (directions[:, piece] @ self.residuals[members].T).max(axis=1)
            out = heights.max(axis=1) - inside > _TOLERANCE * np.ptp(heights, axis=1)
            missing |= set(available[heights[out].argmax(axis=1)].tolist()) - set(members.tolist())
            again |= out
        return missing, again

    def disjoint_mixtures(self, context: int, count: int) -> list[Mixture]:
        """Proving mixtures of one context with disjoint members, by falling value; fewer when the budget is over.

        Dropping fewer than `count` residuals leaves one of `count` disjoint mixtures whole, so the last
        value is a floor for every selection; so is the value of a mixture without members.
        """
        available, mixtures = np.ones(len(self.residuals), dtype=bool), list[Mixture]()
        while len(mixtures) < count and available.any() and not self.budget.is_over:
            try:
                mixtures += self.evaluate(available, np.array([context])).mixtures
            except (NoSolutionError, RuntimeError):  # few residuals may leave the cost unbounded
                break
            if not mixtures[-1].members:
                break
            available[list(mixtures[-1].members)] = False
        return mixtures


def floors_of_contexts(problem: DecisionProblem, residuals: Array, centers: Array, n_drop: int) -> Array:
    r"""A number (m,) for each context below the cost of every selection; -inf where nothing is proven.

    Whatever `n_drop` residuals are dropped, one of `n_drop` + 1 disjoint groups stays whole. A cost that is convex in
    the outcome is highest at a group's members, so a set that covers a group costs at least as much as any mixture
    $p_g$ of its members:

    $$v_i(S) \ge \min_g \min_z g(z, \hat f_i + p_g) \ge \min_z g(z, \hat f_i + c) - t, \qquad
    t = \max_g \max_{v} v^\top (c - p_g),$$

    where v ranges over a box around all directions that the cost can have. The point c is the mean residual, and each
    mixture is the one nearest to it: t is zero where c lies in the hull of every group, so that no selection avoids c.
    """
    # About equal groups, dealt from the innermost residual to the outermost.
    order = np.argsort(np.linalg.norm(residuals - residuals.mean(axis=0), axis=1), kind="stable")
    groups = [order[k :: n_drop + 1] for k in range(n_drop + 1)]
    low, high = direction_bounds(problem, problem.structure.pieces)
    if np.isfinite([low, high]).all():
        middle, low, high = residuals.mean(axis=0), low.min(axis=0), high.max(axis=0)
        steps = np.array([middle - mixing_weights(residuals[group], middle) @ residuals[group] for group in groups])
        shortfall = max(float(np.maximum(steps * low, steps * high).sum(axis=1).max()), 0.0)
        values = decide_knowing(problem, centers + middle)[1] - shortfall
    else:  # the groups one by one
        means = [residuals[group].mean(axis=0) for group in groups]
        values = np.min([decide_knowing(problem, centers + mean)[1] for mean in means], axis=0)
    return np.where(np.isnan(values), -np.inf, values)


def mixing_weights(points: Array, target: Array) -> Array:
    """Weights of a convex combination of the rows that is the target, or near it where it lies outside their hull.

    At most d + 1 of them are positive: the active columns of non-negative least squares are independent.
    """
    steps = points - target
    far = 1e3 * float(np.abs(steps).max()) or 1.0
    weights, _ = nnls(np.vstack([steps.T, np.full(len(points), far)]), np.append(np.zeros(len(target)), far))
    return np.asarray(weights / weights.sum())


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
