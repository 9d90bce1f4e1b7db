r"""Both stages of a problem with recourse in one program, over a finite list of outcomes.

$$\min_{z \in Z,\ y_s}\ g_0(z) + \rho_s\,[\,g_1(z, u_s) + q^\top y_s\,] \quad\text{s.t.}\quad
W y_s + s_s = h(u_s) - T(u_s)\,z,\ s_s \in K,$$

with the mean for $\rho$ (the sample average), or the maximum (the master of column-and-constraint generation). With one
outcome it is the decision that knows the outcome.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyhedge._support.tolerances import FEASIBLE
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.problems import DecisionProblem
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicForm, ConicProgram, Scaling, Solution, Status, row_kinds
from polyhedge.solvers.solve import solve


class BothStages:
    """The programs of a problem with recourse whose parameters have values."""

    def __init__(self, problem: DecisionProblem) -> None:
        assert problem.second_stage is not None
        self.problem, self.first, self.second = problem, problem.first_stage, problem.second_stage
        self.z = self.first.feasible.z_columns

    def program(self, scenarios: Array, *, worst: bool = False) -> ConicProgram:
        """The program over outcomes (S, d): their mean cost, or the largest of their costs."""
        own, second, n = self.first.feasible.program, self.second, len(scenarios)
        joint, z = self.first.sum_of_maxima, self.z
        assert joint is not None
        n_first, n_later, n_groups = len(own.c), len(second.program.c), len(joint.groups)
        size = n_first + n * (n_later + n_groups) + worst
        share = np.full(n, 0.0 if worst else 1 / n)
        at = np.hstack([np.ones((n, 1)), scenarios])
        plain = (joint.base + second.constant) @ at.T  # (1 + p, n)
        c = np.zeros(size)
        c[:n_first] = own.c
        c[z] += plain[1:] @ share
        later = n_first + n_later * np.arange(n)[:, None] + np.arange(n_later)
        tops = n_first + n_later * n + n_groups * np.arange(n)[:, None] + np.arange(n_groups)
        c[later], c[tops] = share[:, None] * second.program.c, share[:, None]
        rows, right, cones = _Rows(), [own.b], list(own.cones)
        for s in range(n):
            sides = second.sides @ at[s]  # (m, 1 + p)
            rows.add([(z, -sides[:, 1:]), (later[s], second.program.A)], len(sides))
            right.append(sides[:, 0])
            cones += second.program.cones
            limits = [self._pieces(joint.groups[g] @ at[s], z, tops[s, g]) for g in range(n_groups)]
            limits += self._uncertain(scenarios[s])
            if worst:
                entries = np.concatenate([plain[1:, s], second.program.c, np.ones(n_groups), [-1.0]])
                columns = np.concatenate([z, later[s], tops[s], [size - 1]])
                limits.append(([(columns, entries[None])], np.array([-plain[0, s]])))
            for blocks, bound in limits:
                rows.add(blocks, len(bound))
                right.append(bound)
                cones.append(Cone("nonneg", len(bound)))
        if worst:
            c[-1] = 1.0
        top = sp.csr_array((own.A.data, own.A.indices, own.A.indptr), shape=(own.A.shape[0], size))
        integer = [own.integer, *(later[s][second.program.integer] for s in range(n))]
        return ConicProgram(
            c,
            sp.csr_array(sp.vstack([top, rows.matrix(size)])),
            np.concatenate(right),
            tuple(cones),
            self._curvature(size, later, share),
            own.offset + float(plain[0] @ share),
            np.concatenate(integer).astype(np.int64),
        )

    def _pieces(self, group: Array, z: Indices, top: int) -> tuple[list[tuple[Indices, Array]], Array]:
        return [(z, group[:, 1:]), (np.array([top]), -np.ones((len(group), 1)))], -group[:, 0]

    def _uncertain(self, outcome: Array) -> list[tuple[list[tuple[Indices, Array]], Array]]:
        """The uncertain constraints of the first stage at an outcome."""
        first, limits = self.first, []
        if not first.uncertain_rows:
            return []
        alone = first.row_parts(np.zeros(first.n_decisions))
        for pieces, part, column in zip(first.uncertain_rows, alone, first.feasible.epigraph_columns, strict=True):
            blocks = [(self.z, np.einsum("ldp,d->lp", pieces.Q, outcome) + pieces.p)]
            if column >= 0:
                blocks.append((np.array([column]), np.ones((len(pieces), 1))))
            limits.append((blocks, -(pieces.q @ outcome + pieces.c) - (0.0 if column >= 0 else part)))
        return limits

    def _curvature(self, size: int, later: Indices, share: Array) -> sp.csr_array | None:
        own, second = self.first.feasible.program.P, self.second.program.P
        if own is None and second is None:
            return None
        if second is not None and not share.any():
            raise ValueError(
                'The worst case of a quadratic second stage is out of reach for guarantee="outcome". Use '
                'guarantee="cost", or write the square as a maximum of pieces.'
            )
        P = sp.lil_array((size, size))
        if own is not None:
            P[: own.shape[0], : own.shape[1]] = own
        if second is not None:
            for columns, weight in zip(later, share, strict=True):
                P[np.ix_(columns, columns)] = weight * second.toarray()
        return sp.csr_array(P)

    def solve(self, scenarios: Array, *, worst: bool = False, reach: float | None = None) -> tuple[Solution, Array]:
        """The solution over outcomes (S, d) and its first decision (p,); `reach` bounds the decision's entries."""
        program, z = self.program(scenarios, worst=worst), self.z
        if reach is not None:
            limits = reach * Scaling.of(program).columns[z]
            pick = sp.csr_array((np.ones(len(z)), (np.arange(len(z)), z)), shape=(len(z), len(program.c)))
            program = replace(
                program,
                A=sp.csr_array(sp.vstack([program.A, pick, -pick])),
                b=np.concatenate([program.b, limits, limits]),
                cones=(*program.cones, Cone("nonneg", 2 * len(z))),
            )
        solution = solve(program)
        return solution, solution.x[z]

    def knowing(self, outcomes: Array) -> tuple[Array, Array, Mask]:
        """Best first decisions (N, p) for known outcomes, their total costs (N,), and where they are proven best."""
        n = len(outcomes)
        z, costs = np.full((n, self.problem.n_decisions), np.nan), np.full(n, np.nan)
        is_best, solver = np.zeros(n, dtype=bool), None
        for i in range(n):
            program = self.program(outcomes[[i]])
            if program.is_linear and not len(program.integer):
                if solver is None or not _is_same(solver.program.A, program.A):
                    solver = LinearSolver(program, varying_rows=np.arange(len(program.b)))
                solver.change_costs(np.arange(len(program.c)), program.c)
                solver.change_rhs(np.arange(len(program.b)), program.b)
                solution, offset = solver.solve_cold(), program.offset - solver.program.offset
            else:
                solution, offset = solve(program), 0.0
            if solution.status.has_solution:
                z[i], costs[i] = solution.x[self.z], solution.value + offset
            is_best[i] = solution.status is Status.OPTIMAL
        return z, costs, is_best

    def level(self, z: Array, bound: float, W: Array, h: Array) -> ConicForm:
        """The outcomes u with W u <= h at which a decision costs at most a bound, with y as auxiliary."""
        second, joint, d = self.second, self.first.sum_of_maxima, self.problem.n_outcomes
        if second.program.P is not None or len(second.program.integer):
            raise ValueError(
                "With integers or squares in the second stage, a region tells by contains which outcomes it holds, not "
                'how far it reaches. Use guarantee="outcome" for a set of outcomes.'
            )
        assert joint is not None
        one, n, n_groups = np.append(1.0, z), len(second.program.c), len(joint.groups)
        outcome, later, tops = np.arange(d), d + np.arange(n), d + n + np.arange(n_groups)
        alone = float(self.first.evaluate(z[None], np.zeros((1, d)))[0] - joint.evaluate(z[None], np.zeros((1, d)))[0])
        plain = one @ (joint.base + second.constant)
        sides = np.einsum("i,rij->rj", one, second.sides)
        rows, right = _Rows(), [sides[:, 0]]
        rows.add([(outcome, -sides[:, 1:]), (later, second.program.A)], len(sides))
        for group, top in zip(joint.groups, tops, strict=True):
            lines = np.einsum("i,lij->lj", one, group)
            rows.add([(outcome, lines[:, 1:]), (np.array([top]), -np.ones((len(lines), 1)))], len(lines))
            right.append(-lines[:, 0])
        cost = np.concatenate([plain[1:], second.program.c, np.ones(n_groups)])
        rows.add([(np.concatenate([outcome, later, tops]), cost[None])], 1)
        rows.add([(outcome, W)], len(h))
        right += [np.array([bound - alone - plain[0]]), h]
        more = sum(len(each) for each in right[1:])
        cones = (*second.program.cones, Cone("nonneg", more))
        return ConicForm(rows.matrix(d + n + n_groups), np.concatenate(right), cones)

    def worst_within(self, z: Array, form: ConicForm, center: Array) -> Solution:
        r"""The program of the outcome center + e, e in a conic set, that costs a decision most, solved.

        The second stage is its optimality conditions: y and multipliers are feasible, and of each limit either the
        slack or the multiplier is 0, by a binary variable. Both are bounded by linear programs first.
        """
        second, joint, d = self.second, self.first.sum_of_maxima, self.problem.n_outcomes
        if not second.is_linear or joint is None:
            raise ValueError(_OUT_OF_REACH.format("integers or squares in the second stage"))
        one, W, c = np.append(1.0, z), second.program.A, second.program.c
        sides = np.einsum("i,rij->rj", one, second.sides)
        heights, slopes = sides[:, 0] + sides[:, 1:] @ center, sides[:, 1:]
        (m, n), n_set = W.shape, form.G.shape[1]
        limits = np.flatnonzero(row_kinds(second.program.cones) == "nonneg")
        lines = [np.einsum("i,lij->lj", one, group) for group in joint.groups]
        n_lines = sum(len(each) for each in lines)
        # Columns: e with the set's own, y, multipliers, a binary for each limit, heights of maxima, their choices.
        ends = np.cumsum([0, n_set, n, m, len(limits), len(lines), n_lines])
        e, y, dual, switch, top, choice = (np.arange(a, b) for a, b in pairwise(ends.tolist()))
        rows, right, cones = _Rows(), list[Array](), list[Cone]()

        def add(blocks: list[tuple[Indices, Any]], bound: Array, kind: str) -> None:
            rows.add(blocks, len(bound))
            right.append(bound)
            cones.append(Cone(kind, len(bound)))

        rows.add([(e, form.G)], len(form.g))
        right.append(form.g)
        cones += form.cones
        start = 0
        for cone in second.program.cones:
            part = slice(start, start + cone.size)
            add([(e[:d], -slopes[part]), (y, W[part])], heights[part], cone.kind)
            start += cone.size
        add([(dual, sp.csr_array(W.T))], -c, "zero")
        identity = sp.eye_array(len(limits))
        add([(dual[limits], -identity)], np.zeros(len(limits)), "nonneg")
        base = ConicProgram(np.zeros(ends[-1]), rows.matrix(int(ends[-1])), np.concatenate(right), tuple(cones))
        # The tightest sides over the set: the cost at them is the highest of all, and limits y at an optimum.
        least = np.array(
            [heights[i] - (_highest(base, e[:d], -slopes[i]) if slopes[i].any() else 0.0) for i in range(m)]
        )
        if slopes[np.setdiff1d(np.arange(m), limits)].any():
            raise ValueError(_OUT_OF_REACH.format("an equation that moves with the outcome"))
        tightest, lowest = solve(replace(second.program, b=least)), -_highest(base, y, -c)
        if tightest.status is not Status.OPTIMAL:
            raise ValueError(_OUT_OF_REACH.format("a second stage that is not feasible for all limits at their lowest"))
        spare = FEASIBLE * (1 + abs(lowest) + abs(tightest.value))
        known = np.zeros((2, int(ends[-1])))
        known[0, y], known[1, dual] = c, least
        base = replace(
            base,
            A=sp.csr_array(sp.vstack([base.A, sp.csr_array(known)])),
            b=np.concatenate([base.b, [tightest.value + spare, spare - lowest]]),
            cones=(*base.cones, Cone("nonneg", 2)),
        )
        both, dense = np.concatenate([e[:d], y]), W.toarray()
        widest = np.array([_highest(base, both, np.append(slopes[i], -dense[i])) + heights[i] for i in limits])
        # A limit that is met with equality everywhere needs no switch, however high its price.
        open_ = np.flatnonzero(widest > FEASIBLE * (1 + np.abs(heights[limits])))
        largest = np.array([max(_highest(base, dual[[i]]), 0.0) for i in limits[open_]])
        own, pick = limits[open_], sp.eye_array(len(open_))
        # A multiplier is positive only if the switch is on, a slack only if it is off.
        add([(dual[own], pick), (switch[open_], -sp.diags_array(largest))], np.zeros(len(own)), "nonneg")
        add(
            [(e[:d], slopes[own]), (y, -W[own]), (switch[open_], sp.diags_array(widest[open_]))],
            widest[open_] - heights[own],
            "nonneg",
        )
        # The height of a maximum is that of the piece that is chosen.
        first = 0
        for k, each in enumerate(lines):
            own, at = choice[first : first + len(each)], each[:, 0] + each[:, 1:] @ center
            first += len(each)
            for line, height, chosen in zip(each, at, own, strict=True):
                over = max(
                    _highest(base, e[:d], other[1:] - line[1:]) + high - height
                    for other, high in zip(each, at, strict=True)
                )
                blocks = [
                    (e[:d], -line[None, 1:]),
                    (top[[k]], np.ones((1, 1))),
                    (np.array([chosen]), np.full((1, 1), over)),
                ]
                add(blocks, np.array([height + over]), "nonneg")
            add([(own, np.ones((1, len(own))))], np.ones(1), "zero")
        whole = np.concatenate([switch, choice])
        box = sp.eye_array(len(whole))
        add([(whole, box)], np.ones(len(whole)), "nonneg")
        add([(whole, -box)], np.zeros(len(whole)), "nonneg")
        plain = one @ (joint.base + second.constant)
        gain = np.zeros(ends[-1])
        gain[e[:d]], gain[y], gain[top] = plain[1:], c, 1.0
        worst = ConicProgram(-gain, rows.matrix(int(ends[-1])), np.concatenate(right), tuple(cones), integer=whole)
        return solve(worst, max_nodes=_MOST_NODES)


_MOST_NODES = 20000
"""Nodes of a search for the worst outcome, some seconds: one that stops before its end has a gap, which counts."""
_OUT_OF_REACH = (
    'With {}, the worst case over this set is out of reach for guarantee="outcome". Use guarantee="cost", which needs '
    "no worst case."
)


def _highest(program: ConicProgram, columns: Any, slopes: Any = 1.0) -> float:
    """The highest value of a linear function over a program; a ValueError where there is none."""
    c = np.zeros(len(program.c))
    c[columns] = -np.asarray(slopes)
    solution = solve(replace(program, c=c))
    if solution.status is not Status.OPTIMAL:
        raise ValueError(_OUT_OF_REACH.format("a second stage that may be infeasible, or has prices without limit"))
    return -solution.value + solution.gap


class _Rows:
    """Rows of a sparse matrix, block by block."""

    def __init__(self) -> None:
        self.data, self.places, self.n = [np.zeros(0)], [np.zeros((2, 0), dtype=np.int64)], 0

    def add(self, blocks: list[tuple[Indices, Array | sp.csr_array]], n_rows: int) -> None:
        """Rows whose entries in these columns are these matrices."""
        for columns, block in blocks:
            coo = sp.coo_array(block)
            self.data.append(coo.data)
            self.places.append(np.stack([self.n + coo.coords[0], columns[coo.coords[1]]]))
        self.n += n_rows

    def matrix(self, n_columns: int) -> sp.csr_array:
        """The matrix."""
        row, column = np.concatenate(self.places, axis=1)
        return sp.csr_array((np.concatenate(self.data), (row, column)), shape=(self.n, n_columns))


def _is_same(one: sp.csr_array, other: sp.csr_array) -> bool:
    return one.nnz == other.nnz and np.array_equal(one.indices, other.indices) and np.array_equal(one.data, other.data)
