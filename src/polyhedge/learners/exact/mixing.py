r"""Star inequalities of mixing sets and the master program over the residuals to drop.

Let level $\eta$ be at least $\Phi_l$ unless one of the residuals `members_l` is dropped ($d_j = 1$). Along a chain
with falling values $\Phi_1 \ge \Phi_2 \ge \dots \ge$ floor,

$$\eta \ge \Phi_1 - \sum_l (\Phi_l - \Phi_{l+1}) \sum_{j \in \text{members}_l} d_j$$

holds for every choice of drops, and is tight where single rows with a big M are not (Luedtke, Ahmed and
Nemhauser, 2010, for one residual a link).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from polyhedge._support.tolerances import OPTIMAL
from polyhedge._support.validation import Array, Indices
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicProgram, Solution


@dataclass(frozen=True)
class Cut:
    """levels[level] >= top - slopes @ d[members]."""

    level: int
    top: float
    members: Indices
    slopes: Array

    def value_at(self, drop: Array) -> float:
        """The bound on the level at a (fractional) choice of drops."""
        return float(self.top - self.slopes @ drop[self.members])


def star_inequality(
    level: int, ranked: Iterable[tuple[float, tuple[int, ...]]], drop: Array, floor: float
) -> Cut | None:
    """The tightest chain at the point `drop`, from (value, members) by falling value.

    A link helps only if its members are dropped less than all before it.
    """
    chain: list[tuple[float, tuple[int, ...]]] = []
    least = np.inf
    for value, members in ranked:
        share = float(drop[list(members)].sum())
        if value > floor and share < least - 1e-9 and share < 1 - 1e-9:
            chain.append((value, members))
            least = share
        if least <= 1e-9:
            break
    if not chain:
        return None
    slopes: dict[int, float] = {}
    for (value, members), after in zip(chain, [v for v, _ in chain[1:]] + [floor], strict=True):
        for j in members:
            slopes[j] = slopes.get(j, 0.0) + value - after
    return Cut(level, chain[0][0], np.array(list(slopes), dtype=np.int64), np.array(list(slopes.values())))


@dataclass(frozen=True)
class Tangent:
    """objective >= value + slopes @ levels: a supporting plane of a convex function of the levels."""

    value: float
    slopes: Array


class Master:
    """Choose at most `n_drop` of n residuals to drop and levels above their cuts, at least cost.

    The cost is `costs @ levels`, or the maximum of the tangents where `costs` is None. The solver sees levels less
    their floors, in units of how far they can rise, so that its tolerances mean the same in all units of cost.
    """

    def __init__(self, n: int, n_drop: int, floor: Array, costs: Array | None, unit: float) -> None:
        self.n, self.n_drop, self.floor, self.costs = n, n_drop, floor, costs
        self.unit = unit or 1.0
        self.cuts: list[Cut] = []
        self.tangents: list[Tangent] = []

    @property
    def n_rows(self) -> int:
        """Rows of the program, without bounds."""
        return len(self.cuts) + len(self.tangents) + 1

    def split(self, x: Array) -> tuple[Array, Array]:
        """Drops and levels of a solution."""
        return x[: self.n], x[self.n : self.n + len(self.floor)]

    def solve(self, *, integer: bool, time_limit: float | None, max_nodes: int | None = None) -> Solution:
        """Solve the relaxation or, with `integer`, the selection itself."""
        n, m, unit = self.n, len(self.floor), self.unit
        width = n + m + (self.costs is None)
        budget = sp.csr_array(np.concatenate([np.ones(n), np.zeros(width - n)])[None])
        drops = sp.eye_array(n, width, format="csr")
        levels = sp.eye_array(m, width, k=n, format="csr")
        cut_rows, cut_b = self._cut_rows(width, unit)
        tangent_rows, tangent_b, base = self._tangent_rows(width, unit)
        b = np.concatenate([cut_b, tangent_b, [float(self.n_drop)], np.ones(n), np.zeros(n), np.zeros(m)])
        costs = np.append(np.zeros(m), 1.0) if self.costs is None else self.costs
        program = ConicProgram(
            c=np.concatenate([np.zeros(n), costs]),
            A=sp.vstack([cut_rows, tangent_rows, budget, drops, -drops, -levels], format="csr"),
            b=b,
            cones=(Cone("nonneg", len(b)),),
            integer=np.arange(n) if integer else np.zeros(0, dtype=np.int64),
        )
        solver = LinearSolver(program, time_limit=time_limit, max_nodes=max_nodes, relative_gap=OPTIMAL)
        solution = solver.solve()
        at_floor = base if self.costs is None else float(self.costs @ self.floor)
        x = np.concatenate([solution.x[:n], self.floor + unit * solution.x[n : n + m]])
        return replace(solution, x=x, value=at_floor + unit * solution.value, gap=unit * solution.gap)

    def _cut_rows(self, width: int, unit: float) -> tuple[sp.csr_array, Array]:
        columns: Sequence[Array] = [np.append(cut.members, self.n + cut.level) for cut in self.cuts]
        values = [-np.append(cut.slopes / unit, 1.0) for cut in self.cuts]
        starts = np.concatenate([[0], np.cumsum([len(c) for c in columns])]).astype(np.int64)
        empty = [np.zeros(0)]
        data = np.concatenate([*values, *empty])
        indices = np.concatenate([*columns, *empty]).astype(np.int64)
        rows = sp.csr_array((data, indices, starts), shape=(len(self.cuts), width))
        return rows, np.array([-(cut.top - self.floor[cut.level]) / unit for cut in self.cuts])

    def _tangent_rows(self, width: int, unit: float) -> tuple[sp.csr_array, Array, float]:
        """Tangents of the cost less its highest tangent at the floors, `base`."""
        rows = np.zeros((len(self.tangents), width))
        at_floor = np.array([tangent.value + tangent.slopes @ self.floor for tangent in self.tangents])
        base = float(at_floor.max(initial=-np.inf)) if len(at_floor) else 0.0
        for k, tangent in enumerate(self.tangents):
            rows[k, self.n : self.n + len(self.floor)] = tangent.slopes
            rows[k, -1] = -1.0
        return sp.csr_array(rows), (base - at_floor) / unit, base
