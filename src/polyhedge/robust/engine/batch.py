r"""Robust decisions for many contexts of a linear or quadratic counterpart, without a solver for each.

A critical region is a polyhedron of contexts with one optimal active set; decision and multipliers are affine in it.
Contexts are first offered to a pool of critical regions: the most promising region of each is found, and its
optimality tested, by matrix products. Contexts outside go on from there by batched pivots and are proven against the
original program. Active sets that several contexts share join the pool, if their maps satisfy the optimality conditions
of the original program. What cannot be proven is left open for the solver. Contexts are taken in chunks, so that memory
does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from polyhedge._support.tolerances import INSIDE
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.robust.counterpart import Counterpart
from polyhedge.robust.engine.pivots import (
    DenseProgram,
    DualSimplex,
    Pairs,
    PivotRule,
    PrincipalPivots,
    Start,
    complementary_pairs,
    independent_rows,
    pivot_all,
    prove,
    start_at,
)
from polyhedge.robust.threads import in_order, one_blas_thread
from polyhedge.solvers.program import Solution, Status

Progress = Callable[[int, int], None]
"""Called with the number of contexts decided so far and the number of all."""

# Below this, setting up the engine costs more than solving row by row.
WORTH_A_POOL = 64
_PROVEN, _TIGHT = 1e-8, 1e-6
"""In units of the program's scaling."""
# Few rows first, to fill the pool; later ones in large blocks, four times as many each time.
_FIRST_CHUNK, _CHUNK = 256, 65_536
# Rows of one worker's task: some milliseconds of work.
_TASK = 8192
# A pool is searched for each row, so it must fit the cache and be worth its search.
_POOL_BYTES, _POOL_SIZE = 32e6, 4096
# Regions that a young pool takes in although few contexts share them: neighbours are reached from them by few pivots.
_ANCHORS = 256
_SHARED = 4
"""Contexts of a chunk that must share an active set for it to join a pool that has its anchors."""
_WORTH = 12
"""Contexts that must fall into a region for it to be worth making."""
# Entries of one matrix product: 16 MB.
_BLOCK = 2**21
# Inequalities of a program whose sides all move: its tableau is dense and grows with their square.
_MOST_PAIRS = 400


@dataclass
class BatchDecisions:
    """Decisions, bounds, worst residuals and gaps of N contexts; masks of those still open, and of ties."""

    z: Array
    cost_bound: Array
    residual: Array
    gap: Array
    is_open: Mask
    may_tie: Mask

    @classmethod
    def undecided(cls, n: int, p: int, d: int) -> BatchDecisions:
        """Room for N contexts, all open."""
        nan, is_open = np.nan, np.ones(n, dtype=bool)
        return cls(np.full((n, p), nan), np.full(n, nan), np.full((n, d), nan), np.zeros(n), is_open, ~is_open)


def decide_in_batch(
    counterpart: Counterpart, centers: Array, *, n_jobs: int | None = None, progress: Progress | None = None
) -> BatchDecisions:
    """Decisions that critical regions prove.

    All contexts stay open if the method does not apply, or for too few contexts.
    """
    engine = None
    if len(centers) >= WORTH_A_POOL:
        middle = centers.mean(axis=0)
        engine = batch_engine(counterpart, middle, np.abs(centers - middle).mean(axis=0))
    if engine is None:
        return BatchDecisions.undecided(len(centers), counterpart.problem.n_decisions, counterpart.problem.n_outcomes)
    with one_blas_thread() if len(centers) <= _TASK else nullcontext():
        return engine.decide(centers, n_jobs=n_jobs, progress=progress)


class BatchEngine:
    """The regions of one counterpart, growing as contexts are decided.

    Make it with `batch_engine`, which tells whether the counterpart has the form for it.
    """

    def __init__(
        self, counterpart: Counterpart, program: DenseProgram, pairs: Pairs, rule: PivotRule, center: Array
    ) -> None:
        self.counterpart, self.program, self.pairs, self.rule = counterpart, program, pairs, rule
        self.center = center
        self.worst = WorstResidual(counterpart)
        self.unique = counterpart.unique
        # As a function of the prediction the optimum is concave where costs move and convex where limits do, so
        # that tangents taken at other predictions bound it: the tightest names the most promising region.
        self.value_sign = 1.0 if counterpart.parametric.rhs_slope.nnz else -1.0
        self.pool = _Pool(self)
        base = np.eye(1, 1 + len(center))
        self.pool.offer(np.zeros((1, rule.n_pairs), dtype=bool), base, _WORTH)

    def decide(self, centers: Array, *, n_jobs: int | None = None, progress: Progress | None = None) -> BatchDecisions:
        """Decide all contexts that can be proven optimal."""
        problem = self.counterpart.problem
        decisions = BatchDecisions.undecided(len(centers), problem.n_decisions, problem.n_outcomes)
        begin, size = 0, _FIRST_CHUNK if len(centers) > _FIRST_CHUNK else len(centers)
        while begin < len(centers):
            chunk = slice(begin, min(begin + size, len(centers)))
            self._decide_chunk(centers[chunk], chunk, decisions, n_jobs)
            begin, size = chunk.stop, min(4 * size, _CHUNK)
            if progress is not None:
                progress(begin, len(centers))
        return decisions

    def _decide_chunk(self, centers: Array, chunk: slice, out: BatchDecisions, n_jobs: int | None) -> None:
        F = np.concatenate([np.ones((len(centers), 1)), centers - self.center], axis=1)
        which = self.pool.most_promising(F)
        here = BatchDecisions(**{name: values[chunk] for name, values in vars(out).items()})
        outside = self.pool.settle(F, which, here)
        if not len(outside):
            return
        tasks = [outside[k : k + _TASK] for k in range(0, len(outside), _TASK)]
        solved = in_order(lambda part: self._pivot(F[part], which[part]), tasks, n_jobs=n_jobs)
        flips = []
        for part, (decisions, is_flipped) in zip(tasks, solved, strict=True):
            rows = chunk.start + part
            for name, values in vars(decisions).items():
                getattr(out, name)[rows] = values
            flips.append((is_flipped[~decisions.is_open], F[part[~decisions.is_open]]))
        self.pool.offer(
            np.concatenate([f for f, _ in flips]), np.concatenate([f for _, f in flips]), len(out.gap) - chunk.stop
        )

    def with_multipliers(self, centers: Array) -> tuple[Array, Array, Array, Mask]:
        """Values (N,), columns (N, n) and multipliers (N, m) of the programs at some contexts, and which are proven."""
        F = np.concatenate([np.ones((len(centers), 1)), centers - self.center], axis=1)
        ends = pivot_all(self.rule, [self.pool.regions[0].start], np.zeros(len(F), dtype=np.int64), F)
        proven = prove(self.program, self.pairs, F, ends.v, _PROVEN)
        return proven.value, proven.x, proven.y, proven.is_optimal & ends.has_ended

    def _pivot(self, F: Array, which: Indices) -> tuple[BatchDecisions, Mask]:
        used, start = np.unique(which, return_inverse=True)
        ends = pivot_all(self.rule, [self.pool.regions[k].start for k in used], start, F)
        proven = prove(self.program, self.pairs, F, ends.v, _PROVEN)
        z = proven.x[:, self.counterpart.problem.feasible.z_columns]
        residual = self.worst.at(proven.y)
        is_open = ~(proven.is_optimal & ends.has_ended & np.isfinite(residual).all(axis=1))
        may_tie = ~self.unique.is_proven(proven.y, self.program.scaling.rows)
        return BatchDecisions(z, proven.value, residual, proven.gap, is_open, may_tie), ends.is_flipped


def batch_engine(counterpart: Counterpart, center: Array, reach: Array) -> BatchEngine | None:
    """An engine with its base at one prediction; None where the counterpart is not of the form for it.

    The program must be linear or quadratic, without integers, and its matrix must not depend on the prediction.
    `reach` (d,) is the usual distance of other predictions from it.
    """
    parametric = counterpart.parametric
    zero = parametric.at_zero
    is_polyhedral = all(cone.kind in ("zero", "nonneg") for cone in zero.cones)
    if not is_polyhedral or len(zero.integer) or parametric.entry_slope.nnz or not WorstResidual.applies(counterpart):
        return None
    solution = counterpart.solver.solve(center)
    if solution.status is not Status.OPTIMAL:
        return None
    reach = np.concatenate([[1.0], reach])
    scaling = counterpart.solver.scaling
    assert scaling is not None
    program = DenseProgram.of(parametric, center, scaling)
    sides = bool(parametric.rhs_slope.nnz), bool(parametric.cost_slope.nnz)
    is_one_sided = program.P is None and not all(sides)
    if not len(program.inequalities) or (not is_one_sided and len(program.inequalities) > _MOST_PAIRS):
        return None
    tight = _tight_inequalities(counterpart, program, solution)
    if tight is None:
        return None
    pairs = complementary_pairs(program, independent_rows(program, tight), reach)
    if pairs is None:
        return None
    moving = ~pairs.at_base if sides[0] else pairs.at_base
    if is_one_sided and pairs.q[~moving, 0].min(initial=0.0) < -_PROVEN:
        return None  # the base has no signs to keep
    rule: PivotRule = DualSimplex(pairs, moving) if is_one_sided else PrincipalPivots(pairs)
    engine = BatchEngine(counterpart, program, pairs, rule, center)
    return engine if engine.pool.regions else None


def _tight_inequalities(counterpart: Counterpart, program: DenseProgram, solution: Solution) -> Indices | None:
    """Inequalities that define the solution at the base, the heaviest first; None where a basis does not say."""
    rows, solver, scaling = program.inequalities, counterpart.solver, program.scaling
    if solver.is_warm:
        active = solver.solver.active_rows()
        return None if active is None else rows[active[rows]]
    x = (solution.x - scaling.origin) / scaling.columns
    slack, y = program.B[:, 0] - program.A @ x, solution.y / (scaling.cost * scaling.rows)
    tight = rows[(y[rows] > slack[rows]) | (slack[rows] <= _TIGHT)]
    return tight[np.argsort(-y[tight], kind="stable")]


class _Pool:
    """Certified regions with the maps that give a context's decision, residual and bound."""

    def __init__(self, engine: BatchEngine) -> None:
        self.engine = engine
        self.regions: list[Region] = []
        self.maps: list[Array] = []
        # Where costs and limits both move, the weights of fixed pieces do, and the heaviest changes within a region.
        self.weights: list[Array | None] = []
        self.bounds: list[Array] = []
        self.may_tie: list[bool] = []
        self.scores = np.zeros((0, engine.pairs.q.shape[1]))
        self.known: set[bytes] = set()
        self.size_limit = int(min(_POOL_SIZE, max(_POOL_BYTES // engine.rule.tableau.nbytes, 16)))

    def most_promising(self, F: Array) -> Indices:
        """The region with the tightest bound at each context."""
        best, step = np.empty(len(F), dtype=np.int64), max(_BLOCK // len(self.scores), 1)
        for k in range(0, len(F), step):
            best[k : k + step] = (F[k : k + step] @ self.scores.T).argmax(axis=1)
        return best

    def settle(self, F: Array, which: Indices, out: BatchDecisions) -> Indices:
        """Decide the contexts that lie in their region; the others are returned, region by region."""
        order = np.argsort(which, kind="stable")
        cuts = np.flatnonzero(np.diff(which[order], prepend=-1, append=-1))
        outside = []
        for begin, end in pairwise(cuts):
            rows = order[begin:end]
            k, part = int(which[rows[0]]), F[rows]
            margins = self.regions[k].margins(part)
            least = margins.min()
            if not lies_inside(least):
                inside = lies_inside(margins)
                outside.append(rows[~inside])
                rows, part, margins = rows[inside], part[inside], margins[inside]
            if len(rows):
                self._fill(k, rows, part, out)
                # On the edge two decisions are best where a region's tests are of prices, not where they are of limits.
                if self.may_tie[k] or (self.engine.unique.prices_move and least <= _PROVEN):
                    out.may_tie[rows] = self.may_tie[k] | (margins <= _PROVEN)
        return np.concatenate(outside) if outside else np.zeros(0, dtype=np.int64)

    def _fill(self, k: int, rows: Indices, F: Array, out: BatchDecisions) -> None:
        values = F @ self.maps[k]
        p, d = out.z.shape[1], out.residual.shape[1]
        out.z[rows], out.residual[rows] = values[:, :p], values[:, p : p + d]
        weights = self.weights[k]
        if weights is not None:
            out.residual[rows] = self.engine.worst.heaviest(F @ weights)
        bound = values[:, p + d :]
        out.cost_bound[rows] = bound[:, 0] if bound.shape[1] == 1 else (bound * F).sum(axis=1)
        out.is_open[rows] = False

    def offer(self, is_flipped: Mask, F: Array, n_ahead: int) -> None:
        """Take in the active sets that many contexts share, the most frequent first, and some as anchors.

        A region has to pay for itself on the `n_ahead` contexts that are still to come.
        """
        room = self.size_limit - len(self.regions)
        if not len(is_flipped) or not n_ahead or room <= 0:
            return
        shared = max(_SHARED, _WORTH * len(is_flipped) / n_ahead)
        anchors = min(_ANCHORS, n_ahead // _WORTH)
        packed = np.packbits(is_flipped, axis=1)
        keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
        _, first, counts = np.unique(keys, return_index=True, return_counts=True)
        fresh: list[int] = []
        for k in np.argsort(-counts, kind="stable")[:room]:
            if counts[k] < shared and len(self.regions) + len(fresh) >= anchors:
                break
            if keys[first[k]].tobytes() not in self.known:
                fresh.append(int(first[k]))
        taken = []
        for k in fresh:
            self.known.add(keys[k].tobytes())
            taken += self._take(np.flatnonzero(is_flipped[k]), F[k])
        if taken:
            self.scores = np.stack(self.bounds)
            self.may_tie += (~self.engine.unique.is_proven(np.stack(taken), self.engine.program.scaling.rows)).tolist()

    def _take(self, flipped: Indices, F: Array) -> list[Array]:
        """Take in one region if it is certified: its multipliers at one context F, or nothing."""
        engine = self.engine
        region = region_at(engine.rule, engine.pairs, flipped)
        if region is None or not is_certified(engine.program, region, _PROVEN):
            return []
        X, Y = engine.program.maps(region.X, region.Y)
        residual, weights = engine.worst.affine(Y), None
        if residual is None:
            residual = np.zeros((engine.counterpart.problem.n_outcomes, len(F)))
            weights = np.ascontiguousarray(Y[engine.worst.rows].T)
        z = X[engine.counterpart.problem.feasible.z_columns]
        # The bound of a region is [1; f]'U [1; f].
        program = engine.program
        bend = 0.0 if program.P is None else 0.5 * program.P @ region.X
        U = program.scaling.cost * (region.X.T @ (program.C + bend))
        U[0] += program.offset
        U = np.asarray((U + U.T) / 2)
        # Within a region a linear program's optimum is affine where predictions move only its costs or only its limits.
        is_affine = isinstance(engine.rule, DualSimplex)
        value = _tangent(U, np.eye(len(U))[0])[None] if is_affine else U
        self.regions.append(region)
        self.maps.append(np.ascontiguousarray(np.vstack([z, residual, value]).T))
        self.weights.append(weights)
        bound = engine.rule.bound(region.start.tableau)
        self.bounds.append(engine.value_sign * _tangent(U, F) if bound is None else bound)
        return [Y @ F]


def _tangent(U: Array, F: Array) -> Array:
    """The affine function of [1; f] that touches F'U F at one F."""
    slope = 2 * U @ F
    slope[0] -= F @ U @ F
    return slope


@dataclass(frozen=True)
class Region:
    """An active set with its tests (1 + d, n_rows) and the point X [1; f] and multipliers Y [1; f] it implies.

    `is_active` tells the inequalities whose slack is zero in it.
    """

    start: Start
    tests: Array
    X: Array
    Y: Array
    is_active: Mask

    def margins(self, F: Array) -> Array:
        """How far inside the region contexts lie, as rows [1, f]; on its edge zero, outside negative."""
        return np.asarray((F @ self.tests).min(axis=1, initial=np.inf))


def lies_inside(margins: Array) -> Mask:
    """Whether contexts with these margins belong to the region."""
    return margins >= -INSIDE


def region_at(rule: PivotRule, pairs: Pairs, flipped: Indices) -> Region | None:
    """The region with these pairs flipped; None where its equations are singular."""
    start = start_at(rule, flipped)
    if start is None:
        return None
    n = rule.n_columns
    if (start.tableau[rule.n_rows : rule.n_rows + 1, :n] < -INSIDE).any():
        return None  # a negative price: not optimal anywhere
    tests = np.ascontiguousarray(start.tableau[: rule.n_rows, n:].T)
    # V with v = V [1; f]: the tableau is read once for each column of [1; f]; prices belong to the first.
    each = start.tableau.shape[1] - n
    M = np.zeros((each, len(start.tableau), n + 1))
    M[0, :, :n] = start.tableau[:, :n]
    M[:, :, n] = start.tableau[:, n:].T
    v = rule.values(M, np.repeat(start.rows[None], each, axis=0), np.repeat(start.columns[None], each, axis=0))[0].T
    is_active = pairs.at_base.copy()
    is_active[flipped] ^= True
    return Region(start, tests, pairs.X0 + pairs.X1 @ v, pairs.Y0 + pairs.Y1 @ v, is_active)


def is_certified(program: DenseProgram, region: Region, tolerance: float) -> bool:
    """Whether the region's maps satisfy the program's equations for all predictions; its tests do the rest."""
    X, Y, rows = region.X, region.Y, program.inequalities
    slack = program.B - program.A @ X
    force = program.C + program.A.T @ Y + (0.0 if program.P is None else program.P @ X)
    must_vanish = np.ones(len(slack), dtype=bool)
    must_vanish[rows] = region.is_active
    wrong = np.abs(slack[must_vanish]).max(initial=0.0) / (1 + np.abs(X).max())
    idle = np.abs(Y[rows[~region.is_active]]).max(initial=0.0)
    wrong = max(wrong, max(np.abs(force).max(), idle) / (1 + np.abs(Y).max()))
    return bool(wrong <= tolerance)


class WorstResidual:
    """The worst-case residual from the multipliers: of the one piece, or of the heaviest of fixed pieces."""

    def __init__(self, counterpart: Counterpart) -> None:
        blocks = [block for block in counterpart.blocks if block.row == 0]
        self.points: Array | None = None
        if blocks[0].certificate is None:
            self.rows = blocks[0].equation_rows[: counterpart.problem.n_outcomes]
            return
        self.rows = np.array([block.inequality_row for block in blocks])
        self.points = np.vstack([block.certificate.points for block in blocks if block.certificate is not None])

    @staticmethod
    def applies(counterpart: Counterpart) -> bool:
        """One piece whose direction depends on the decision, or several whose directions are fixed."""
        blocks = [block for block in counterpart.blocks if block.row == 0]
        is_fixed = [block.certificate is not None for block in blocks]
        return (len(blocks) == 1 and not is_fixed[0]) or (len(blocks) > 1 and all(is_fixed))

    def at(self, y: Array) -> Array:
        """Residuals (N, d) for multipliers (N, n_rows)."""
        if self.points is None:
            return -y[:, self.rows]
        return self.points[y[:, self.rows].argmax(axis=1)]

    def affine(self, Y: Array) -> Array | None:
        """The residual as a map of [1; f] in a region; None where the heaviest piece may change within it."""
        if self.points is None:
            return -Y[self.rows]
        weights = Y[self.rows]
        # Any piece with weight attains the bound, and the heaviest has at least its share of 1: what rounding adds to
        # a weight that is constant cannot take that away.
        if np.abs(weights[:, 1:]).max(initial=0.0) > 1e-12 * (1 + np.abs(weights[:, 0]).max()):
            return None
        constant = np.zeros((self.points.shape[1], Y.shape[1]))
        constant[:, 0] = self.points[weights[:, 0].argmax()]
        return constant

    def heaviest(self, weights: Array) -> Array:
        """Residuals (N, d) of the heaviest of fixed pieces, for weights (N, n_pieces)."""
        assert self.points is not None
        return self.points[weights.argmax(axis=1)]
