r"""Warm starts for learners, which move the facets of a set a little in every step.

Bases that were optimal in one step mostly stay feasible in the next. Each class keeps them, goes on from the best by
pivots of all contexts together, and leaves the rest to a solver. A result is taken only where it is *sharp*: slacks and
multipliers of all other rows are clearly positive (strict complementarity), so that it is the only solution and does
not depend on earlier calls.

| class           | program                                                          | against one solve each     |
|-----------------|------------------------------------------------------------------|----------------------------|
| `SharpVertices` | $\max\{v^\top e : W e \le q\}$ along fixed directions v         | learning 4 times faster    |
| `SharpLevels`   | $\min\{c^\top x : A x \le b\}$, only b moves                    | learning 5 times faster    |
| `SharpPrograms` | $\min_z \max_{W e \le q} g(z, f + e)$, one affine piece         | gradients 7 to 40 times    |

A vertex is where d facets B meet, $W_B e = q_B$; multipliers $\lambda \ge 0$ with $W_B^\top \lambda = v$ prove it. The
multipliers of a basis, $A_B^\top y = -c$, do not depend on b, so $-y^\top b_B$ is a lower bound of every value. By
duality the third is $\min\{c^\top z + q^\top \lambda : W^\top \lambda = Q z + q_0,\ z \in Z,\ \lambda \ge 0\}$.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyhedge._support.tolerances import PIVOT, SOLVED
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.problems import DecisionProblem
from polyhedge.robust.engine.parametric import ParametricProgram
from polyhedge.robust.support import SupportCertificate, maximise
from polyhedge.sets import Polyhedron
from polyhedge.solvers.program import row_kinds

_RESIDUAL = 1e-11
"""Share of their size by which the equations of a basis may be missed: nearly dependent rows lose more digits."""
_MAX_PIVOTS = 12
"""Pivots of a step beyond which a solver is quicker; one or two are usual."""


class SharpVertices:
    """Along given directions (L, d), the supports of one polyhedron {e : W e <= q} after the other.

    Examples
    --------
    >>> supports = SharpVertices(np.array([[1.0, 2.0]]))
    >>> box = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    >>> supports(box, np.ones(4)).values, supports(box, np.array([1.0, 3.0, 1.0, 1.0])).values
    (array([3.]), array([7.]))
    """

    def __init__(self, directions: Array) -> None:
        self.directions = directions
        self._bases: Indices | None = None

    def __call__(self, W: Array, q: Array) -> SupportCertificate:
        """Values, maximisers and multipliers; inf where unbounded, -inf where the set is empty."""
        if self._bases is not None and self._bases.max() < len(q):
            corners = _pivoted(W, q, self.directions, self._bases)
            if corners is not None:
                self._bases = corners.bases
                return corners.certificate(W, q, self.directions)
        certificate = maximise(Polyhedron.from_halfspaces(W, q).conic_form(0.0), self.directions)
        meet = certificate.multipliers > 0
        if (meet.sum(axis=1) != self.directions.shape[1]).any():  # nan where there is no maximiser
            return certificate
        bases = np.nonzero(meet)[1].reshape(self.directions.shape)
        try:
            # Once more from the facets alone: a solver's last digits depend on where it began.
            corners = _Corners(W, q, self.directions, bases)
        except np.linalg.LinAlgError:  # parallel facets share a multiplier, and meet in no point
            return certificate
        self._bases = bases
        return (
            corners.certificate(W, q, self.directions) if corners.is_sharp(W, q, self.directions).all() else certificate
        )


class _Corners:
    """Where the facets `bases` (L, d) meet: vertices, multipliers along the directions, slacks of all facets."""

    def __init__(self, W: Array, q: Array, directions: Array, bases: Indices) -> None:
        self.bases, self.rows = bases, np.arange(len(bases))[:, None]
        self.B = W[bases]
        self.inverses = np.linalg.inv(self.B)
        self.points = np.einsum("nij,nj->ni", self.inverses, q[bases])
        self.weights = np.einsum("nij,ni->nj", self.inverses, directions)
        self.slacks = q - self.points @ W.T

    def is_sharp(self, W: Array, q: Array, directions: Array) -> Mask:
        """Where vertex and multipliers are proven, and are the only ones."""
        sizes = np.abs(self.points) @ np.abs(W).T + np.abs(q)
        others = self.slacks > SOLVED * sizes
        own = self.rows, self.bases
        others[own] = np.abs(self.slacks[own]) <= _RESIDUAL * sizes[own]
        largest = np.abs(self.weights).max(axis=1, keepdims=True)
        missed = np.abs(np.einsum("ni,nij->nj", self.weights, self.B) - directions)
        allowed = _RESIDUAL * (np.einsum("ni,nij->nj", np.abs(self.weights), np.abs(self.B)) + np.abs(directions))
        return others.all(axis=1) & (self.weights > SOLVED * largest).all(axis=1) & (missed <= allowed).all(axis=1)

    def pivoted(self, W: Array) -> tuple[Indices, Mask]:
        """Bases with one facet exchanged for another, as the simplex methods would, and where that has an end."""
        slacks, rows = self.slacks.copy(), self.rows[:, 0]
        slacks[self.rows, self.bases] = np.inf
        enters, leaves = slacks.argmin(axis=1), self.weights.argmin(axis=1)
        is_dual = slacks[rows, enters] < 0  # a facet is violated: it enters
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.einsum("nij,ni->nj", self.inverses, W[enters])
            ratios = np.where(rates > SOLVED, np.maximum(self.weights, 0.0) / rates, np.inf)
            by_dual = ratios.argmin(axis=1)
            rates_of_slack = -self.inverses[rows, :, leaves] @ W.T
            steps = np.where(rates_of_slack > SOLVED, slacks / rates_of_slack, np.inf)
            by_primal = steps.argmin(axis=1)
        has_end = np.where(is_dual, np.isfinite(ratios[rows, by_dual]), np.isfinite(steps[rows, by_primal]))
        bases = self.bases.copy()
        bases[rows, np.where(is_dual, by_dual, leaves)] = np.where(is_dual, enters, by_primal)
        bases.sort(axis=1)
        return bases, has_end

    def certificate(self, W: Array, q: Array, directions: Array) -> SupportCertificate:
        """As a solver would give it."""
        multipliers = np.zeros((len(self.bases), len(q)))
        multipliers[self.rows, self.bases] = self.weights
        values = np.einsum("ij,ij->i", directions, self.points)
        return SupportCertificate(values, self.points, multipliers, directions.shape[1])


def _pivoted(W: Array, q: Array, directions: Array, bases: Indices) -> _Corners | None:
    """Sharp vertices after some pivots from the given bases; None where they are not sharp, or far."""
    bases, is_open = bases.copy(), np.ones(len(bases), dtype=bool)
    try:
        for _ in range(_MAX_PIVOTS):
            some = np.flatnonzero(is_open)
            corners = _Corners(W, q, directions[some], bases[some])
            is_sharp = corners.is_sharp(W, q, directions[some])
            if is_sharp.all():
                return corners if len(some) == len(bases) else _Corners(W, q, directions, bases)
            is_open[some[is_sharp]] = False
            moved, has_end = corners.pivoted(W)
            if not has_end[~is_sharp].all():
                return None
            bases[some[~is_sharp]] = moved[~is_sharp]
    except np.linalg.LinAlgError:
        return None
    return None


_MOST = 1024
"""Bases that are kept: with more of them the products that choose one take as long as a solver."""
_TRIES = 8
"""Bases of the same bound that are tried: those that share their multipliers differ in rows without weight."""


class SharpLevels:
    """The bases of one such program that are known; make it with `sharp_levels`."""

    def __init__(self, c: Array, A: Array, is_equation: Mask) -> None:
        self.c, self.A, self.is_equation = c, A, is_equation
        n = len(c)
        self.bases, self.inverses = np.zeros((0, n), dtype=np.int64), np.zeros((0, n, n))
        self.multipliers, self.known = np.zeros((0, len(A))), set[bytes]()

    def __call__(self, b: Array) -> tuple[Array, Array, Mask]:
        """Values (N,) and multipliers (N, m) at right-hand sides (N, m), and where they are sharp."""
        if not len(self.bases):
            return np.zeros(len(b)), np.zeros(b.shape), np.zeros(len(b), dtype=bool)
        bounds = -b @ self.multipliers.T
        order = np.argsort(-bounds, axis=1, kind="stable")[:, :_TRIES]
        best, is_sharp = order[:, 0].copy(), np.zeros(len(b), dtype=bool)
        values, room = np.zeros(len(b)), PIVOT * (1 + np.abs(bounds).max(axis=1))
        for k in range(order.shape[1]):
            due = np.flatnonzero(~is_sharp)
            due = due[bounds[due, order[due, k]] >= bounds[due, best[due]] - room[due]]
            if not len(due):
                break
            chosen = order[due, k]
            x, clear = self._at(chosen, b[due])
            values[due[clear]], best[due[clear]], is_sharp[due[clear]] = x[clear] @ self.c, chosen[clear], True
        return values, self.multipliers[best], is_sharp

    def _at(self, chosen: Indices, b: Array) -> tuple[Array, Mask]:
        """Where the rows of the chosen bases meet, and whether all others are clearly slack."""
        bases = self.bases[chosen]
        x = (self.inverses[chosen] @ np.take_along_axis(b, bases, axis=1)[:, :, None])[:, :, 0]
        slack, size = b - x @ self.A.T, np.abs(x) @ np.abs(self.A).T + np.abs(b)
        others = slack > SOLVED * size
        np.put_along_axis(others, bases, True, axis=1)
        return x, np.asarray(others.all(axis=1))

    def remember(self, tight: Mask | None) -> None:
        """Take over the basis of a solver, given by its tight rows (m,)."""
        if tight is None or len(self.bases) >= _MOST:
            return
        basis = np.flatnonzero(tight)
        if len(basis) != len(self.c) or basis.tobytes() in self.known:
            return
        self.known.add(basis.tobytes())
        try:
            inverse = np.linalg.inv(self.A[basis])
        except np.linalg.LinAlgError:
            return
        own = -self.c @ inverse
        own[np.abs(own) <= PIVOT * np.abs(own).max()] = 0.0
        if (own[~self.is_equation[basis]] >= 0).all():
            multipliers = np.zeros((1, len(self.A)))
            multipliers[0, basis] = own
            self.bases, self.inverses = np.vstack([self.bases, basis]), np.concatenate([self.inverses, inverse[None]])
            self.multipliers = np.vstack([self.multipliers, multipliers])


def sharp_levels(parametric: ParametricProgram) -> SharpLevels | None:
    """For linear programs without integers of which only right-hand sides move; else None."""
    zero, kinds = parametric.at_zero, row_kinds(parametric.at_zero.cones)
    moves = parametric.cost_slope.nnz or parametric.entry_slope.nnz or parametric.offset_slope.any()
    if zero.P is not None or len(zero.integer) or moves or not np.isin(kinds, ("zero", "nonneg")).all():
        return None
    return SharpLevels(zero.c, zero.A.toarray(), kinds == "zero")


_MOST_PIVOTS = 60
"""Pivots of a context beyond which a solver is quicker; a few are usual."""
_MAX_BASES = 32
"""Bases that are kept from one step to the next: as many as a step has contexts."""


@dataclass(frozen=True)
class SharpCosts:
    """Values (N,), multipliers of the facets (N, K) and worst residuals (N, d), where `is_sharp`; else zeros."""

    values: Array
    multipliers: Array
    points: Array
    is_sharp: Mask


class SharpPrograms:
    """The programs of one problem, one polyhedron {e : W e <= q} after the other; make it with `sharp_programs`."""

    def __init__(self, A: Array, b: Array, is_equation: Mask, problem: DecisionProblem) -> None:
        pieces, program = problem.structure.pieces, problem.feasible.program
        self.offset, self.q0 = program.offset + float(pieces.c[0]), pieces.q[0]
        costs = program.c[problem.feasible.z_columns] + pieces.p[0]
        self.costs, self.Q = costs, pieces.Q[0]
        single = ~is_equation & ((A != 0).sum(axis=1) == 1)
        lower, upper = _limits(A[single], b[single])
        rows, slack = np.flatnonzero(~single), np.flatnonzero(~is_equation[~single])
        identity = np.zeros((len(rows), len(slack)))
        identity[slack, np.arange(len(slack))] = 1.0
        self.n_rows = len(rows)
        # What does not move: rows of Z, then one equation for each outcome; columns z, then slacks.
        self.fixed = np.vstack(
            [np.hstack([A[rows], identity]), np.hstack([self.Q, np.zeros((len(self.Q), len(slack)))])]
        )
        self.right = np.concatenate([b[rows], -self.q0])
        self.A_slack, self.b_slack = A[rows][slack], b[rows][slack]
        self.lower = np.concatenate([lower, np.zeros(len(slack))])
        self.upper = np.concatenate([upper, np.full(len(slack), np.inf)])
        self._bases: tuple[Indices, Mask] | None = None

    def __call__(self, W: Array, q: Array, centers: Array) -> SharpCosts:
        """What is sharp at the contexts, for the facets as they are now."""
        nothing = np.zeros(len(centers)), np.zeros((len(centers), len(q))), np.zeros(centers.shape)
        unknown = SharpCosts(*nothing, np.zeros(len(centers), dtype=bool))
        if self._bases is None or self._bases[1].shape[1] != len(self.lower) + len(q):
            self._bases = None
            return unknown
        try:
            program = _Program(self, W, q, centers)
            ends = program.pivoted(*self._bases)
            found = None if ends is None else _Optimum(program, *ends)
        except np.linalg.LinAlgError:
            found = None
        if found is None:
            self._bases = None
            return unknown
        self._keep(found.bases[found.is_sharp], found.at_upper[found.is_sharp])
        weights, points = found.x[:, len(self.lower) :], -found.prices[:, self.n_rows :]
        values = (program.costs * found.x).sum(axis=1) + self.offset + centers @ self.q0
        return SharpCosts(values, weights, points, found.is_sharp)

    def remember(self, z: Array, multipliers: Array) -> bool:
        """Take over the basis of a solver's answer, where it has one; whether it is the only one that is known."""
        x = np.concatenate([z, self.b_slack - self.A_slack @ z, multipliers])
        lower = np.concatenate([self.lower, np.zeros(len(multipliers))])
        upper = np.concatenate([self.upper, np.full(len(multipliers), np.inf)])
        room = SOLVED * np.abs(x).max()
        basic, at_upper = (x > lower + room) & (x < upper - room), x >= upper - room
        if basic.sum() != len(self.right):
            return False
        is_first = self._bases is None
        self._keep(np.flatnonzero(basic)[None], at_upper[None], is_more=not is_first)
        return is_first

    def _keep(self, bases: Indices, at_upper: Mask, *, is_more: bool = False) -> None:
        """The distinct bases of a step, or one more of it."""
        if is_more and self._bases is not None:
            bases, at_upper = np.vstack([self._bases[0], bases]), np.vstack([self._bases[1], at_upper])
        if len(bases):
            _, first = np.unique(bases, axis=0, return_index=True)
            self._bases = bases[first][:_MAX_BASES], at_upper[first][:_MAX_BASES]


def sharp_programs(problem: DecisionProblem) -> SharpPrograms | None:
    """The programs of a problem of this kind: one affine piece, linear rows, nothing known of outcomes; else None."""
    structure, program = problem.structure, problem.feasible.program
    if not structure.has_pieces or not structure.is_continuous or problem.uncertain_rows or structure.has_known_support:
        return None
    columns, kinds = problem.feasible.z_columns, row_kinds(program.cones)
    is_plain = program.P is None and len(columns) == len(program.c) and np.isin(kinds, ("zero", "nonneg")).all()
    if len(structure.pieces) > 1 or not is_plain or problem.feasible.slopes is not None:
        return None
    return SharpPrograms(program.A.toarray()[:, columns], program.b, kinds == "zero", problem)


def _limits(A: Array, b: Array) -> tuple[Array, Array]:
    """Lower and upper limits of the columns from rows with one entry."""
    with np.errstate(divide="ignore", invalid="ignore"):
        limits = b[:, None] / A
    upper = np.where(A > 0, limits, np.inf).min(axis=0, initial=np.inf)
    return np.where(A < 0, limits, -np.inf).max(axis=0, initial=-np.inf), upper


class _Program:
    """Facets as they are now: M x = right, lower <= x <= upper, and costs (N, n) of the contexts."""

    def __init__(self, known: SharpPrograms, W: Array, q: Array, centers: Array) -> None:
        n, K = len(known.lower), len(q)
        self.M = np.hstack([known.fixed, np.zeros((len(known.right), K))])
        self.M[known.n_rows :, n:] = -W.T
        self.right = known.right
        self.lower = np.concatenate([known.lower, np.zeros(K)])
        self.upper = np.concatenate([known.upper, np.full(K, np.inf)])
        self.costs = np.zeros((len(centers), n + K))
        self.costs[:, : len(known.costs)] = known.costs + centers @ known.Q
        self.costs[:, n:] = q

    def at(self, bases: Indices, at_upper: Mask) -> tuple[Array, Array]:
        """Inverses (N, m, m) of the bases and all columns (N, n)."""
        each = np.arange(len(bases))[:, None]
        x = np.where(at_upper, self.upper, np.where(self.lower > -np.inf, self.lower, 0.0))
        x[each, bases] = 0.0
        inverses = np.linalg.inv(self.M.T[bases].transpose(0, 2, 1))
        x[each, bases] = (inverses @ (self.right - x @ self.M.T)[:, :, None])[:, :, 0]
        return inverses, x

    def pivoted(self, bases: Indices, at_upper: Mask) -> tuple[Indices, Mask] | None:
        """The optimal basis of each context, from the best of some; None where none of these is feasible."""
        inverses, x = self.at(bases, at_upper)
        room = PIVOT * np.abs(x).max(axis=1, keepdims=True)
        is_feasible = ((x >= self.lower - room) & (x <= self.upper + room)).all(axis=1)
        if not is_feasible.any():
            return None
        bases, at_upper, inverses, x = (part[is_feasible] for part in (bases, at_upper, inverses, x))
        used, best = np.unique((self.costs @ x.T).argmin(axis=1), return_inverse=True)
        bases, at_upper, x = (part[used][best] for part in (bases, at_upper, x))
        tableaus = (inverses[used] @ self.M)[best]
        each = np.arange(len(best))
        limit = PIVOT * np.abs(self.costs).max(axis=1)
        for _ in range(_MOST_PIVOTS):
            prices = self.costs[each] - (self.costs[each[:, None], bases[each]][:, None] @ tableaus)[:, 0]
            gain = np.where(at_upper[each], prices, -prices)
            np.put_along_axis(gain, bases[each], 0.0, axis=1)
            # The steepest edge instead of the largest price: a third fewer pivots.
            length = np.sqrt(1 + np.einsum("nij,nij->nj", tableaus, tableaus))
            steepness = np.where(gain > limit[each][:, None], gain, 0.0) / length
            enters = steepness.argmax(axis=1)
            goes_on = steepness[np.arange(len(each)), enters] > 0
            if not goes_on.all():
                each, enters, tableaus = each[goes_on], enters[goes_on], tableaus[goes_on]
            if not len(each):
                break
            has_end = self._pivot(tableaus, each, enters, bases, at_upper, x)
            each, tableaus = each[has_end], tableaus[has_end]  # what falls without end is not sharp
        bases.sort(axis=1)
        return bases, at_upper

    def _pivot(self, T: Array, each: Indices, enters: Indices, bases: Indices, at_upper: Mask, x: Array) -> Mask:
        """One column of each tableau enters, up to the first limit that it or another reaches; where there is one."""
        rows = np.arange(len(each))
        sign = np.where(at_upper[each, enters], -1.0, 1.0)
        column, basis = T[rows, :, enters], bases[each]
        fall = column * sign[:, None]
        values = x[each[:, None], basis]
        with np.errstate(divide="ignore", invalid="ignore"):
            down = np.where(fall > PIVOT, (values - self.lower[basis]) / fall, np.inf)
            up = np.where(fall < -PIVOT, (values - self.upper[basis]) / fall, np.inf)
        steps = np.maximum(np.minimum(down, up), 0.0)
        leaves = steps.argmin(axis=1)
        step, own = steps[rows, leaves], (self.upper - self.lower)[enters]
        has_end, flips = np.isfinite(np.minimum(step, own)), own <= step
        step = np.where(has_end, np.minimum(step, own), 0.0)
        x[each[:, None], basis] = values - step[:, None] * fall
        x[each, enters] += sign * step
        at_upper[each[flips & has_end], enters[flips & has_end]] ^= True
        g = np.flatnonzero(~flips & has_end)
        leaves, enters, column = leaves[g], enters[g], column[g]
        row = T[g, leaves] / column[np.arange(len(g)), leaves][:, None]
        column[np.arange(len(g)), leaves] = 0.0
        change = column[:, :, None] * row[:, None, :]
        if len(g) == len(T):  # without a copy of all tableaus, which would take as long as the rest
            T -= change
        else:
            T[g] -= change
        T[g, leaves] = row
        out = basis[g, leaves]
        at_upper[each[g], out] = fall[g, leaves] < 0
        at_upper[each[g], enters] = False
        bases[each[g], leaves] = enters
        return has_end


class _Optimum:
    """Columns and prices of the equations at given bases, and where both are unique."""

    def __init__(self, program: _Program, bases: Indices, at_upper: Mask) -> None:
        self.bases, self.at_upper = bases, at_upper
        each = np.arange(len(bases))[:, None]
        inverses, self.x = program.at(bases, at_upper)
        costs, M = program.costs, program.M
        self.prices = (costs[each, bases][:, None] @ inverses)[:, 0]
        dearer = costs - self.prices @ M
        missed = np.abs(dearer[each, bases]).max(axis=1), np.abs(self.x @ M.T - program.right).max(axis=1)
        x, size = np.abs(self.x).max(axis=1), np.abs(costs).max(axis=1)
        dearer = np.where(at_upper, -dearer, dearer)
        dearer[:, np.isinf(program.lower) & np.isinf(program.upper)] = (
            0.0  # without limits nothing holds them where they are
        )
        dearer[each, bases] = np.inf
        inside = np.minimum(self.x - program.lower, program.upper - self.x)[each, bases]
        self.is_sharp = (
            (dearer > SOLVED * size[:, None]).all(axis=1)
            & (inside > SOLVED * x[:, None]).all(axis=1)
            & (missed[0] <= _RESIDUAL * size)
            & (missed[1] <= _RESIDUAL * x)
        )
