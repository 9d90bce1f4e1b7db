r"""What if the decision is another one: bounds of any decisions over the regions of a family.

Calibration promises $P\{Y \in C(X)\} \ge 1 - \alpha$, for a learned set and for the region
$\{u : g(z(x), u) \le v(x) + r\}$ of a policy alike. On that event $g(z', Y) \le \max_{u \in C(X)} g(z', u)$ for all z'
at once, however chosen. The maximum is infinite where the region is open towards outcomes that hurt z'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from polyhedge._support.frames import as_pandas, check_same_rows
from polyhedge._support.tolerances import SOLVED
from polyhedge._support.validation import Array
from polyhedge.decisions import Decision, Decisions
from polyhedge.problems import DecisionProblem
from polyhedge.robust.adversary import Adversary, WorstCase
from polyhedge.robust.support import maximise
from polyhedge.rows import n_rows_of
from polyhedge.sets import Polyhedron, Region
from polyhedge.sets.region import cut_form
from polyhedge.solvers.program import SolverError, Status, status_at

_SIDES = {1.0: "above", -1.0: "below"}
_MOST_ENDS, _FAR = 12, 1e4
"""Open ends beyond which all are named, because each takes a worst case; and where the others are tried as closed."""
_NO_WORST_CASE = (
    "The worst case of this second stage over the region is out of reach: it may have no feasible decision there, or "
    "has integers or squares"
)


def bound_decisions(
    problem: DecisionProblem, region: Callable[[int], Region], radii: Array, values: Array, z: Array
) -> Decisions:
    """The worst cost, and the outcome that causes it, of decisions z (N, p) over the region of each row.

    `radii` (N,) are infinite for rows without a region, z is NaN without a decision; `values` are of parameters (N, t).
    """
    n = len(radii)
    bounds, worst, gaps, details = np.full(n, np.inf), np.full((n, problem.n_outcomes), np.nan), np.zeros(n), [""] * n
    for i in range(n):
        if not np.isfinite(z[i]).all():
            bounds[i], details[i] = np.nan, "A decision is missing, infinite or no number"
        elif np.isfinite(radii[i]):
            case, details[i] = _worst(problem.at_values(values[i]), region(i), z[i])
            bounds[i], worst[i], gaps[i] = case.value, case.outcome, case.gap
    sizes = np.maximum(np.abs(bounds), np.abs(bounds - gaps))
    status = np.array([status_at(gap, size) for gap, size in zip(gaps, sizes, strict=True)], dtype=object)
    status[np.isnan(bounds)] = Status.NOT_DECIDED
    notes = tuple(details) if any(details) else ()
    return Decisions(z, bounds, worst, status, gaps, problem.layout, detail=notes, radii=radii)


def given_decisions(problem: DecisionProblem, z: Any, X: Any) -> Array:
    """The user's decisions at rows X as (n, p): an array in the shape of the variable, a table by name, or `Decisions`.

    Auxiliary variables of the problem must be there too, as in `Decisions.flat`.
    """
    names, variables, n = list(problem.decision_names), list(problem.layout.names), n_rows_of(X)
    is_ours, given = isinstance(z, (Decision, Decisions)), z.to_frame("pandas") if isinstance(z, Decisions) else z
    z = (z.flat if isinstance(z, Decisions) else z.z) if is_ours else as_pandas(z)
    is_row = hasattr(z, "iloc") and z.ndim == 1 and names[0] in z.index
    check_same_rows({"X": X} if is_row else {"X": X, "z": given if is_ours else z})
    is_by_name = is_row or isinstance(z, Mapping) or hasattr(z, "columns")
    names = variables if isinstance(z, Mapping) and all(name in z for name in variables) else names
    if is_by_name and (missing := [name for name in names if name not in z]):
        raise ValueError(f"z must have a column for each decision: {', '.join(names)}. It lacks {missing[0]}.")
    try:
        if isinstance(z, Mapping):
            z = np.column_stack([np.reshape(z[name], (n, -1)) for name in names])
        elif is_by_name:
            z = z[names].to_numpy(dtype=np.float64, na_value=np.nan)
        flat = np.asarray(z, dtype=np.float64)
    except (TypeError, ValueError) as error:
        what, got = "an array, a table or dictionary by name, or decisions", f"{type(z).__name__}: {error}"
        raise ValueError(f"z must be {n} row(s) of numbers: {what}; got {got}.") from error
    p, n_more = problem.layout.size, problem.layout.size - problem.layout.given_size
    if flat.size != n * p or (n > 1 and len(flat) != n):
        more = f", and the {n_more} auxiliary ones behind them, as in flat of decisions" * (n_more > 0)
        which = f"one for each of {', '.join(names)}{more}"
        raise ValueError(f"z must have {n} row(s) of {p} number(s), {which}, got shape {flat.shape}.")
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
        case, (A, h) = nowhere, problem.support_rows
        if isinstance(error, TypeError) or not _open_ends(region):
            adversary = Adversary(problem, Polyhedron(A, -h), 0.0, np.zeros(problem.n_outcomes))
            with suppress(SolverError, ValueError, TypeError):
                case = adversary.worst_case(z)
            if not np.isfinite(case.value):
                return nowhere, f'The worst case over this region is out of reach. Use guarantee="outcome" ({error})'
            notes.append("The worst case over this region is out of reach: this is that over outcome_support")
    if case.value == -np.inf:
        notes.append("No outcome within the known support keeps the bound of this row")
    elif case.value == np.inf:
        ends = _harmful_ends(adversary, region, z)
        limits = " and ".join(f"{problem.outcome_names[k]} from {_SIDES[sign]}" for k, sign in ends)
        notes.append(f'The region does not limit {limits}. State this as outcome_support, or use guarantee="outcome"')
    case = case if np.isfinite(case.value) else nowhere
    for name, pieces, part in zip(problem.constraint_names, problem.uncertain_rows, problem.row_parts(z), strict=True):
        reached = maximise(adversary.form, pieces.directions(z[None])[0]).values
        excess = part + float((reached + pieces.values(z[None], adversary.center[None])[0]).max())
        if excess > SOLVED * (1 + abs(part)):
            notes.append(f"{name} may be exceeded by {excess:.4g}")
    return case, ". ".join(notes)


def _open_ends(region: Region) -> list[tuple[int, float]]:
    """The outcomes that the region leaves without an upper (1) or a lower limit (-1); none where that is not known."""
    ends, eye = [(k, sign) for sign in _SIDES for k in range(region.n_outcomes)], np.eye(region.n_outcomes)
    reach: Any = ()
    with suppress(ValueError):
        reach = region.support(np.vstack([sign * eye for sign in _SIDES]))
    return [end for end, limit in zip(ends, reach, strict=False) if limit == np.inf]


def _harmful_ends(adversary: Adversary, region: Region, z: Array) -> list[tuple[int, float]]:
    """Ends of the region that have to be closed for a finite worst case: without any one of them it is infinite."""
    ends, form, eye, center = _open_ends(region), adversary.form, np.eye(region.n_outcomes), adversary.center
    far, needed = _FAR * (1 + np.abs([*form.g, *center]).max()), ends if len(ends) <= _MOST_ENDS else []
    for end in needed:
        rest = [each for each in needed if each != end]
        W = np.array([sign * eye[k] for k, sign in rest]).reshape(-1, len(eye))
        adversary.form = cut_form(form, center, (W, np.full(len(W), far)))
        with suppress(SolverError, ValueError):  # of an infinite one
            needed = rest if np.isfinite(adversary.worst_case(z).value) else needed
    adversary.form = form
    return needed or ends
