r"""The certified bound: no polyhedron that covers c_n learning residuals costs less than this.

$$V^\star = \min_{|S| = c_n} \frac1n \sum_i v_i(S), \qquad v_i(S) = \min_z \max_{j \in S} g(z, \hat f_i + e_j)$$

A set that covers c_n residuals contains the residuals of some such S, so it costs at least V*; and the
polyhedron whose facets are the robust decisions of the best S attains it (`scenario.py`). So V* is the
optimum over *all* convex sets and every number of facets.

Two ways to it. Where the cost's directions form a segment, `envelope.py` finds V* exactly. Otherwise a
master over the residuals to drop (d_j = 1) is built from numbers alone: a mixture of residuals with
mixed cost Phi proves $v_i \ge \Phi$ unless one of its members is dropped, and a chain of mixtures with
falling values $\Phi_1 \ge \Phi_2 \ge \dots$ proves

$$\eta_i \ge \Phi_1 - \sum_l (\Phi_l - \Phi_{l+1}) \sum_{j \in \text{members}_l} d_j ,$$

the star inequality of mixing sets, which is tight where single rows with a big M are not.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from polyhedge._validation import Array, Indices, Mask, as_rows, check_alpha
from polyhedge.calibration import conformal_rank
from polyhedge.learners.envelope import as_segment, select_on_segment
from polyhedge.learners.hull import HullOracle, HullValues, Mixture, disjoint_mixtures
from polyhedge.problems import DecisionProblem
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicProgram, Solution, Status


@dataclass(frozen=True)
class CertifiedBound:
    """A lower bound on the learning objective of every set, and the best selection found.

    Attributes
    ----------
    lower : no set that covers the conformal rank of the residuals costs less.
    upper : mean cost of the hull of `kept`; equal to `lower` (within `gap`) where optimal.
    kept : which residuals the best selection keeps.
    status : OPTIMAL, or STOPPED_EARLY where time ran out first.
    """

    lower: float
    upper: float
    kept: Mask
    status: Status
    seconds: float
    detail: str = ""

    @property
    def gap(self) -> float:
        """upper - lower."""
        return max(self.upper - self.lower, 0.0)


def lower_bound(
    residuals: Array,
    centers: Array,
    problem: DecisionProblem,
    alpha: float,
    time_limit: float = 60.0,
    *,
    tolerance: float = 1e-6,
    start: Mask | None = None,
) -> CertifiedBound:
    """Certify how cheap any set can be on these residuals and contexts.

    Parameters
    ----------
    residuals, centers : (n, d)
        Residuals and predictions of the learning split (the bound refers to these data).
    problem : a problem with a piece list.
    alpha : miscoverage level; the set must cover c_n = ceil((n + 1)(1 - alpha)) residuals.
    time_limit : seconds after which the best bound so far is returned.
    tolerance : gap at which the search ends.
    start : residuals that a known good set keeps.

    Examples
    --------
    >>> import numpy as np, polyhedge as ph
    >>> rng = np.random.default_rng(0)
    >>> residuals, centers = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    >>> bound = lower_bound(residuals, centers, ph.problems.simplex_linear([0.0, 0.0]), 0.1)
    >>> bound.gap < 1e-6
    True
    """
    began = time.perf_counter()
    residuals = as_rows(residuals, "residuals", problem.n_outcomes)
    centers = as_rows(centers, "centers", problem.n_outcomes)
    rank = conformal_rank(len(residuals), check_alpha(alpha))
    if rank > len(residuals):
        raise ValueError(f"alpha={alpha!r} needs more than {len(residuals)} residuals. Raise alpha or bring more rows.")
    if problem.pieces is None:
        raise ValueError(
            "The certified bound needs a cost that is affine or a maximum of affine functions of the outcome. "
            "For other costs the learner Descent works, without a certificate."
        )
    segment = as_segment(problem)
    if segment is not None:
        selection = select_on_segment(segment, residuals, centers, rank)
        if selection is not None:
            value, seconds = selection.value, time.perf_counter() - began
            detail = "exact dynamic program over envelopes"
            return CertifiedBound(value, value, selection.kept, Status.OPTIMAL, seconds, detail)
    search = _Search(HullOracle(problem, residuals, centers), rank, tolerance, began + time_limit)
    return search.run(start, began)


class _Search:
    """Cutting planes on the continuous master, then branch and bound on the integer one."""

    def __init__(self, oracle: HullOracle, rank: int, tolerance: float, deadline: float) -> None:
        self.oracle, self.tolerance, self.deadline = oracle, tolerance, deadline
        self.n = len(oracle.residuals)
        self.n_drop = self.n - rank
        self.mixtures: list[dict[tuple[int, ...], float]] = [{} for _ in oracle.centers]
        self.cuts: list[_Cut] = []
        self.best_kept = np.ones(self.n, dtype=bool)
        self.upper, self.lower = np.inf, -np.inf

    def run(self, start: Mask | None, began: float) -> CertifiedBound:
        floor = self._first_values(start)
        self.master = _Master(self.n, len(self.oracle.centers), self.n_drop, floor)
        try:
            self._tighten_continuous()
            self._tighten_integer()
            status = Status.OPTIMAL if self.upper - self.lower <= self._tolerance() else Status.STOPPED_EARLY
        except KeyboardInterrupt:
            status = Status.STOPPED_EARLY
        seconds = time.perf_counter() - began
        detail = f"{len(self.cuts)} star inequalities on {len(self.oracle.centers)} contexts"
        return CertifiedBound(self.lower, self.upper, self.best_kept, status, seconds, detail)

    def _tolerance(self) -> float:
        return self.tolerance * max(1.0, abs(self.upper))

    def _left(self) -> float:
        return self.deadline - time.perf_counter()

    def _first_values(self, start: Mask | None) -> Array:
        """Floors of all contexts from disjoint mixtures, which also make the first chains."""
        floors = np.full(len(self.oracle.centers), -np.inf)
        for i, center in enumerate(self.oracle.centers):
            chain = disjoint_mixtures(self.oracle.problem, self.oracle.residuals, center, self.n_drop + 1)
            for mixture in chain:
                self.mixtures[i][mixture.members] = mixture.value
            if len(chain) > self.n_drop:
                floors[i] = chain[-1].value
        self._visit(np.ones(self.n, dtype=bool))
        if start is not None and start.sum() >= self.n - self.n_drop:
            self._visit(start)
        lowest = -1e3 * (1 + abs(self.upper if np.isfinite(self.upper) else 1.0))
        return np.where(np.isfinite(floors), floors, lowest)

    def _visit(self, kept: Mask) -> HullValues:
        """Evaluate a selection exactly: an upper bound, and a mixture for every context."""
        values = self.oracle.evaluate(kept)
        self._remember(values.mixtures)
        total = float(values.values.mean())
        if kept.sum() >= self.n - self.n_drop and total < self.upper:
            self.upper, self.best_kept = total, kept.copy()
        return values

    def _remember(self, mixtures: tuple[Mixture, ...]) -> None:
        for known, mixture in zip(self.mixtures, mixtures, strict=True):
            known[mixture.members] = max(mixture.value, known.get(mixture.members, -np.inf))

    def _tighten_continuous(self, max_rounds: int = 60) -> None:
        """Cuts at the relaxation's optimum; thresholds of its drops give selections to learn mixtures from."""
        previous = -np.inf
        for round_number in range(max_rounds):
            if self._left() <= 0:
                return
            solution = self.master.solve(self.cuts, integer=False, time_limit=self._left())
            if not solution.status.has_solution:
                return
            drop, levels = self.master.split(solution.x)
            self.lower = max(self.lower, solution.value)
            if self.upper - self.lower <= self._tolerance():
                return
            self._learn_from(drop)
            added = self._separate(drop, levels)
            stalled = round_number > 5 and solution.value - previous < 1e-5 * max(1e-3, self.upper - solution.value)
            if not added or stalled:
                return
            previous = solution.value

    def _learn_from(self, drop: Array) -> None:
        for threshold in (1e-6, 0.34, 0.67, 0.999):
            kept = drop <= threshold
            if self._left() > 0 and kept.any():
                self._visit(kept)
        order = np.argsort(-drop, kind="stable")
        rounded = np.ones(self.n, dtype=bool)
        rounded[order[: self.n_drop]] = False
        self._visit(rounded)

    def _separate(self, drop: Array, levels: Array) -> int:
        """Add the most violated star inequality of each context."""
        added = 0
        for i, known in enumerate(self.mixtures):
            cut = star_inequality(i, known, drop, self.master.floor[i])
            if cut is not None and cut.value_at(drop) > levels[i] + 1e-9:
                self.cuts.append(cut)
                added += 1
        return added

    def _tighten_integer(self) -> None:
        while self._left() > 0 and self.upper - self.lower > self._tolerance():
            solution = self.master.solve(self.cuts, integer=True, time_limit=self._left())
            if not solution.status.has_solution:
                self.lower = max(self.lower, _finite(solution.value - solution.gap))
                return
            self.lower = max(self.lower, solution.value - solution.gap)
            drop, levels = self.master.split(solution.x)
            self._visit(np.round(drop) == 0)
            if not self._separate(np.round(drop), levels) or solution.status is Status.STOPPED_EARLY:
                return


def _finite(value: float) -> float:
    return value if np.isfinite(value) else -np.inf


@dataclass(frozen=True)
class _Cut:
    """eta[context] >= top - sum over j of slopes[j] d[members[j]]."""

    context: int
    top: float
    members: Indices
    slopes: Array

    def value_at(self, drop: Array) -> float:
        return float(self.top - self.slopes @ drop[self.members])


def star_inequality(
    context: int, known: dict[tuple[int, ...], float], drop: Array, floor: float
) -> _Cut | None:
    """The tightest chain of known mixtures at the point `drop`: falling values, falling dropped shares."""
    ranked = sorted(((value, members) for members, value in known.items()), reverse=True)
    chain: list[tuple[float, tuple[int, ...]]] = []
    least = np.inf
    for value, members in ranked:
        share = float(drop[list(members)].sum())
        if share < least - 1e-9 and share < 1 - 1e-9:
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
    return _Cut(context, chain[0][0], np.array(list(slopes)), np.array(list(slopes.values())))


class _Master:
    """Minimise mean(eta) over drops d in [0, 1]^n (or binary) with sum(d) <= n_drop and the cuts."""

    def __init__(self, n: int, n_contexts: int, n_drop: int, floor: Array) -> None:
        self.n, self.n_contexts, self.n_drop, self.floor = n, n_contexts, n_drop, floor

    def split(self, x: Array) -> tuple[Array, Array]:
        return x[: self.n], x[self.n :]

    def solve(self, cuts: list[_Cut], *, integer: bool, time_limit: float) -> Solution:
        n, m = self.n, self.n_contexts
        rows = [np.full(len(cut.members) + 1, k) for k, cut in enumerate(cuts)]
        columns = [np.append(cut.members, n + cut.context) for cut in cuts]
        values = [-np.append(cut.slopes, 1.0) for cut in cuts]
        flat = (np.concatenate(part) if part else np.zeros(0) for part in (values, rows, columns))
        data, row, column = flat
        star = sp.csr_array((data, (row.astype(int), column.astype(int))), shape=(len(cuts), n + m))
        budget = sp.csr_array(np.concatenate([np.ones(n), np.zeros(m)])[None])
        drops = sp.eye_array(n, n + m, format="csr")
        levels = sp.hstack([sp.csr_array((m, n)), sp.eye_array(m)], format="csr")
        program = ConicProgram(
            c=np.concatenate([np.zeros(n), np.full(m, 1 / m)]),
            A=sp.vstack([star, budget, drops, -drops, -levels], format="csr"),
            b=np.concatenate([[-c.top for c in cuts], [self.n_drop], np.ones(n), np.zeros(n), -self.floor]),
            cones=(Cone("nonneg", len(cuts) + 1 + 2 * n + m),),
            integer=np.arange(n) if integer else np.zeros(0, dtype=np.int64),
        )
        return LinearSolver(program, time_limit=max(time_limit, 0.1), relative_gap=1e-6).solve()
