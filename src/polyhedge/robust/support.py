"""Linear functions over a conic set: values, maximisers and the multipliers that prove them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array
from polyhedge.sets import Shape
from polyhedge.solvers.conic import solve_conic
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicForm, ConicProgram, Solution, SolverError, Status


@dataclass(frozen=True)
class SupportCertificate:
    """For each direction v: max v'e, a maximiser, and multipliers with G'y = (v, 0), g'y = value.

    `lifted` are the maximisers with their auxiliary coordinates, `points` the maximisers alone.
    """

    values: Array
    lifted: Array
    multipliers: Array
    n_outcomes: int

    @property
    def points(self) -> Array:
        """The maximisers e (n, d)."""
        return self.lifted[:, : self.n_outcomes]


def form_at(shape: Shape, radius: float, center: Array, support_rows: tuple[Array, Array]) -> ConicForm:
    """The residual set at a radius, cut by the known support of the outcome around one prediction."""
    return cut_form(shape.conic_form(radius), center, support_rows)


def cut_form(form: ConicForm, center: Array, support_rows: tuple[Array, Array]) -> ConicForm:
    """The residual set cut by {e : A (center + e) <= h}."""
    A, h = support_rows
    if not len(A):
        return form
    n_aux = form.G.shape[1] - A.shape[1]
    rows = sp.hstack([sp.csr_array(A), sp.csr_array((len(A), n_aux))], format="csr")
    return ConicForm(
        G=sp.vstack([form.G, rows], format="csr"),
        g=np.concatenate([form.g, h - A @ center]),
        cones=(*form.cones, Cone("nonneg", len(A))),
    )


def maximise(form: ConicForm, directions: Array) -> SupportCertificate:
    """Maximise every row of `directions` over the set; inf where unbounded, -inf where it is empty."""
    return Maximiser(form)(directions)


class Maximiser:
    """Maximise linear functions over one set, as often as asked for; each linear program starts from the last basis."""

    def __init__(self, form: ConicForm) -> None:
        self.program = ConicProgram(c=np.zeros(form.G.shape[1]), A=form.G, b=form.g, cones=form.cones)
        self.warm = LinearSolver(self.program) if self.program.is_linear else None

    def __call__(self, directions: Array) -> SupportCertificate:
        """See `maximise`."""
        n, d = directions.shape
        rows, columns = self.program.A.shape
        values, lifted, multipliers = np.empty(n), np.full((n, columns), np.nan), np.full((n, rows), np.nan)
        for i, direction in enumerate(directions):
            solution = self._solve(direction)
            values[i] = {Status.UNBOUNDED: np.inf, Status.INFEASIBLE: -np.inf}.get(solution.status, -solution.value)
            if solution.status in (Status.FAILED, Status.STOPPED_EARLY):  # too low a value would be no bound
                raise SolverError(f"The worst case along {direction.tolist()} could not be found: {solution.detail}.")
            lifted[i], multipliers[i] = solution.x, solution.y
        return SupportCertificate(values, lifted, multipliers, d)

    def _solve(self, direction: Array) -> Solution:
        if self.warm is None:
            padded = np.concatenate([-direction, np.zeros(len(self.program.c) - len(direction))])
            return solve_conic(replace(self.program, c=padded))
        self.warm.change_costs(np.arange(len(direction)), -direction)
        return self.warm.solve()


def is_empty(form: ConicForm) -> bool:
    """Whether no residual satisfies the set's constraints."""
    d = form.G.shape[1]
    program = ConicProgram(c=np.zeros(d), A=form.G, b=form.g, cones=form.cones)
    solution = LinearSolver(program).solve() if program.is_linear else solve_conic(program)
    return solution.status is Status.INFEASIBLE


def membership(e: cp.Expression, form: ConicForm) -> list[cp.Constraint]:
    """CVXPY constraints that put e into the set."""
    n_aux = form.G.shape[1] - e.size
    y = cp.hstack([e, cp.Variable(n_aux)]) if n_aux else e
    slack, constraints, start = form.g - form.G @ y, [], 0
    for cone in form.cones:
        block = slack[start : start + cone.n_rows]
        start += cone.n_rows
        if cone.kind == "soc":
            constraints.append(cp.SOC(block[0], block[1:]))
        else:
            constraints.append(block == 0 if cone.kind == "zero" else block >= 0)
    return constraints
