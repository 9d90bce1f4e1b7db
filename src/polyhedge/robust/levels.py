r"""The program that is left where every piece of a cost has a fixed direction: only levels move.

$$\min_{z \in Z} g_0(z) + \max_l \{y_l + p_l^\top z + c_l\}$$
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from polyhedge.problems import DecisionProblem
from polyhedge.robust.engine.parametric import ParametricProgram
from polyhedge.solvers.program import Cone, ConicProgram


def level_program(problem: DecisionProblem) -> ParametricProgram:
    """The program with the levels y (L,) as its context; its last L rows are the pieces."""
    pieces, program = problem.structure.pieces, problem.feasible.program
    n_columns, n_rows = len(program.c) + 1, len(program.b)
    rows = np.zeros((len(pieces), n_columns))
    rows[:, problem.feasible.z_columns] = pieces.p
    rows[:, -1] = -1.0
    padded = sp.hstack([program.A, sp.csr_array((n_rows, 1))], format="csr")
    at_zero = ConicProgram(
        c=np.append(program.c, 1.0),
        A=sp.vstack([padded, sp.csr_array(rows)], format="csr"),
        b=np.concatenate([program.b, -pieces.c]),
        cones=(*program.cones, Cone("nonneg", len(pieces))),
        P=None if program.P is None else sp.block_diag([program.P, sp.csr_array((1, 1))], format="csr"),
        offset=program.offset,
        integer=program.integer,
    )
    slope = np.vstack([np.zeros((n_rows, len(pieces))), -np.eye(len(pieces))])
    return ParametricProgram(
        at_zero,
        cost_slope=sp.csr_array((n_columns, len(pieces))),
        entry_slope=sp.csr_array((at_zero.A.nnz, len(pieces))),
        rhs_slope=sp.csr_array(slope),
        offset_slope=np.zeros(len(pieces)),
    )
