r"""Parts of the paper's mixed-integer models: rows of a program, big-M constants (Lemma 2), bounds of cost directions.

$$W\epsilon_j \le (r + M_j(1 - t_j))1 - b,\quad 1^\top t \ge c_n,\quad t \in \{0,1\}^n$$
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array, Indices
from polyhedge.calibration import conformal_radius
from polyhedge.learners.samples import Samples
from polyhedge.problems import DecisionProblem, Pieces
from polyhedge.solvers.program import Cone, ConicProgram
from polyhedge.solvers.solve import solve

Contexts = str | int | Sequence[int] | Indices | None
"""For which predictions decisions are planned: "mean", so many random ones, these rows, or all."""


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


def direction_bounds(problem: DecisionProblem, pieces: Pieces) -> tuple[Array, Array]:
    """Bounds (n_pieces, d) of the cost directions Q_l z + q_l over Z; infinite where a solver finds no end."""
    z, base = problem.feasible.z_columns, problem.feasible.program
    base = replace(base, c=np.zeros_like(base.c), P=None, offset=0.0)

    def highest(slope: Array) -> float:
        costs = np.zeros_like(base.c)
        costs[z] = -slope
        solution = solve(replace(base, c=costs))
        return solution.gap - solution.value if solution.status.has_solution else np.inf

    low, high = pieces.q.copy(), pieces.q.copy()
    # Costs with many pieces have few distinct slopes.
    slopes, which = np.unique(pieces.Q.reshape(-1, pieces.Q.shape[2]), axis=0, return_inverse=True)
    which = which.reshape(low.shape)
    for k in np.flatnonzero(slopes.any(axis=1)):
        low[which == k] -= highest(-slopes[k])
        high[which == k] += highest(slopes[k])
    return low, high


def bounded_directions(problem: DecisionProblem, pieces: Pieces, learner: str) -> tuple[Array, Array]:
    """As `direction_bounds`; an error where a direction has no bound."""
    low, high = direction_bounds(problem, pieces)
    if not np.isfinite([low, high]).all():
        raise ValueError(f"{learner} needs a bounded feasible set. Add bounds to the decision, or use Descent.")
    return low, high


def for_contexts(samples: Samples, contexts: Contexts, random_state: Any) -> tuple[Samples, str]:
    """The samples with the predictions that a model plans for, and a description of these."""
    conformal_radius(np.zeros(samples.n), samples.alpha)  # too few samples for alpha are an error here, not in a model
    centers, n = samples.centers, len(samples.centers)
    if contexts is None:
        return samples, f"all {n} contexts"
    if isinstance(contexts, str) and contexts == "mean":
        return replace(samples, centers=centers.mean(axis=0)[None]), "the mean prediction"
    if isinstance(contexts, (int, np.integer)):
        rows = np.sort(np.random.default_rng(random_state).choice(n, size=contexts, replace=False))
        return replace(samples, centers=centers[rows]), f"{contexts} random contexts"
    rows = np.asarray(contexts)
    return replace(samples, centers=centers[rows]), f"{len(rows)} given context(s)"


class ModelRows:
    """Collects columns and rows of a mixed-integer program; every row is an equation or `<=`.

    Other cones of embedded convex programs are kept apart.
    """

    def __init__(self) -> None:
        self.lower: list[float] = []
        self.upper: list[float] = []
        self.cost: list[float] = []
        self.integer: list[int] = []
        self.entries: list[tuple[int, int, float]] = []
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

    def add_cost(self, columns: Any, values: Any, constant: float) -> None:
        """Add a linear cost."""
        for i, v in zip(np.asarray(columns).tolist(), np.asarray(values, dtype=float).tolist(), strict=True):
            self.cost[i] += v
        self.offset += constant

    def arrays(self) -> dict[str, Any]:
        """Everything but the cones, as arguments of `conic`."""
        n = len(self.cost)
        rows, columns, values = (np.array(part) for part in zip(*self.entries, strict=True))
        P = None
        if self.quadratic:
            i, j, v = (np.array(part) for part in zip(*self.quadratic, strict=True))
            P = sp.csr_array((v, (i, j)), shape=(n, n))
        return {
            "c": np.array(self.cost),
            "A": sp.csr_array((values, (rows, columns)), shape=(len(self.row_upper), n)),
            "row_lower": np.array(self.row_lower),
            "row_upper": np.array(self.row_upper),
            "lower": np.array(self.lower),
            "upper": np.array(self.upper),
            "integer": np.array(self.integer, dtype=np.int64),
            "P": P,
            "offset": self.offset,
        }

    def program(self) -> ConicProgram:
        """The program with its cones."""
        linear = conic(**self.arrays())
        A, b = [linear.A], [linear.b]
        for x, block, rhs, _ in self.cones:
            entries = block.tocoo()
            A.append(sp.csr_array((entries.data, (entries.row, x[entries.col])), shape=(len(rhs), len(self.cost))))
            b.append(rhs)
        cones = (*linear.cones, *(cone for *_, cone in self.cones))
        return replace(linear, A=sp.vstack(A, format="csr"), b=np.concatenate(b), cones=cones)


def conic(
    c: Array, A: sp.csr_array, row_lower: Array, row_upper: Array, lower: Array, upper: Array, **rest: Any
) -> ConicProgram:
    """A program whose rows are equations or `<=`, with bounds of columns as rows; `rest` as in `ConicProgram`."""
    box = sp.eye_array(len(c), format="csr")
    equation, below, above = row_lower == row_upper, np.isfinite(lower), np.isfinite(upper)
    parts = [
        (A[equation], row_upper[equation], "zero"),
        (A[~equation], row_upper[~equation], "nonneg"),
        (box[above], upper[above], "nonneg"),
        (-box[below], -lower[below], "nonneg"),
    ]
    return ConicProgram(
        c=c,
        A=sp.vstack([part[0] for part in parts], format="csr"),
        b=np.concatenate([part[1] for part in parts]),
        cones=tuple(Cone(kind, len(b)) for _, b, kind in parts if len(b)),
        **rest,
    )
