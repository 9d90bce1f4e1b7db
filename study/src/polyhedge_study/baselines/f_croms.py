r"""F-CROMS (Bao et al. 2025): choose among a finite library of conformal sets by their robust cost.

A single half-space, as the paper describes its library, is unbounded, so a candidate m is a random rotated box with
both faces of each direction; its score is $S_m(e) = \max_j |u_j^\top e| / a_j$.

**As the paper runs it** (`exact=False`): threshold and choice both come from the calibration rows. Choosing among
conformal sets on the rows that calibrate them costs a little coverage.

**As the original defines it** (`exact=True`): full conformal selection. For a context x every outcome y is tried as
its label: (x, y) joins the n calibration rows, each candidate gets the c-th smallest of its n + 1 scores as
threshold, $t_m(y) = \mathrm{clip}(S_m(x, y), S_{m(c-1)}, S_{m(c)})$ with $c = \lceil (n+1)(1-\alpha) \rceil$, the
candidate $\hat m(y)$ with the least mean worst-case cost $J_m(t_m(y))$ over the n + 1 contexts is chosen, and y is in
the set C(x) if $S_{\hat m(y)}(x, y) \le t_{\hat m(y)}(y)$. Rows enter symmetrically, so C(x) covers with probability at
least 1 - alpha.

For a finite library C(x) is a union of the candidates' own boxes. Write lo = $S_{m(c-1)}$, hi = $S_{m(c)}$ and
$\bar J = \min_m J_m(hi_m)$, attained by $m_1$; J_m(t) does not fall in t. Then, ties aside,

$$C(x) = \bigcup_m \{y : S_m(x, y) \le r_m\},\quad r_m = \sup\{t \in [lo_m, hi_m] : J_m(t) \le \bar J\},$$

where a candidate with $J_m(lo_m) > \bar J$ takes no part. *Proof.* S <= t says S <= hi, and then t = max(S, lo).
If y is in C(x) and m is its choice, then $J_m(t_m) \le J_{m_1}(t_{m_1}) \le \bar J$, so $S_m \le t_m \le r_m$. If
$S_m \le r_m$ for some m, then $J_m(t_m) \le \bar J$, so the choice m' has $J_{m'}(t_{m'}) \le \bar J$. If its score
exceeded hi, then $J_{m'}(hi) \le \bar J$, so $m' = m_1$, and $J_{m_1}(hi) = \bar J = J_m(t_m)$ would be a tie. With
ties the union is the larger set, so that it covers as often or more.

The context x is one of the n + 1, hence J, and with it the radii, depend on x. Coverage is membership in the union;
a (maximum of) affine cost is worst at the farthest of the boxes, so that decisions are exact; the volume is exact
where one candidate remains and sampled elsewhere. The calibration contexts' part of J is interpolated on a grid that is
refined until its midpoints agree to 1e-9, and radii are found from outside to 1e-9.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from polyhedge.calibration import conformal_radius, conformal_rank
from polyhedge.problems import DecisionProblem
from polyhedge.robust import decide_knowing
from polyhedge_study.baselines.fitted import fit_predictor
from polyhedge_study.baselines.frames import Frame, random_frames, worst_case_costs
from polyhedge_study.baselines.union_of_frames import UnionOfFrames
from polyhedge_study.hull_volume import hull_volume
from polyhedge_study.inside import Array, Mask, check_count
from polyhedge_study.measure import Measured, least_mean, measure_decisions, measure_set
from polyhedge_study.tasks import Task

_ACCURACY = 1e-9
"""Relative, of radii and of the interpolated costs: far below what a table shows."""
_MAX_STEPS = 100
"""Of the search for a root, which ends by itself; rounding could keep it going."""


def f_croms(task: Task, alpha: float, seed: int, *, n_candidates: int = 20, exact: bool = False) -> Measured:
    """Measure F-CROMS with `n_candidates` random boxes; `exact` asks for full conformal selection."""
    check_count(n_candidates, "n_candidates", minimum=1)
    fitted = fit_predictor(task)
    centers, residuals = fitted.centers("calibrate"), fitted.residuals("calibrate")
    test_centers, learned = fitted.centers("test"), fitted.residuals("learn")
    began = time.perf_counter()
    frames = random_frames(task.problem.n_outcomes, n_candidates, np.random.default_rng(seed))
    if not exact:
        frame, radius = select(task.problem, frames, residuals, centers, alpha)
        seconds = time.perf_counter() - began
        return measure_set(task, test_centers, frame.as_polyhedron(), radius, alpha, seconds, learned)
    radii = full_conformal_radii(task.problem, frames, residuals, centers, test_centers, alpha)
    seconds = time.perf_counter() - began
    union, test_residuals = UnionOfFrames(frames, radii), fitted.residuals("test")
    return measure_decisions(
        task,
        test_centers,
        least_mean(task.problem, union.decide(task.problem, test_centers), test_centers, union.support, learned),
        union.contains(test_residuals),
        union.mean_volume(np.random.default_rng(seed)),
        alpha,
        seconds,
        f"{100 * np.mean(union.n_parts > 1):.0f} % of the sets unite several candidates",
        hull_volume(test_residuals, lambda e, i: UnionOfFrames(frames, radii[i]).contains(e), len(radii)),
    )


def select(
    problem: DecisionProblem, frames: list[Frame], residuals: Array, centers: Array, alpha: float
) -> tuple[Frame, float]:
    """The candidate of least mean worst-case cost on the calibration rows, and its conformal radius."""
    radii = [conformal_radius(frame.scores(residuals), alpha) for frame in frames]
    costs = [
        worst_case_costs(problem, frame, np.full(len(centers), radius), centers).mean()
        for frame, radius in zip(frames, radii, strict=True)
    ]
    best = int(np.argmin(costs))
    return frames[best], radii[best]


def full_conformal_radii(
    problem: DecisionProblem, frames: list[Frame], residuals: Array, centers: Array, test_centers: Array, alpha: float
) -> Array:
    """Radii (N, n_candidates) of the union that is the full conformal set of each context; -inf takes no part."""
    low, high = _adjacent_scores(frames, residuals, alpha)
    totals = [_Total(problem, frame, centers) for frame in frames]
    n = len(test_centers)

    def objective(m: int, radii: Array, rows: Mask | slice = slice(None)) -> Array:
        new = worst_case_costs(problem, frames[m], radii, test_centers[rows])
        return (totals[m](radii) + new) / (len(centers) + 1)

    J_low, J_high = np.full((n, len(frames)), np.inf), np.full((n, len(frames)), np.inf)
    for m in _contenders(totals, low, high, objective, decide_knowing(problem, test_centers)[1]):
        J_low[:, m], J_high[:, m] = objective(m, np.full(n, low[m])), objective(m, np.full(n, high[m]))
    level = J_high.min(axis=1)
    radii = np.where(J_high <= level[:, None], high, -np.inf)
    for m in range(len(frames)):
        rows = (J_low[:, m] <= level) & (J_high[:, m] > level)
        if rows.any():
            totals[m].tabulate(low[m], high[m])
            radii[rows, m] = _largest_root(
                lambda t, m=m, rows=rows: objective(m, t, rows) - level[rows],  # type: ignore[misc]
                np.full(rows.sum(), low[m]),
                np.full(rows.sum(), high[m]),
            )
    return radii


def _contenders(
    totals: list[_Total], low: Array, high: Array, objective: Callable[[int, Array], Array], nominal_costs: Array
) -> list[int]:
    """Candidates that could take part in some context: boxes hold 0, so no worst case is below the nominal cost."""
    at_low = np.array([total.at(float(r)) for total, r in zip(totals, low, strict=True)])
    at_high = np.array([total.at(float(r)) for total, r in zip(totals, high, strict=True)])
    first = int(np.argmin(at_high))
    ceiling = objective(first, np.full(len(nominal_costs), high[first])) * (len(totals[0].centers) + 1)
    return [m for m in range(len(totals)) if np.any(at_low[m] + nominal_costs <= ceiling + 1e-9)]


def _adjacent_scores(frames: list[Frame], residuals: Array, alpha: float) -> tuple[Array, Array]:
    """The scores of ranks c - 1 and c of each candidate; no score is below 0."""
    rank = conformal_rank(len(residuals), alpha)
    low, high = np.zeros(len(frames)), np.empty(len(frames))
    for m, frame in enumerate(frames):
        scores = frame.scores(residuals)
        high[m] = conformal_radius(scores, alpha)
        if rank > 1:
            low[m] = np.partition(scores, rank - 2)[rank - 2]
    return low, high


class _Total:
    """Sum of the worst-case costs of the calibration contexts as a function of the radius."""

    def __init__(self, problem: DecisionProblem, frame: Frame, centers: Array) -> None:
        self.problem, self.frame, self.centers = problem, frame, centers
        self.known: dict[float, float] = {}
        self.grid, self.values = np.zeros(0), np.zeros(0)

    def __call__(self, radii: Array) -> Array:
        distinct, where = np.unique(radii, return_inverse=True)
        if len(self.grid) and len(distinct) > 1:
            return np.interp(radii, self.grid, self.values)
        return np.array([self.at(float(radius)) for radius in distinct])[where]

    def tabulate(self, low: float, high: float) -> None:
        """Halve [low, high] wherever the midpoint does not lie on the chord."""
        todo = [(low, high)]
        while todo:
            a, b = todo.pop()
            middle = (a + b) / 2
            chord = (self.at(a) + self.at(b)) / 2
            if abs(self.at(middle) - chord) > _ACCURACY * (1 + abs(chord)):
                todo += [(a, middle), (middle, b)]
        self.grid = np.array(sorted(self.known))
        self.values = np.array([self.known[radius] for radius in self.grid])

    def at(self, radius: float) -> float:
        """The sum at one radius, computed once."""
        if radius not in self.known:
            radii = np.full(len(self.centers), radius)
            self.known[radius] = float(worst_case_costs(self.problem, self.frame, radii, self.centers).sum())
        return self.known[radius]


def _largest_root(function: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Roots of rising functions, one for each entry, by the Illinois method; the upper ends of the last brackets."""
    at_low, at_high = function(low), function(high)
    size = 1 + np.abs(high)
    side = np.zeros(len(low))
    for _ in range(_MAX_STEPS):
        if np.all((high - low <= _ACCURACY * size) | (at_high <= 1e-15)):
            break
        step = np.where(at_high > at_low, at_high - at_low, 1.0)
        middle = np.where(at_high > at_low, high - at_high * (high - low) / step, (low + high) / 2)
        # A little beyond the secant's root, so that brackets close from both sides.
        middle = np.clip(middle, low + 1e-3 * (high - low), high - 1e-3 * (high - low))
        value = function(middle)
        above = value > 0
        # Halving the value of an end that stays keeps the secant from creeping.
        at_low = np.where(above, np.where(side > 0, at_low / 2, at_low), value)
        at_high = np.where(above, value, np.where(side < 0, at_high / 2, at_high))
        low, high = np.where(above, low, middle), np.where(above, middle, high)
        side = np.where(above, 1.0, -1.0)
    return high
