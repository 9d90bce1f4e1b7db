r"""The paper's exact mixed-integer program (Corollary 1), solved by spatial branch and bound.

$$\min_{W, b, z, \lambda, r, t}\ \frac1m\sum_{i=1}^m g_0(z_i) + (r1 - b + W\hat f(x_i))^\top\lambda_i
\quad\text{s.t.}\quad W^\top\lambda_i = Q^\top z_i,\ \lambda_i \ge 0,\ z_i \in Z,\quad
W\epsilon_j + b \le (r + M_j(1 - t_j))1,\ 1^\top t \ge c_n,\ t \in \{0,1\}^n$$

The paper prints it for one context (m = 1); several contexts share W, b, r and t. A maximum of pieces takes one
lambda for each piece. With $W^\top\lambda = Q^\top z$ the term $\lambda^\top W\hat f$ is $z^\top Q\hat f$, which
leaves the products $W^\top\lambda$ and $(r1-b)^\top\lambda$.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyhedge._validation import Array, Indices
from polyhedge.learners.objective import LearningObjective
from polyhedge.learners.result import LearnResult
from polyhedge.learners.starts import axis_box, check_n_facets, closed, one_sided
from polyhedge.problems import DecisionProblem, Pieces
from polyhedge.robust import decide
from polyhedge.sets import Polyhedron
from polyhedge.solvers.bilinear import BilinearProgram, BilinearSolution, available_backend, solve_bilinear
from polyhedge.solvers.program import Cone, ConicProgram, Solution, Status
from polyhedge.solvers.solve import solve

logger = logging.getLogger(__name__)

MAX_PIECES = 64
Contexts = str | int | Sequence[int] | Indices | None


@dataclass(frozen=True)
class MIQCP:
    r"""Corollary 1 as printed: big-M binaries, bilinear W-lambda terms, a global solver, a certificate.

    Parameters
    ----------
    n_facets : int
        Facets K of the model. Facets without a multiplier are dropped from the result, and far ones that
        only keep it bounded are added.
    contexts : "mean", int, indices or None
        For which predictions decisions are planned: the mean prediction (the paper's Table 1), so many
        random ones, these rows, or all. The time grows steeply with their number.
    aggregated_rows : bool
        Add the valid rows $v_i \ge z_i^\top Q\epsilon_j - M_j(1-t_j)$ for $v_i = (r1-b)^\top\lambda_i$: a sample's
        rows times lambda_i, summed. The printed model lacks them, and its relaxation is then very weak.
    backend : {"auto", "scip", "gurobi"}
        SCIP comes with ``pip install 'polyhedge[exact]'``.
    time_limit, relative_gap : float
        When to stop.
    multiplier_bound : float
        Multipliers are at most this times the longest cost direction. See Notes.

    Notes
    -----
    *Normalisation.* Residuals are standardised; r = 0 (otherwise b and r move together); every row of W has
    largest absolute entry 1, by binaries that name that entry and its sign (otherwise a facet and its
    multiplier rescale each other); facets are ordered by their first entry.

    *Bounds.* Entries of W lie in [-1, 1]. A facet that touches a selected residual has
    |b_k| <= max_j |eps_j|_1, and moving it there never raises the cost. Multipliers are at most
    `multiplier_bound` times the largest entry that a cost direction can have, which excludes only
    polyhedra whose worst case lies at a very sharp vertex (below about 15 degrees for the default 4).

    *Big M.* If sample j is dropped, one of the n - c_n + 1 samples nearest to it is not. So M_j is the
    (n - c_n + 1)-th smallest |eps_j - eps_i|_1, and correspondingly, over the box of cost directions,
    for the aggregated rows.

    *What is certified.* `lower_bound` is the solver's dual bound of this model: for K facets within the
    bounds above and for the contexts named in `detail`. For one context and a cost affine in u it holds for
    every set that covers c_n residuals (the half-space along $Q^\top z$ attains it).
    """

    n_facets: int = 4
    contexts: Contexts = "mean"
    aggregated_rows: bool = True
    backend: str = "auto"
    time_limit: float = 60.0
    relative_gap: float = 1e-4
    multiplier_bound: float = 4.0

    def learn(
        self,
        residuals: Array,
        centers: Array,
        problem: DecisionProblem,
        alpha: float,
        random_state: Any = None,
    ) -> LearnResult:
        """Learn from the learning split only; see `Learner`."""
        began = time.perf_counter()
        check_n_facets(self.n_facets, problem.n_outcomes)
        pieces = check_supported(problem, "MIQCP")
        available_backend(self.backend)
        chosen, about = model_contexts(self.contexts, centers, np.random.default_rng(random_state))
        objective = LearningObjective(problem, residuals, chosen, alpha)
        objective.radius(axis_box(objective))  # too few samples for alpha are an error here, not inside the model
        model = _Model(self, objective, pieces)
        start = _best_start(model, LearningObjective(problem, residuals, centers, alpha))
        found = solve_bilinear(
            replace(model.program, start=None if start is None else start.x),
            backend=self.backend,
            time_limit=self.time_limit,
            relative_gap=self.relative_gap,
            use_nlp=len(chosen) == 1,
        )
        return self._result(model, start, found, about, began)

    def _result(
        self,
        model: _Model,
        start: _Start | None,
        found: BilinearSolution,
        about: str,
        began: float,
    ) -> LearnResult:
        objective = model.objective
        candidates = [] if start is None else [start.shape]
        if found.status.has_solution:
            candidates.append(model.shape_of(found.x))
        candidates = candidates or [objective.normalised(axis_box(objective))]
        shapes = [closed(objective, shape) for shape in candidates]
        values = [mean_cost(objective, shape) for shape in shapes]
        best = int(np.argmin(values))
        bound = min(found.lower_bound, values[best])
        if not found.status.has_solution:
            logger.warning("MIQCP returns its start: %s", found.detail)
        return LearnResult(
            set=shapes[best],
            objective=values[best],
            status=found.status if found.status is not Status.INFEASIBLE else Status.FAILED,
            seconds=time.perf_counter() - began,
            lower_bound=bound,
            trace=tuple(values),
            detail=f"objective and bound for {about}, {self.n_facets} facets; {found.detail}",
        )


def check_supported(problem: DecisionProblem, learner: str) -> Pieces:
    """The cost's pieces, or an error that says why the problem has no exact bilinear model."""
    reason = None
    kinds = {cone.kind for cone in problem.feasible.program.cones if cone.size} - {"zero", "nonneg"}
    if problem.pieces is None:
        reason = f"the cost is {problem.curvature} in the outcome without a short list of affine pieces"
    elif len(problem.pieces) > MAX_PIECES:
        reason = f"the cost has {len(problem.pieces)} pieces, more than {MAX_PIECES}"
    elif problem.uncertain_constraints is not None:
        reason = "there are uncertain constraints"
    elif problem.outcome_support is not None:
        reason = "outcome_support is set"
    elif kinds:
        reason = f"g_0 or the feasible set need {sorted(kinds)} cones (linear rows and quadratic costs are fine)"
    if reason is not None:
        raise ValueError(f"{learner} does not apply: {reason}. Use Descent, or Scenario for a certified bound.")
    assert problem.pieces is not None
    return problem.pieces


def model_contexts(contexts: Contexts, centers: Array, rng: np.random.Generator) -> tuple[Array, str]:
    """The predictions a model plans for, and what they are in words."""
    n = len(centers)
    if contexts is None:
        return centers, f"all {n} contexts"
    if isinstance(contexts, str):
        if contexts != "mean":
            raise ValueError(f"contexts must be 'mean', a number, indices or None, got {contexts!r}.")
        return centers.mean(axis=0)[None], "the mean prediction"
    if isinstance(contexts, (int, np.integer)):
        if not 1 <= contexts <= n:
            raise ValueError(f"contexts must be between 1 and the {n} learning samples, got {contexts}.")
        return centers[np.sort(rng.choice(n, size=contexts, replace=False))], f"{contexts} random contexts"
    chosen = np.asarray(contexts)
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or not len(chosen):
        raise ValueError(f"contexts must be 'mean', a number, indices or None, got {contexts!r}.")
    return centers[chosen], f"{len(chosen)} given context(s)"


def mean_cost(objective: LearningObjective, shape: Polyhedron) -> float:
    """The mean robust cost over the model's contexts at the learning radius, by a solver for each."""
    bounds = decide(objective.problem, shape, objective.radius(shape), objective.centers).cost_bound
    return float(bounds.mean()) if np.isfinite(bounds).all() else np.inf


def without_noise(W: Array) -> Array:
    """Facet normals whose entries at rounding level are zeros, so that parallel facets are parallel."""
    return np.where(np.abs(W) < 1e-9 * np.abs(W).max(axis=1, keepdims=True), 0.0, W)


def direction_bounds(problem: DecisionProblem, pieces: Pieces, learner: str) -> tuple[Array, Array]:
    """Bounds (n_pieces, d) of the cost directions Q_l z + q_l over Z, by linear programs."""
    base, z = problem.feasible.program, problem.feasible.z_columns
    low, high = pieces.q.copy(), pieces.q.copy()
    for piece, j in np.argwhere(pieces.Q.any(axis=2)):
        for sign, bound in ((1.0, low), (-1.0, high)):
            c = np.zeros(len(base.c))
            c[z] = sign * pieces.Q[piece, j]
            found = solve(replace(base, c=c, P=None, offset=0.0))
            if found.status is not Status.OPTIMAL:
                raise ValueError(
                    f"{learner} needs a bounded feasible set: the cost's slope in outcome {j} is {found.status}. "
                    "Add bounds to the decision, or use Descent."
                )
            bound[piece, j] += sign * found.value
    return low, high


def excess_over_selected(residuals: Array, low: Array, high: Array, rank: int) -> Array:
    r"""Big M: how far $v^\top\epsilon_j$ can exceed the largest $v^\top\epsilon_i$ of `rank` selected residuals.

    Whatever is selected, one of the n - rank + 1 samples i with the least $\max_v v^\top(\epsilon_j-\epsilon_i)$
    is; v ranges over the boxes between the rows of `low` and `high` (n_boxes, d), and the largest counts.
    """
    M = np.empty(len(residuals))
    for j, residual in enumerate(residuals):
        step = residual - residuals
        gain = np.maximum(step[:, None] * low, step[:, None] * high).sum(axis=2).max(axis=1)
        M[j] = np.partition(gain, len(residuals) - rank)[len(residuals) - rank]
    return np.maximum(M, 0.0)


@dataclass(frozen=True)
class _Start:
    shape: Polyhedron
    x: Array
    value: float


def _best_start(model: _Model, objective: LearningObjective) -> _Start | None:
    """The better of the one-sided set and the axis box, completed to a feasible point of the model."""
    K = model.K
    shapes = [one_sided(objective, K)]
    if 2 * objective.problem.n_outcomes <= K:
        shapes.append(axis_box(objective))
    points = [model.completed(objective.normalised(shape)) for shape in shapes]
    starts = [
        _Start(objective.normalised(shape), point.x, point.value)
        for shape, point in zip(shapes, points, strict=True)
        if point.status.has_solution
    ]
    return min(starts, key=lambda start: start.value, default=None)


@dataclass(frozen=True)
class SetColumns:
    """Columns of the set: W (K, d), q = r1 - b (K,), t (n,), s (2, K, d): which entry of W is +1 or -1."""

    W: Indices
    q: Indices
    t: Indices
    s: Indices


def add_set(rows: ModelRows, residuals: Array, rank: int, n_facets: int, reach: float | None = None) -> SetColumns:
    """Lemmas 1 and 2: K normalised facets that cover `rank` residuals, offsets up to `reach`."""
    n, d = residuals.shape
    size = np.abs(residuals).sum(axis=1)
    nearest = float(np.partition(size, n - rank)[n - rank])
    W = rows.columns(n_facets * d, -1.0, 1.0).reshape(n_facets, d)
    q = rows.columns(n_facets, -nearest, float(size.max()) if reach is None else reach)
    t = rows.columns(n, 0.0, 1.0, integer=True)
    s = rows.columns(2 * n_facets * d, 0.0, 1.0, integer=True).reshape(2, n_facets, d)
    M = excess_over_selected(residuals, -np.ones((1, d)), np.ones((1, d)), rank)
    for k in range(n_facets):
        for residual, t_j, m in zip(residuals, t, M, strict=True):
            rows.at_most([*W[k], q[k], t_j], [*residual, -1.0, m], m)
        rows.equal(s[:, k].ravel(), np.ones(2 * d), 1.0)
        for j in range(d):
            rows.at_most([W[k, j], s[0, k, j]], [-1.0, 2.0], 1.0)
            rows.at_most([W[k, j], s[1, k, j]], [1.0, 2.0], 1.0)
        if k:
            rows.at_most([W[k, 0], W[k - 1, 0]], [1.0, -1.0], 0.0)
    rows.at_most(t, -np.ones(n), -float(rank))
    return SetColumns(W, q, t, s)


class _Model:
    """Columns of the set, then z, lambda and v of each context, on standardised residuals."""

    def __init__(self, settings: MIQCP, objective: LearningObjective, pieces: Pieces) -> None:
        self.objective, self.pieces = objective, pieces
        self.K, self.d, self.L = settings.n_facets, objective.problem.n_outcomes, len(pieces)
        residuals = objective.residuals
        self.middle, spread = residuals.mean(axis=0), residuals.std(axis=0)
        self.scale = np.where(spread > 0, spread, 1.0)
        self.standard = (residuals - self.middle) / self.scale
        low, high = direction_bounds(objective.problem, pieces, "MIQCP")
        self.low, self.high = low * self.scale, high * self.scale
        reach = max(float(np.abs(self.low).max()), float(np.abs(self.high).max()))
        self.largest_multiplier = settings.multiplier_bound * (reach or 1.0)
        self.rows = ModelRows()
        self.set = add_set(self.rows, self.standard, objective.rank, self.K)
        for center in objective.centers:
            self._add_context(center + self.middle, settings.aggregated_rows)
        self.program = self.rows.program()

    def _add_context(self, center: Array, aggregated: bool) -> None:
        rows, pieces, feasible = self.rows, self.pieces, self.objective.problem.feasible
        weight = 1.0 / len(self.objective.centers)
        x = rows.embed(feasible.program, weight)
        z = x[feasible.z_columns]
        level = rows.columns(1, -np.inf, np.inf, cost=weight) if self.L > 1 else np.zeros(0, dtype=np.int64)
        for piece in range(self.L):
            Q, q = pieces.Q[piece] * self.scale[:, None], pieces.q[piece] * self.scale
            multipliers = rows.columns(self.K, 0.0, self.largest_multiplier)
            v = rows.columns(1, -np.inf, np.inf)
            for j in range(self.d):
                row = rows.equal(z, -Q[j], q[j])
                rows.multiply(row, self.set.W[:, j], multipliers, np.ones(self.K))
            row = rows.at_most(v, [-1.0], 0.0)
            rows.multiply(row, self.set.q, multipliers, np.ones(self.K))
            slope = pieces.p[piece] + center @ pieces.Q[piece]
            constant = float(pieces.c[piece] + center @ pieces.q[piece])
            if self.L > 1:
                rows.at_most([*v, *level, *z], [1.0, -1.0, *slope], -constant)
            else:
                rows.add_cost([*v, *z], weight * np.array([1.0, *slope]), weight * constant)
            if aggregated:
                self._add_aggregated(z, v, Q, q, piece)

    def _add_aggregated(self, z: Indices, v: Indices, Q: Array, q: Array, piece: int) -> None:
        low, high = self.low[piece][None], self.high[piece][None]
        M = excess_over_selected(self.standard, low, high, self.objective.rank)
        for delta, t, m in zip(self.standard, self.set.t, M, strict=True):
            self.rows.at_most([*z, *v, t], [*(delta @ Q), -1.0, m], m - float(delta @ q))

    def shape_of(self, x: Array) -> Polyhedron:
        """The facets that carry multipliers, moved to the selected residuals, in the units of the data."""
        W = x[self.set.W]
        used = np.isin(np.arange(self.K), self._used_facets(x)) & (np.abs(W).max(axis=1) > 1e-6)
        if not used.any():
            return self.objective.normalised(axis_box(self.objective))
        W = without_noise(W[used]) / self.scale
        selected = self.objective.residuals[x[self.set.t] > 0.5]
        return self.objective.normalised(Polyhedron.from_halfspaces(W, (selected @ W.T).max(axis=0)))

    def _used_facets(self, x: Array) -> Array:
        """Facets k with a product w_kj lambda_k whose multiplier is positive."""
        first, second = self.program.products[:, 1], self.program.products[:, 2]
        facet = np.searchsorted(self.set.W.ravel(), first) // self.d
        positive = (first < self.set.q[0]) & (x[second] > 1e-7 * self.largest_multiplier)
        return np.unique(facet[positive])

    def completed(self, shape: Polyhedron) -> Solution:
        """The best feasible point of the model with this set (at radius 0)."""
        W = shape.W * self.scale
        size = np.abs(W).max(axis=1)
        W, q = W / size[:, None], (-shape.b - shape.W @ self.middle) / size
        pick = np.argsort(-W[:, 0], kind="stable")[np.minimum(np.arange(self.K), len(W) - 1)]
        W, q = W[pick], q[pick]
        inside = (self.standard @ W.T <= q + 1e-9).all(axis=1)
        q = np.maximum(q, (self.standard[inside] @ W.T).max(axis=0))
        largest = np.abs(W).argmax(axis=1)
        s = np.zeros(self.set.s.shape)
        s[(W[np.arange(self.K), largest] < 0).astype(int), np.arange(self.K), largest] = 1.0
        columns = np.concatenate([self.set.W.ravel(), self.set.q, self.set.t, self.set.s.ravel()])
        return _with_fixed(self.program, columns, np.concatenate([W.ravel(), q, inside, s.ravel()]))


def _with_fixed(program: BilinearProgram, columns: Indices, values: Array) -> Solution:
    """Solve the convex program that is left when one factor of every product is fixed."""
    n, m = len(program.c), len(program.row_lower)
    x = np.zeros(n)
    x[columns] = values
    row, fixed, free = program.products.T
    products = sp.csr_array((program.product_values * x[fixed], (row, free)), shape=(m, n))
    lower, upper = program.lower.copy(), program.upper.copy()
    lower[columns], upper[columns] = values, values
    without_products = replace(program, A=program.A + products, lower=lower, upper=upper)
    return solve(replace(_conic(without_products), integer=np.setdiff1d(program.integer, columns)))


def _conic(program: BilinearProgram) -> ConicProgram:
    """A program without products, with its bounds as rows."""
    integer: Any = program.integer
    box = sp.eye_array(len(program.c), format="csr")
    equation = program.row_lower == program.row_upper
    below, above = np.isfinite(program.lower), np.isfinite(program.upper)
    parts = [
        (program.A[equation], program.row_upper[equation], "zero"),
        (program.A[~equation], program.row_upper[~equation], "nonneg"),
        (box[above], program.upper[above], "nonneg"),
        (-box[below], -program.lower[below], "nonneg"),
    ]
    return ConicProgram(
        c=program.c,
        A=sp.vstack([part[0] for part in parts], format="csr"),
        b=np.concatenate([part[1] for part in parts]),
        cones=tuple(Cone(kind, len(b)) for _, b, kind in parts if len(b)),
        P=program.P,
        offset=program.offset,
        integer=integer,
    )


class ModelRows:
    """Collects columns, rows and products of a bilinear program; every row is an equation or `<=`.

    Other cones of embedded convex programs are kept apart; they are allowed in `conic` only.
    """

    def __init__(self) -> None:
        self.lower: list[float] = []
        self.upper: list[float] = []
        self.cost: list[float] = []
        self.integer: list[int] = []
        self.entries: list[tuple[int, int, float]] = []
        self.products: list[tuple[int, int, int]] = []
        self.product_values: list[float] = []
        self.row_lower: list[float] = []
        self.row_upper: list[float] = []
        self.quadratic: list[tuple[int, int, float]] = []
        self.cones: list[tuple[Indices, sp.csr_array, Array, Cone]] = []
        self.offset = 0.0

    def columns(self, count: int, lower: float, upper: float, *, integer: bool = False, cost: float = 0.0) -> Indices:
        """New columns with common bounds and cost."""
        first = len(self.cost)
        self.lower += [lower] * count
        self.upper += [upper] * count
        self.cost += [cost] * count
        new = np.arange(first, first + count)
        self.integer += new.tolist() if integer else []
        return new

    def embed(self, program: ConicProgram, weight: float) -> Indices:
        """Columns and linear rows of a convex program, its cost times the weight."""
        x = self.columns(len(program.c), -np.inf, np.inf)
        self.integer += x[program.integer].tolist()
        self.add_cost(x, weight * program.c, weight * program.offset)
        if program.P is not None:
            P = program.P.tocoo()
            entries = zip(x[P.row].tolist(), x[P.col].tolist(), (weight * P.data).tolist(), strict=True)
            self.quadratic += list(entries)
        A, start = program.A, 0
        for cone in program.cones:
            block = slice(start, start + cone.n_rows)
            start += cone.n_rows
            if cone.kind not in ("zero", "nonneg"):
                self.cones.append((x, A[block], program.b[block], cone))
                continue
            for r in range(block.start, block.stop):
                span = slice(A.indptr[r], A.indptr[r + 1])
                add = self.equal if cone.kind == "zero" else self.at_most
                add(x[A.indices[span]], A.data[span], float(program.b[r]))
        return x

    def at_most(self, columns: Any, values: Any, limit: float) -> int:
        """Add a row; returns its index."""
        row = len(self.row_upper)
        entries = zip(np.asarray(columns).tolist(), np.asarray(values, dtype=float).tolist(), strict=True)
        self.entries += [(row, i, v) for i, v in entries if v]
        self.row_lower.append(-np.inf)
        self.row_upper.append(limit)
        return row

    def equal(self, columns: Any, values: Any, value: float) -> int:
        """Add an equation; returns its index."""
        row = self.at_most(columns, values, value)
        self.row_lower[row] = value
        return row

    def multiply(self, row: int, first: Indices, second: Indices, values: Array) -> None:
        """Add products of matching columns to a row."""
        self.products += [(row, int(i), int(j)) for i, j in zip(first, second, strict=True)]
        self.product_values += values.tolist()

    def add_cost(self, columns: Any, values: Any, constant: float) -> None:
        """Add a linear cost."""
        for i, v in zip(np.asarray(columns).tolist(), np.asarray(values, dtype=float).tolist(), strict=True):
            self.cost[i] += v
        self.offset += constant

    def program(self) -> BilinearProgram:
        """Everything but the cones, as arrays."""
        n = len(self.cost)
        rows, columns, values = (np.array(part) for part in zip(*self.entries, strict=True))
        P = None
        if self.quadratic:
            i, j, v = (np.array(part) for part in zip(*self.quadratic, strict=True))
            P = sp.csr_array((v, (i, j)), shape=(n, n))
        return BilinearProgram(
            c=np.array(self.cost),
            A=sp.csr_array((values, (rows, columns)), shape=(len(self.row_upper), n)),
            row_lower=np.array(self.row_lower),
            row_upper=np.array(self.row_upper),
            products=np.array(self.products, dtype=np.int64).reshape(-1, 3),
            product_values=np.array(self.product_values),
            lower=np.array(self.lower),
            upper=np.array(self.upper),
            integer=np.array(self.integer, dtype=np.int64),
            P=P,
            offset=self.offset,
        )

    def conic(self) -> ConicProgram:
        """The program as a (mixed-integer) convex one; it must have no products."""
        linear = _conic(self.program())
        A, b = [linear.A], [linear.b]
        for x, block, rhs, _ in self.cones:
            entries = block.tocoo()
            A.append(sp.csr_array((entries.data, (entries.row, x[entries.col])), shape=(len(rhs), len(self.cost))))
            b.append(rhs)
        cones = (*linear.cones, *(cone for *_, cone in self.cones))
        return replace(linear, A=sp.vstack(A, format="csr"), b=np.concatenate(b), cones=cones)
