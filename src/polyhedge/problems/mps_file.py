"""Other people's models: a linear program in an MPS file whose costs or right-hand sides are uncertain."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np

from polyhedge._support.frames import listed
from polyhedge._support.validation import Array
from polyhedge.problems.decision_problem import DecisionProblem
from polyhedge.problems.layout import Source
from polyhedge.solvers.mps import MAX_MPS_BYTES, MpsModel, read_mps


def from_mps(
    path: str | Path, uncertain: Sequence[str], *, name: str = "", max_bytes: int = MAX_MPS_BYTES
) -> DecisionProblem:
    r"""A decision problem from an MPS file, as Pyomo, linopy, PuLP, JuMP and gurobipy write them.

    Parameters
    ----------
    path : the file; .mps, or anything else that HiGHS reads.
    uncertain : names of columns or rows, one for each outcome
        A column: its cost per unit is the outcome, whatever the file says. A row: its right-hand side is the outcome,
        and the row must hold for every outcome of the set; it must be an inequality with one side.
    name : what to call the problem in reports; the name of the file if not given.
    max_bytes : how large the file may be: a stranger's file should not take all memory.

    Notes
    -----
    Decisions have the names of the columns, outcomes those in `uncertain`, in its order. A model that is maximised
    becomes a cost: minus its objective.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> text = '''NAME blend
    ... ROWS
    ...  N cost
    ...  G demand
    ... COLUMNS
    ...  oil cost 3 demand 1
    ...  gas cost 2 demand 1
    ... RHS
    ...  RHS demand 4
    ... ENDATA
    ... '''
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "blend.mps")
    ...     _ = path.write_text(text)
    ...     problem = from_mps(path, uncertain=["gas", "demand"])
    >>> problem.decision_names, problem.outcome_names, problem.constraint_names
    (('oil', 'gas'), ('gas', 'demand'), ('demand',))
    """
    path, model = Path(path), read_mps(path, max_bytes)
    columns, rows = _places(model, uncertain)
    integers = np.flatnonzero(model.is_whole)
    is_all = len(integers) == len(model.columns)
    z = cp.Variable(len(model.columns), name="z", integer=is_all or ([tuple(integers)] if len(integers) else False))
    for row in rows:
        if np.isfinite(model.row_low[row]) == np.isfinite(model.row_high[row]):
            raise ValueError(
                f"The right-hand side of row {model.rows[row]!r} cannot be uncertain: the row has two sides "
                f"({model.row_low[row]:g} and {model.row_high[row]:g}), and no decision keeps to both for every "
                "outcome. Write it as inequalities, with a variable for what is short or left over."
            )
    sign, known = (-1.0 if model.is_maximised else 1.0), model.c.copy()
    known[list(columns)] = 0.0
    low, high = model.row_low.copy(), model.row_high.copy()
    low[list(rows)], high[list(rows)] = -np.inf, np.inf
    equal = np.flatnonzero(low == high)
    equations = [model.A[equal].toarray() @ z == low[equal]] if len(equal) else []
    low[equal], high[equal] = -np.inf, np.inf

    def cost(z: Any, u: Any) -> Any:
        certain = (sign * known) @ z + sign * model.offset if model.offset else (sign * known) @ z
        return certain + sign * (u[list(columns.values())] @ z[list(columns)]) if columns else certain

    def kept(z: Any, u: Any) -> list[cp.Constraint]:
        values = [(model.A[[row]].toarray()[0] @ z, u[outcome], row) for row, outcome in rows.items()]
        return [value >= side if np.isfinite(model.row_low[row]) else value <= side for value, side, row in values]

    return DecisionProblem(
        decision=z,
        cost=cost,
        constraints=[*_sides(model.low, model.high, z), *equations, *_sides(low, high, z, model.A)],
        uncertain_constraints=kept if rows else None,
        n_outcomes=len(uncertain),
        name=name or path.name.partition(".")[0],
        outcome_names=tuple(uncertain),
        decision_names=tuple(model.columns),
        constraint_names=tuple(model.rows[k] for k in rows),
        source=Source(str(path), hashlib.sha256(path.read_bytes()).hexdigest()),
    )


def _places(model: MpsModel, uncertain: Sequence[str]) -> tuple[dict[int, int], dict[int, int]]:
    """Which outcome stands at which column, and at which row."""
    columns, rows = dict[int, int](), dict[int, int]()
    for outcome, name in enumerate(uncertain):
        found = [(own, at) for own, at in ((model.columns, columns), (model.rows, rows)) if name in own]
        if len(found) != 1:
            what = "both a column and a row: rename one in the file" if found else "neither a column nor a row"
            names = f"The columns are: {listed(model.columns)}; the rows are: {listed(model.rows)}"
            raise ValueError(f"{name!r} is {what}. {names}.")
        own, at = found[0]
        at[own.index(name)] = outcome
    if len(columns) + len(rows) < len(uncertain):
        raise ValueError(f"uncertain must name each column and row once, got {listed(list(uncertain))}.")
    return columns, rows


def _sides(low: Array, high: Array, z: Any, A: Any = None) -> list[cp.Constraint]:
    """The finite sides of low <= A z <= high."""
    rows = []
    for bound, is_lower in ((low, True), (high, False)):
        kept = np.flatnonzero(np.isfinite(bound))
        if len(kept):
            value = A[kept].toarray() @ z if A is not None else z if len(kept) == z.size else z[kept]
            rows.append(value >= bound[kept] if is_lower else value <= bound[kept])
    return rows
