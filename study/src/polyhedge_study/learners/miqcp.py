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
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from polyhedge.learners import Learner, LearnResult, Samples
from polyhedge.learners.exact.bound import below
from polyhedge.learners.paper.model import (
    Contexts,
    ModelRows,
    bounded_directions,
    conic,
    excess_over_selected,
    for_contexts,
)
from polyhedge.learners.samples import standard_deviations, standardised
from polyhedge.learners.starts import axis_box, check_n_facets, closed, one_sided, without_noise
from polyhedge.problems import DecisionProblem, Pieces
from polyhedge.robust import decide
from polyhedge.sets import Polyhedron
from polyhedge.solvers.program import Solution, Status
from polyhedge.solvers.solve import solve
from polyhedge_study.inside import Array, Indices
from polyhedge_study.learners import nominal_cost
from polyhedge_study.learners.bilinear import BilinearProgram, check_installed, solve_bilinear

logger = logging.getLogger(__name__)

_MAX_PIECES = 64
"""A block of multipliers for each piece: the program is hopeless long before."""


@dataclass(frozen=True)
class MIQCP(Learner):
    r"""Corollary 1: big-M binaries, bilinear W-lambda terms, a global solver, a certificate.

    The printed program leaves the scales of facets and multipliers free. ``MIQCP(normalisation="multipliers",
    aggregated_rows=False)`` is the printed program with $1^\top\lambda = 1$ and nothing else; the default adds
    binaries and rows that make SCIP certify it. SCIP comes with ``pip install 'polyhedge[exact]'``.

    Parameters
    ----------
    n_facets : int
        Facets K of the model. Facets without a multiplier are dropped from the result, and far ones that
        only keep it bounded are added.
    contexts, time_limit : as in `Learner`; the time grows steeply with the number of contexts
    aggregated_rows : bool
        Add the valid rows $v_i \ge z_i^\top Q\epsilon_j - M_j(1-t_j)$ for $v_i = (r1-b)^\top\lambda_i$: a sample's
        rows times lambda_i, summed. The printed model lacks them, and its relaxation is then very weak.
    normalisation : {"facets", "multipliers"}
        What fixes the common scale of a facet and its multiplier. "facets": 2 K d binaries, which the printed program
        does not have. "multipliers": $1^\top\lambda = 1$, for one context and a cost affine in the outcome. See Notes.
    max_nodes : int
        Nodes of the search tree after which the best set so far is returned.
    relative_gap : float
        Gap at which the search ends, as a share of the premium: the cost less the cost without uncertainty.
    multiplier_bound : float
        Multipliers are at most this times the longest cost direction. See Notes.

    Notes
    -----
    *Normalisation.* Residuals are standardised, and r = 0. A facet and its multiplier rescale each other. "facets": a
    row of W has largest absolute entry 1, by binaries that name that entry and its sign, and facets are ordered by
    their first entry. "multipliers": $1^\top\lambda = 1$; the half-space along $Q^\top z$ has the multiplier 1.

    *Bounds.* A facet that touches a selected residual has $|b_k| \le \max_j |\epsilon_j|_1$ times its largest entry.
    Entries of W ("multipliers") or multipliers ("facets") are at most `multiplier_bound` times the largest entry of a
    cost direction, which excludes only polyhedra whose worst case lies at a very sharp vertex (below about 15 degrees
    for the default 4).

    *Big M.* If sample j is dropped, one of the n - c_n + 1 samples nearest to it is not. So M_j is the
    (n - c_n + 1)-th smallest $|\epsilon_j - \epsilon_i|_1$; likewise, over the box of cost directions, for the
    aggregated rows.

    *What is certified.* The solver's dual bound is one for this model. It holds for every set that covers c_n residuals
    where the model has a facet for each piece of each context (for one context and a cost affine in u, one) and
    `multiplier_bound` is at least 1. Only then is it the `lower_bound` of the result; else it stands in `detail`.

    Examples
    --------
    >>> import polyhedge as ph
    >>> decider = ph.RobustDecider(ph.problems.simplex_linear([0.0, 0.0]), learner=MIQCP(n_facets=4, max_nodes=1000))
    >>> decider.learner.normalisation
    'facets'
    """

    n_facets: int = 4
    contexts: Contexts = "mean"
    aggregated_rows: bool = True
    normalisation: str = "facets"
    max_nodes: int = 20_000
    time_limit: float | None = None
    relative_gap: float = 1e-4
    multiplier_bound: float = 4.0

    @standardised(each_outcome=False)
    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        """Learn from the learning split only; see `Learner`."""
        check_n_facets(self.n_facets, samples.problem.n_outcomes)
        pieces = _supported_pieces(samples.problem)
        check_installed()
        every, (samples, about) = samples, for_contexts(samples, self.contexts, random_state)
        if self.normalisation not in ("facets", "multipliers"):
            raise ValueError(f"normalisation must be 'facets' or 'multipliers', got {self.normalisation!r}.")
        if self.normalisation == "multipliers" and (samples.n_contexts, len(pieces)) != (1, 1):
            raise ValueError(
                "normalisation='multipliers' is for one context and a cost affine in the outcome, got "
                f"{samples.n_contexts} context(s) and {len(pieces)} piece(s): facets share one scale. Use 'facets'."
            )
        model = _Model(self, samples, pieces)
        start = _best_start(model, every)
        nominal = nominal_cost(samples)
        unit = abs(start[1].value - nominal) if start is not None else 0.0
        solution = solve_bilinear(
            # Gaps are shares of the premium: neither the unit of costs nor a constant in them may matter.
            replace(model.program, start=None if start is None else start[1].x, offset=model.program.offset - nominal),
            max_nodes=self.max_nodes,
            time_limit=self.time_limit,
            relative_gap=self.relative_gap,
            absolute_gap=1e-3 * self.relative_gap * (unit or 1.0),
            use_nlp=samples.n_contexts == 1,
        )
        solution = replace(solution, value=solution.value + nominal, lower_bound=solution.lower_bound + nominal)
        candidates = [] if start is None else [start[0]]
        if solution.status.has_solution:
            candidates.append(model.shape_of(solution.x))
        candidates = candidates or [samples.normalised(axis_box(samples))]
        shapes = [closed(samples, shape) for shape in candidates]
        values = [samples.value(shape) for shape in shapes]
        best = int(np.argmin(values))
        unit = abs(values[best] - nominal)
        bound, complaint = below(solution.lower_bound, values[best], unit)
        words = complaint or solution.detail
        n_directions = len(model.pieces) * (1 if model.pieces.directions_are_fixed else samples.n_contexts)
        proves_for_all_sets = self.n_facets >= n_directions and self.multiplier_bound >= 1  # see Notes
        if not complaint and not proves_for_all_sets:
            bound, words = -np.inf, f"{words}; none of the model's sets costs less than {solution.lower_bound:.9g}"
        if not solution.status.has_solution:
            logger.warning("MIQCP returns its start: %s", solution.detail)
        return LearnResult(
            set=shapes[best],
            objective=values[best],
            status=Status.FAILED if complaint or solution.status is Status.INFEASIBLE else solution.status,
            lower_bound=bound,
            detail=f"objective and bound for {about}, {self.n_facets} facets; {words}",
        )


def _supported_pieces(problem: DecisionProblem) -> Pieces:
    """The cost's pieces, or an error that says why the problem has no exact bilinear model."""
    reason = None
    kinds = {cone.kind for cone in problem.feasible.program.cones if cone.size} - {"zero", "nonneg"}
    if not problem.structure.has_pieces:
        reason = f"the cost is {problem.curvature} in the outcome without a short list of affine pieces"
    elif len(problem.structure.pieces) > _MAX_PIECES:
        reason = f"the cost has {len(problem.structure.pieces)} pieces, more than {_MAX_PIECES}"
    elif problem.uncertain_constraints is not None:
        reason = "there are uncertain constraints"
    elif problem.outcome_support is not None:
        reason = "outcome_support is set"
    elif kinds:
        reason = f"g_0 or the feasible set need {sorted(kinds)} cones (linear rows and quadratic costs are fine)"
    if reason is not None:
        raise ValueError(f"MIQCP does not apply: {reason}. Use Descent, or Scenario for a certified bound.")
    return problem.structure.pieces


def _best_start(model: _Model, samples: Samples) -> tuple[Polyhedron, Solution] | None:
    """The better of the one-sided set and the axis box, completed to a feasible point of the model."""
    shapes = [one_sided(samples, model.K)]
    if 2 * samples.problem.n_outcomes <= model.K:
        shapes.append(axis_box(samples))
    shapes = [samples.normalised(shape) for shape in shapes]
    starts = [(shape, model.completed(shape)) for shape in shapes]
    solved = [start for start in starts if start[1].status.has_solution]
    return min(solved, key=lambda start: start[1].value, default=None)


class _Model:
    """Columns of the set, then z, lambda and v of each context, on standardised residuals."""

    def __init__(self, settings: MIQCP, samples: Samples, pieces: Pieces) -> None:
        self.samples, self.pieces = samples, pieces
        self.K, self.d, self.L = settings.n_facets, samples.problem.n_outcomes, len(pieces)
        self.standard, self.middle, self.scale = CentredResiduals.of(samples.residuals)
        low, high = bounded_directions(samples.problem, pieces, "MIQCP")
        self.low, self.high = low * self.scale, high * self.scale
        reach = max(float(np.abs(self.low).max()), float(np.abs(self.high).max()))
        self.has_free_facets = settings.normalisation == "multipliers"
        largest = settings.multiplier_bound * (reach or 1.0)
        self.largest_multiplier = 1.0 if self.has_free_facets else largest
        self.rows = BilinearRows()
        self.set = add_set(
            self.rows, self.standard, samples.rank, self.K, largest=largest if self.has_free_facets else None
        )
        for center in samples.centers:
            self._add_context(center + self.middle, settings.aggregated_rows)
        self.program = self.rows.bilinear()

    def _add_context(self, center: Array, aggregated: bool) -> None:
        rows, pieces, feasible = self.rows, self.pieces, self.samples.problem.feasible
        weight = 1.0 / len(self.samples.centers)
        x = rows.embed(feasible.program, weight)
        z = x[feasible.z_columns]
        level = rows.columns(1, -np.inf, np.inf, cost=weight) if self.L > 1 else np.zeros(0, dtype=np.int64)
        for piece in range(self.L):
            Q, q = pieces.Q[piece] * self.scale[:, None], pieces.q[piece] * self.scale
            multipliers = rows.columns(self.K, 0.0, self.largest_multiplier)
            if self.has_free_facets:
                rows.equal(multipliers, np.ones(self.K), 1.0)
            v = rows.columns(1, -np.inf, np.inf)
            for j in range(self.d):
                row = rows.equal(z, -Q[j], q[j])
                rows.multiply(row, self.set.W[:, j], multipliers)
            row = rows.at_most(v, [-1.0], 0.0)
            rows.multiply(row, self.set.q, multipliers)
            slope = pieces.p[piece] + center @ pieces.Q[piece]
            constant = float(pieces.c[piece] + center @ pieces.q[piece])
            if self.L > 1:
                rows.at_most([*v, *level, *z], [1.0, -1.0, *slope], -constant)
            else:
                rows.add_cost([*v, *z], weight * np.array([1.0, *slope]), weight * constant)
            if aggregated:
                M = excess_over_selected(
                    self.standard, self.low[piece][None], self.high[piece][None], self.samples.rank
                )
                for delta, t, m in zip(self.standard, self.set.t, M, strict=True):
                    rows.at_most([*z, *v, t], [*(delta @ Q), -1.0, m], m - float(delta @ q))

    def shape_of(self, x: Array) -> Polyhedron:
        """The facets that carry multipliers, moved to the selected residuals, in the units of the data."""
        W = x[self.set.W]
        # Facets k with a product w_kj lambda_k whose multiplier is positive.
        first, second = self.program.products[:, 1], self.program.products[:, 2]
        facet = np.searchsorted(self.set.W.ravel(), first) // self.d
        positive = (first < self.set.q[0]) & (x[second] > 1e-7 * self.largest_multiplier)
        used = np.isin(np.arange(self.K), facet[positive]) & (np.abs(W).max(axis=1) > 1e-6)
        if not used.any():
            return self.samples.normalised(axis_box(self.samples))
        W = without_noise(W[used]) / self.scale
        selected = self.samples.residuals[x[self.set.t] > 0.5]
        return self.samples.normalised(Polyhedron.from_halfspaces(W, (selected @ W.T).max(axis=0)))

    def completed(self, shape: Polyhedron) -> Solution:
        """The best feasible point of the model with this set (at radius 0)."""
        if self.has_free_facets:
            # The half-space along the cost's direction at the set's own decision, K times: lambda may be anything.
            z = decide(self.samples.problem, shape, 0.0, self.samples.centers).flat
            W = np.tile(self.pieces.directions(z)[0] * self.scale, (self.K, 1))
            q = np.partition(self.standard @ W.T, self.samples.rank - 1, axis=0)[self.samples.rank - 1]
        else:
            W = shape.W * self.scale
            size = np.abs(W).max(axis=1)
            W, q = W / size[:, None], (-shape.b - shape.W @ self.middle) / size
            pick = np.argsort(-W[:, 0], kind="stable")[np.minimum(np.arange(self.K), len(W) - 1)]
            W, q = W[pick], q[pick]
        inside = (self.standard @ W.T <= q + 1e-9).all(axis=1)
        q = np.maximum(q, (self.standard[inside] @ W.T).max(axis=0))
        largest = np.abs(W).argmax(axis=1)
        s = np.zeros(self.set.s.shape)
        if len(s):
            s[(W[np.arange(self.K), largest] < 0).astype(int), np.arange(self.K), largest] = 1.0
        columns = np.concatenate([self.set.W.ravel(), self.set.q, self.set.t, self.set.s.ravel()])
        return solve_with_fixed(self.program, columns, np.concatenate([W.ravel(), q, inside, s.ravel()]))


class BilinearRows(ModelRows):
    """Rows that may hold products of two columns."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[tuple[int, int, int]] = []

    def multiply(self, row: int, first: Indices, second: Indices) -> None:
        """Add products of matching columns to a row."""
        self.products += [(row, int(i), int(j)) for i, j in zip(first, second, strict=True)]

    def bilinear(self) -> BilinearProgram:
        """Columns, rows and products as arrays."""
        products = np.array(self.products, dtype=np.int64).reshape(-1, 3)
        return BilinearProgram(**self.arrays(), products=products, product_values=np.ones(len(self.products)))


class CentredResiduals(NamedTuple):
    """Residuals (n, d) of mean 0 and spread 1 along each axis; `middle` and `scale` (d,) lead back."""

    residuals: Array
    middle: Array
    scale: Array

    @classmethod
    def of(cls, residuals: Array) -> Self:
        """Shift and scale each axis, so that bounds and big-M constants do not depend on the units of the data."""
        middle, scale = residuals.mean(axis=0), standard_deviations(residuals)
        return cls((residuals - middle) / scale, middle, scale)


@dataclass(frozen=True)
class SetColumns:
    """Columns of the set: W (K, d), q = r1 - b (K,), t (n,), s (2, K, d): which entry of W is +1 or -1, or empty."""

    W: Indices
    q: Indices
    t: Indices
    s: Indices


def add_set(rows: BilinearRows, residuals: Array, rank: int, n_facets: int, largest: float | None = None) -> SetColumns:
    """Lemma 1 and Lemma 2: K facets that cover `rank` residuals.

    Facets are normalised by binaries s, or, where `largest` is given, have free entries up to it.
    """
    n, d = residuals.shape
    size = np.abs(residuals).sum(axis=1)
    bound = 1.0 if largest is None else largest
    nearest = bound * float(np.partition(size, n - rank)[n - rank])
    W = rows.columns(n_facets * d, -bound, bound).reshape(n_facets, d)
    q = rows.columns(n_facets, -nearest, bound * float(size.max()))
    t = rows.columns(n, 0.0, 1.0, integer=True)
    n_signs = 2 if largest is None else 0
    s = rows.columns(n_signs * n_facets * d, 0.0, 1.0, integer=True).reshape(n_signs, n_facets, d)
    M = bound * excess_over_selected(residuals, -np.ones((1, d)), np.ones((1, d)), rank)
    for k in range(n_facets):
        for residual, t_j, m in zip(residuals, t, M, strict=True):
            rows.at_most([*W[k], q[k], t_j], [*residual, -1.0, m], m)
        if largest is not None:
            continue
        rows.equal(s[:, k].ravel(), np.ones(2 * d), 1.0)
        for j in range(d):
            rows.at_most([W[k, j], s[0, k, j]], [-1.0, 2.0], 1.0)
            rows.at_most([W[k, j], s[1, k, j]], [1.0, 2.0], 1.0)
        if k:
            rows.at_most([W[k, 0], W[k - 1, 0]], [1.0, -1.0], 0.0)
    rows.at_most(t, -np.ones(n), -float(rank))
    return SetColumns(W, q, t, s)


def solve_with_fixed(program: BilinearProgram, columns: Indices, values: Array) -> Solution:
    """Solve the convex program that is left when one factor of every product is fixed."""
    n, m = len(program.c), len(program.row_lower)
    x = np.zeros(n)
    x[columns] = values
    row, fixed, free = program.products.T
    products = sp.csr_array((program.product_values * x[fixed], (row, free)), shape=(m, n))
    lower, upper = program.lower.copy(), program.upper.copy()
    lower[columns], upper[columns] = values, values
    rows, free_integers = (program.row_lower, program.row_upper), np.setdiff1d(program.integer, columns)
    rest: dict[str, Any] = {"P": program.P, "offset": program.offset, "integer": free_integers}
    return solve(conic(program.c, program.A + products, *rows, lower, upper, **rest))
