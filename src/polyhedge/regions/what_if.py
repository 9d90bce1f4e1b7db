r"""What if the decision is another one: bounds of any decisions over the regions of a family.

Calibration promises $P\{Y \in C(X)\} \ge 1 - \alpha$, for a learned set and for the region
$\{u : g(z(x), u) \le v(x) + r\}$ of a policy alike. On that event

$$g(z', Y) \le \max_{u \in C(X)} g(z', u) \quad \text{for all } z' \text{ at once},$$

however z' was chosen, at no further $\alpha$. The maximum is infinite where the region is open towards outcomes that
hurt z'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyhedge._support.frames import as_pandas, check_same_rows
from polyhedge._support.tolerances import SOLVED
from polyhedge._support.validation import Array
from polyhedge.decisions import Decisions
from polyhedge.problems import DecisionProblem
from polyhedge.robust.adversary import Adversary, WorstCase
from polyhedge.robust.support import maximise
from polyhedge.rows import n_rows_of
from polyhedge.sets import Region
from polyhedge.solvers.program import SolverError, Status, status_at

_NO_WORST_CASE = (
    "The worst case of this second stage over the region is out of reach: it may have no feasible decision there, or "
    "has integers or squares"
)


def bound_decisions(
    problem: DecisionProblem, region: Callable[[int], Region], radii: Array, values: Array, z: Array
) -> Decisions:
    """The worst cost, and the outcome that causes it, of decisions z (N, p) over the region of each row.

    Parameters
    ----------
    problem : what is decided.
    region : the region of row i.
    radii : (N,) infinite for rows without a region.
    values : (N, t) of the problem's parameters.
    z : (N, p) decisions; NaN for rows without one.
    """
    n = len(radii)
    bounds, worst, gaps, details = np.full(n, np.inf), np.full((n, problem.n_outcomes), np.nan), np.zeros(n), [""] * n
    for i in range(n):
        if not np.isfinite(z[i]).all():
            bounds[i], details[i] = np.nan, "A decision is missing or infinite"
        elif np.isfinite(radii[i]):
            case, details[i] = _worst(problem.at_values(values[i]), region(i), z[i])
            bounds[i], worst[i], gaps[i] = case.value, case.outcome, case.gap
    sizes = np.maximum(np.abs(bounds), np.abs(bounds - gaps))
    status = np.array([status_at(gap, size) for gap, size in zip(gaps, sizes, strict=True)], dtype=object)
    status[np.isnan(bounds)] = Status.NOT_DECIDED
    return Decisions(
        flat=z,
        cost_bound=bounds,
        worst_outcome=worst,
        status=status,
        gap=gaps,
        layout=problem.layout,
        detail=tuple(details) if any(details) else (),
        radii=radii,
    )


def given_decisions(problem: DecisionProblem, z: Any, X: Any) -> Array:
    """The user's decisions at rows X as (n, p): an array in the shape of the variable, a frame by name, or `Decisions`.

    Auxiliary variables of the problem must be there too, as in `Decisions.flat`.
    """
    names, n = list(problem.decision_names), n_rows_of(X)
    if isinstance(z, Decisions):
        check_same_rows({"X": X, "z": z.to_frame("pandas")})
        z = z.flat
    elif hasattr(z, "columns"):
        frame = as_pandas(z)
        check_same_rows({"X": X, "z": frame})
        missing = [name for name in names if name not in frame.columns]
        if missing:
            raise ValueError(f"z must have a column for each decision: {', '.join(names)}. It lacks {missing[0]}.")
        z = frame[names]
    try:
        flat = np.asarray(z, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"z must be an array of numbers, a frame or decisions, got {type(z).__name__}.") from error
    p = problem.layout.size
    if flat.size != n * p or (n > 1 and len(flat) != n):
        more = f", and the {p - len(names)} auxiliary ones behind them, as in flat of decisions" * (p > len(names))
        raise ValueError(
            f"z must have {n} row(s) of {p} number(s), one for each of {', '.join(names)}{more}, got shape "
            f"{flat.shape}."
        )
    return flat.reshape(n, p)


def _worst(problem: DecisionProblem, region: Region, z: Array) -> tuple[WorstCase, str]:
    """The worst case of one decision over a region, and a note on what it cannot promise."""
    nowhere, notes = WorstCase(np.inf, np.full(problem.n_outcomes, np.nan)), []
    try:
        adversary = Adversary(problem, region.shape, region.radius, region.center)
        case = adversary.worst_case(z)
    except (SolverError, ValueError, TypeError) as error:
        if problem.has_recourse:
            return nowhere, _NO_WORST_CASE
        if isinstance(error, TypeError) or not _open_ends(problem, region):
            return nowhere, f'The worst case over this region is out of reach. Use guarantee="outcome" ({error})'
        case = nowhere
    if case.value == -np.inf:
        notes.append("No outcome within the known support keeps the bound of this row")
    elif case.value == np.inf:
        notes.append(
            f"The region does not limit {' and '.join(_open_ends(problem, region))}. State such a limit as "
            'outcome_support, or use guarantee="outcome"'
        )
    case = case if np.isfinite(case.value) else nowhere
    for name, pieces, part in zip(problem.constraint_names, problem.uncertain_rows, problem.row_parts(z), strict=True):
        reached = maximise(adversary.form, pieces.directions(z[None])[0]).values
        excess = part + float((reached + pieces.values(z[None], region.center[None])[0]).max())
        if excess > SOLVED * (1 + abs(part)):
            notes.append(f"{name} may be exceeded by {excess:.4g}")
    return case, ". ".join(notes)


def _open_ends(problem: DecisionProblem, region: Region) -> list[str]:
    """The outcomes that the region leaves without an upper or a lower limit, in words."""
    eye = np.eye(problem.n_outcomes)
    reach: Any = region.support(np.vstack([eye, -eye]))
    names = [f"{name} {side}" for side in ("from above", "from below") for name in problem.outcome_names]
    return [name for name, limit in zip(names, reach, strict=True) if limit == np.inf]
