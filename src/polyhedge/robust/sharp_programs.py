r"""Robust costs of sets that change little from one to the next, for a cost that is affine in outcome and decision.

At a prediction f the robust cost over $\{e : W e \le q\}$ is the linear program

$$\min_{z \in Z, \lambda \ge 0} c^\top z + (Q z + q_0)^\top f + q^\top\lambda, \qquad W^\top\lambda = Q z + q_0 ,$$

whose basis has a column for each equation. A learner moves facets a little in every step, so that bases which served a
step before are feasible still. Every context goes on from the best of them by the primal simplex method, all
contexts together. What is found is taken where it is *sharp*: every basic column clearly inside its limits, every
other one clearly dearer. Decision and worst residual are then the only ones, and do not depend on what was asked
before. The contexts that are left are for a solver.

Decisions and their rows are multiplied by powers of two as solvers' programs are (`solvers.scaling`): which entry an
inverse is begun with depends on sizes, and with it the last digit of all that is found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.problems import DecisionProblem
from polyhedge.solvers.program import Cone, ConicProgram, row_kinds
from polyhedge.solvers.scaling import balance

_CLEARLY = 1e-7
"""Share of its size by which a slack or a price must exceed zero: well above roundings and tolerances of solvers."""
_MISSES = 1e-11
"""Share of their size by which equations may be missed: columns that are nearly dependent lose more digits."""
_ZERO = 1e-9
"""What is zero to a pivot, in units of the columns, which have entries of about 1."""
_MAX_PIVOTS = 60
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
        rows_by, self.units, self.unit = _units(A, b, is_equation, costs, pieces.Q[0], self.q0)
        A, b = rows_by[:, None] * A * self.units, rows_by * b
        self.costs, self.Q = self.units * costs, pieces.Q[0] * self.units / self.unit
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
        self.right = np.concatenate([b[rows], -self.q0 / self.unit])
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
            seen = None if ends is None else _SeenBases(program, *ends)
        except np.linalg.LinAlgError:
            seen = None
        if seen is None:
            self._bases = None
            return unknown
        self._keep(seen.bases[seen.is_sharp], seen.at_upper[seen.is_sharp])
        weights, points = self.unit * seen.x[:, len(self.lower) :], -seen.prices[:, self.n_rows :] / self.unit
        values = (program.costs * seen.x).sum(axis=1) + self.offset + centers @ self.q0
        return SharpCosts(values, weights, points, seen.is_sharp)

    def remember(self, z: Array, multipliers: Array) -> bool:
        """Take over the basis of a solver's answer, where it has one; whether it is the only one that is known."""
        z, multipliers = z / self.units, multipliers / self.unit
        x = np.concatenate([z, self.b_slack - self.A_slack @ z, multipliers])
        lower = np.concatenate([self.lower, np.zeros(len(multipliers))])
        upper = np.concatenate([self.upper, np.full(len(multipliers), np.inf)])
        room = _CLEARLY * np.abs(x).max()
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


def _units(A: Array, b: Array, is_equation: Mask, costs: Array, Q: Array, q0: Array) -> tuple[Array, Array, float]:
    """Powers of two for the rows and columns of Z, as of the program over a set of one facet for each outcome.

    In the problem's own units such facets lie at about 1, see `learners/own_units.py`. Their multipliers are as large
    as the decisions that they weigh, and have one unit: the third.
    """
    (m, p), d = A.shape, len(Q)
    order = np.argsort(~is_equation, kind="stable")
    whole = ConicProgram(
        c=np.concatenate([costs, np.ones(d)]),
        A=sp.csr_array(np.block([[Q, -np.eye(d)], [A[order], np.zeros((m, d))]])),
        b=np.concatenate([-q0, b[order]]),
        cones=(Cone("zero", d + int(is_equation.sum())), Cone("nonneg", int((~is_equation).sum()))),
    )
    rows, columns, _ = balance(whole)
    rows_of_Z = np.empty(m)
    rows_of_Z[order] = rows[d:]
    return rows_of_Z, columns[:p], float(columns[p:].max())


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
        self.costs[:, : len(known.costs)] = known.costs + known.unit * (centers @ known.Q)
        self.costs[:, n:] = known.unit * q

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
        room = _ZERO * np.abs(x).max(axis=1, keepdims=True)
        is_feasible = ((x >= self.lower - room) & (x <= self.upper + room)).all(axis=1)
        if not is_feasible.any():
            return None
        bases, at_upper, inverses, x = (part[is_feasible] for part in (bases, at_upper, inverses, x))
        used, best = np.unique((self.costs @ x.T).argmin(axis=1), return_inverse=True)
        bases, at_upper, x = (part[used][best] for part in (bases, at_upper, x))
        tableaus = (inverses[used] @ self.M)[best]
        each = np.arange(len(best))
        limit = _ZERO * np.abs(self.costs).max(axis=1)
        for _ in range(_MAX_PIVOTS):
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
        bases.sort(axis=1)  # so that the same columns give the same digits
        return bases, at_upper

    def _pivot(self, T: Array, each: Indices, enters: Indices, bases: Indices, at_upper: Mask, x: Array) -> Mask:
        """One column of each tableau enters, up to the first limit that it or another reaches; where there is one."""
        rows = np.arange(len(each))
        sign = np.where(at_upper[each, enters], -1.0, 1.0)
        column, basis = T[rows, :, enters], bases[each]
        fall = column * sign[:, None]
        values = x[each[:, None], basis]
        with np.errstate(divide="ignore", invalid="ignore"):
            down = np.where(fall > _ZERO, (values - self.lower[basis]) / fall, np.inf)
            up = np.where(fall < -_ZERO, (values - self.upper[basis]) / fall, np.inf)
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


class _SeenBases:
    """Bases seen anew: columns, prices of the equations, and where both are the only ones."""

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
            (dearer > _CLEARLY * size[:, None]).all(axis=1)
            & (inside > _CLEARLY * x[:, None]).all(axis=1)
            & (missed[0] <= _MISSES * size)
            & (missed[1] <= _MISSES * x)
        )
