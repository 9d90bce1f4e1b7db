r"""The exact robust counterpart of a problem with pieces, by duality.

For a set $\{e : \exists y,\ g - G[e; y] \in K\}$ the support function is
$h(v) = \min\{g^\top\lambda : G^\top\lambda = (v, 0),\ \lambda \in K^*\}$, so

$$\min_{z \in Z} g_0(z) + \max_l \{h(Q_l z + q_l) + (Q_l z + q_l)^\top f + p_l^\top z + c_l\}$$

is one conic program in (z, t, lambda) whose numbers are affine in the prediction f (Corollary 1 of the
paper at a fixed set, extended to maxima of pieces, uncertain constraints and conic sets).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array, Indices
from polyhedge.problems import DecisionProblem, Pieces
from polyhedge.problems.feasible_set import FeasibleProgram
from polyhedge.problems.lifted import Lifted
from polyhedge.robust.engine.parametric import ContextSolver, ParametricProgram, Uniqueness
from polyhedge.robust.support import SupportCertificate, form_at, maximise
from polyhedge.sets import Shape
from polyhedge.solvers.program import Cone, ConicProgram, SolverError, Status


@dataclass(frozen=True)
class _Block:
    """One piece of one robust row: where its multipliers stand, or what its support value is."""

    row: int
    multiplier_columns: Indices
    equation_rows: Indices
    inequality_row: int
    certificate: SupportCertificate | None


@dataclass(frozen=True)
class CounterpartSolution:
    """A decision at one prediction with its dual evidence, one entry for each piece of each robust row.

    `weights` are the multipliers pi of the pieces (they sum to 1 over the cost), `facet_multipliers`
    the lambda of each piece, `weighted_points` pi times the worst-case residual of each piece,
    `weighted_auxiliary` pi times its auxiliary coordinates in the set's conic form. `size` is that of the
    costs at stake, see `Solution`. `may_tie` says that other decisions may have the same value.
    """

    z: Array
    value: float
    status: Status
    gap: float
    detail: str
    weights: Array
    facet_multipliers: Array
    weighted_points: Array
    weighted_auxiliary: Array
    size: float
    may_tie: bool = False


class Counterpart:
    """min over z of max over the set, for one set and any number of predictions.

    Parameters
    ----------
    problem : a problem with a piece list, or what one with parameters was lifted to; contexts are then [f, parameters].
    shape, radius : the residual set.
    support_rows : A, h of the known support {u : A u <= h}, by default the problem's own.
    reference : a usual prediction, at which the scaling of all programs is set; by default the first that is solved.
    """

    def __init__(
        self,
        problem: DecisionProblem | Lifted,
        shape: Shape,
        radius: float,
        *,
        support_rows: tuple[Array, Array] | None = None,
        reference: Array | None = None,
    ) -> None:
        if problem.pieces is None:
            raise ValueError("This cost has no piece list; use column-and-constraint generation.")
        self.problem, self.pieces = problem, problem.pieces
        self.support_rows = problem.support_rows if support_rows is None else support_rows
        self.form = form_at(shape, radius, np.zeros(problem.n_outcomes), self.support_rows)
        self.n_support_rows = len(self.support_rows[0])
        self.blocks: list[_Block] = []
        self.parametric = self._build()
        self.unique = Uniqueness.of(self.parametric)
        self.solver = ContextSolver(
            self.parametric, None if reference is None else self.parametric.scaling_at(reference)
        )

    def _build(self) -> ParametricProgram:
        problem, feasible, cost = self.problem, self.problem.feasible, self.pieces
        # Parameters stand behind the outcomes: known with the prediction, and without uncertainty.
        assembly = _Assembly(feasible, cost.q.shape[1])
        z = feasible.z_columns
        self.has_level = len(cost) > 1
        level = assembly.add_columns(1, cost=1.0) if self.has_level else np.zeros(0, dtype=np.int64)
        self._add_robust_row(assembly, 0, cost, z, level, -1.0)
        for r, pieces in enumerate(problem.uncertain_rows):
            column = feasible.epigraph_columns[r]
            extra = np.array([column]) if column >= 0 else np.zeros(0, dtype=np.int64)
            self._add_robust_row(assembly, r + 1, pieces, z, extra, 1.0)
        return assembly.finish()

    def _add_robust_row(
        self, assembly: _Assembly, row: int, pieces: Pieces, z: Indices, extra: Indices, extra_sign: float
    ) -> None:
        certificate = self._fixed_supports(pieces)
        for piece in range(len(pieces)):
            constant, columns, equations = 0.0, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
            if certificate is None:
                columns, equations = self._add_multipliers(assembly, pieces, piece, z)
            else:
                constant = float(certificate.values[piece])
            # h(v) + v'f + p'z + c with v = Q z + q, as the objective or as a row.
            Q, q, p, c = pieces.Q[piece], pieces.q[piece], pieces.p[piece], float(pieces.c[piece]) + constant
            A = self.support_rows[0]
            fixed, cut = np.split(columns, [len(columns) - len(A)]) if len(columns) else (columns, columns)
            g, cut_slope = self.form.g[: len(columns)], np.zeros((len(cut), len(q)))
            cut_slope[:, : A.shape[1]] = -A if len(columns) else 0.0
            if row == 0 and not self.has_level:
                assembly.add_costs(z, p, Q.T)
                assembly.add_costs(columns, g, None)
                assembly.add_costs(cut, np.zeros(len(cut)), cut_slope)
                assembly.offset += c
                assembly.offset_slope = assembly.offset_slope + q
                inequality = -1
            else:
                line = assembly.add_rows("nonneg", np.array([-c]), rhs_slope=-q[None])
                moving = Q.any(axis=0) | (p != 0)
                assembly.add_entries(np.repeat(line, moving.sum()), z[moving], p[moving], Q.T[moving])
                assembly.add_entries(np.repeat(line, len(fixed)), fixed, g[: len(fixed)])
                assembly.add_entries(np.repeat(line, len(cut)), cut, g[len(fixed) :], cut_slope)
                assembly.add_entries(np.repeat(line, len(extra)), extra, np.full(len(extra), extra_sign))
                inequality = int(line[0])
            one = None
            if certificate is not None:
                values, lifted, y = certificate.values, certificate.lifted, certificate.multipliers
                one = SupportCertificate(values[[piece]], lifted[[piece]], y[[piece]], certificate.n_outcomes)
            self.blocks.append(_Block(row, columns, equations, inequality, one))

    def _fixed_supports(self, pieces: Pieces) -> SupportCertificate | None:
        """Support values that depend on neither decision nor prediction are numbers: solve them once."""
        d = self.problem.n_outcomes
        if pieces.Q[:, :d].any() or self.n_support_rows:
            return None
        try:
            certificate = maximise(self.form, pieces.q[:, :d])
        except SolverError:  # as multipliers they are part of a program that says how it ended
            return None
        return certificate if np.isfinite(certificate.values).all() else None

    def _add_multipliers(self, assembly: _Assembly, pieces: Pieces, piece: int, z: Indices) -> tuple[Indices, Indices]:
        """Lambda in K* with G'lambda - Q z = (q, 0)."""
        G, d = self.form.G, self.problem.n_outcomes
        columns = assembly.add_columns(G.shape[0])
        assembly.add_dual_cone(columns, self.form.cones)
        padding = np.zeros(G.shape[1] - d)
        equations = assembly.add_rows("zero", np.concatenate([pieces.q[piece, :d], padding]))
        transposed = G.T.tocoo()
        assembly.add_entries(equations[transposed.row], columns[transposed.col], transposed.data)
        i, j = np.nonzero(pieces.Q[piece, :d])
        assembly.add_entries(equations[i], z[j], -pieces.Q[piece][i, j])
        return columns, equations

    def solve(self, center: Array, solver: ContextSolver | None = None) -> CounterpartSolution:
        """The robust decision at one prediction, by the counterpart's own solver or by another of its kind."""
        solver = self.solver if solver is None else solver
        solution = solver.solve(center)
        n_pieces, n_rows, d = len(self.blocks), len(self.form.g), self.problem.n_outcomes
        weights, multipliers = np.zeros(n_pieces), np.zeros((n_pieces, n_rows))
        lifted = np.zeros((n_pieces, self.form.G.shape[1]))
        for k, block in enumerate(self.blocks):
            weights[k] = 1.0 if block.inequality_row < 0 else solution.y[block.inequality_row]
            if block.certificate is not None:
                multipliers[k] = block.certificate.multipliers[0]
                lifted[k] = weights[k] * block.certificate.lifted[0]
            else:
                multipliers[k] = solution.x[block.multiplier_columns]
                lifted[k] = -solution.y[block.equation_rows]
        z = solution.x[self.problem.feasible.z_columns]
        return CounterpartSolution(
            z=z,
            value=solution.value,
            status=solution.status,
            gap=solution.gap,
            size=solution.size,
            detail=solution.detail,
            weights=weights,
            facet_multipliers=multipliers,
            weighted_points=lifted[:, :d],
            weighted_auxiliary=lifted[:, d:],
            may_tie=not bool(self.unique.is_proven(solution.y[None], solver.row_units)[0]),
        )

    def worst_residual(self, solution: CounterpartSolution) -> Array:
        """The residual at which the heaviest piece of the cost attains the bound (NaN without duals)."""
        cost_blocks = [k for k, block in enumerate(self.blocks) if block.row == 0]
        weights = solution.weights[cost_blocks]
        if not np.isfinite(weights).all() or weights.max() <= 0:
            return np.full(self.problem.n_outcomes, np.nan)
        k = cost_blocks[int(np.argmax(weights))]
        return solution.weighted_points[k] / solution.weights[k]


class _Assembly:
    """Grow a parametric program by columns, rows and entries."""

    def __init__(self, feasible: FeasibleProgram, n_outcomes: int) -> None:
        program = feasible.program
        self.base, self.d = program, n_outcomes
        self.c, self.offset = [program.c], program.offset
        self.n_columns = len(program.c)
        self.b, self.cones = [program.b], list(program.cones)
        self.n_rows = len(program.b)
        coo = program.A.tocoo()
        self.rows, self.columns, self.values = [coo.row], [coo.col], [coo.data]
        self.slopes = [np.zeros((coo.nnz, n_outcomes))]
        self.cost_rows: list[tuple[Indices, Array, Array]] = []
        self.rhs_slopes: list[tuple[Indices, Array]] = []
        self.offset_slope = np.zeros(n_outcomes)
        known = feasible.slopes
        if known is None:
            return
        # What moves the program of Z: parameters, which are the last of the outcomes.
        last = slice(self.d - len(known.offset), self.d)
        costs, rhs = np.zeros((self.n_columns, self.d)), np.zeros((self.n_rows, self.d))
        self.slopes[0][:, last] = known.A.toarray()
        costs[:, last], rhs[:, last] = known.c.toarray(), known.b.toarray()
        self.cost_rows.append((np.arange(self.n_columns), np.zeros(self.n_columns), costs))
        self.rhs_slopes.append((np.arange(self.n_rows), rhs))
        self.offset_slope[last] = known.offset

    def add_columns(self, count: int, cost: float = 0.0) -> Indices:
        self.c.append(np.full(count, cost))
        self.n_columns += count
        return np.arange(self.n_columns - count, self.n_columns)

    def add_rows(self, kind: str, b: Array, rhs_slope: Array | None = None) -> Indices:
        self.b.append(b)
        self.cones.append(Cone(kind, len(b)))
        self.n_rows += len(b)
        rows = np.arange(self.n_rows - len(b), self.n_rows)
        if rhs_slope is not None:
            self.rhs_slopes.append((rows, rhs_slope))
        return rows

    def add_entries(self, rows: Indices, columns: Indices, values: Array, slopes: Array | None = None) -> None:
        self.rows.append(rows)
        self.columns.append(columns)
        self.values.append(values)
        self.slopes.append(np.zeros((len(values), self.d)) if slopes is None else slopes)

    def add_dual_cone(self, columns: Indices, cones: tuple[Cone, ...]) -> None:
        """Lambda in K*: free for equations, in the same cone otherwise (both kinds are self-dual)."""
        start = 0
        for cone in cones:
            block = columns[start : start + cone.n_rows]
            start += cone.n_rows
            if cone.kind != "zero":
                rows = self.add_rows(cone.kind, np.zeros(cone.n_rows))
                self.add_entries(rows, block, np.full(len(block), -1.0))

    def add_costs(self, columns: Indices, costs: Array, slopes: Array | None) -> None:
        self.cost_rows.append((columns, costs, np.zeros((len(costs), self.d)) if slopes is None else slopes))

    def finish(self) -> ParametricProgram:
        c, cost_slope = np.concatenate(self.c), np.zeros((self.n_columns, self.d))
        for columns, costs, slopes in self.cost_rows:
            c[columns] += costs
            cost_slope[columns] += slopes
        rhs_slope = np.zeros((self.n_rows, self.d))
        for rows, slopes in self.rhs_slopes:
            rhs_slope[rows] += slopes
        base, P = self.base, None
        if base.P is not None:
            coo = base.P.tocoo()
            P = sp.csr_array((coo.data, (coo.row, coo.col)), shape=(self.n_columns, self.n_columns))
        # The matrix and, aligned with its stored entries, their slopes in f.
        rows, columns = np.concatenate(self.rows), np.concatenate(self.columns)
        order = np.lexsort((columns, rows))
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=self.n_rows))])
        entries = np.concatenate(self.values)[order], columns[order], indptr
        A = sp.csr_array(entries, shape=(self.n_rows, self.n_columns))
        entry_slope = sp.csr_array(np.concatenate(self.slopes)[order])
        program = ConicProgram(
            c=c, A=A, b=np.concatenate(self.b), cones=tuple(self.cones), P=P, offset=self.offset, integer=base.integer
        )
        return ParametricProgram(
            program, sp.csr_array(cost_slope), entry_slope, sp.csr_array(rhs_slope), self.offset_slope
        )
