"""Other people's models: a linear program in an MPS file whose costs or right-hand sides are uncertain."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np

from polyhedge._support.alignment import listed
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.problems.decision_problem import DecisionProblem
from polyhedge.problems.layout import Source
from polyhedge.solvers.mps import MAX_MPS_BYTES, MpsModel, read_mps

__all__ = ["from_mps"]


def from_mps(
    path: str | Path,
    uncertain: Sequence[str] | Mapping[str, Sequence[str]],
    *,
    name: str = "",
    max_bytes: int = MAX_MPS_BYTES,
) -> DecisionProblem:
    r"""A decision problem from an MPS file, as Pyomo, linopy, PuLP, JuMP and gurobipy write them.

    Parameters
    ----------
    path : the file; .mps, .mps.gz, or anything else that HiGHS reads.
    uncertain : names of columns or rows, one for each outcome
        A column: its cost per unit is the outcome, whatever the file says. A row: its right-hand side is the outcome,
        and the row must hold for every outcome of the set; it must be an inequality with one side. Where a column and a
        row are called alike: `{"columns": [...], "rows": [...]}`.
    name : what to call the problem in reports; the name of the file if not given.
    max_bytes : how large the file may be, unpacked: a stranger's file should not take all memory.

    Notes
    -----
    Decisions have the names of the columns, outcomes those in `uncertain`, in its order (columns first where it is a
    dictionary). Where some columns are whole numbers and others not, the others come first. A model that is maximised
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
    columns, rows, names = _places(model, uncertain)
    order = np.argsort(model.is_whole, kind="stable")
    parts = [part for part in (order[~model.is_whole[order]], order[model.is_whole[order]]) if len(part)]
    variables = [_variable(len(part), is_whole=bool(model.is_whole[part[0]])) for part in parts]
    sides = _Sides(model, parts, tuple(rows.items()))
    return DecisionProblem(
        decision=variables if len(variables) > 1 else variables[0],
        cost=_Cost(model, parts, tuple(columns.items())),
        constraints=[*_limits(model, parts, variables), *sides.known(variables)],
        uncertain_constraints=sides if rows else None,
        n_outcomes=len(names),
        name=name or path.name.partition(".")[0],
        outcome_names=names,
        decision_names=tuple(model.columns[k] for k in order),
        constraint_names=tuple(model.rows[k] for k in rows),
        source=Source(str(path), hashlib.sha256(path.read_bytes()).hexdigest()),
    )


def _places(
    model: MpsModel, uncertain: Sequence[str] | Mapping[str, Sequence[str]]
) -> tuple[dict[int, int], dict[int, int], tuple[str, ...]]:
    """Which outcome stands at which column, at which row, and what outcomes are called."""
    if isinstance(uncertain, str) or not isinstance(uncertain, (Sequence, Mapping)) or not uncertain:
        raise ValueError(f"uncertain must be a list of names of columns or rows, got {uncertain!r}.")
    if isinstance(uncertain, Mapping):
        known = {"columns": model.columns, "rows": model.rows}
        if not set(uncertain) <= set(known):
            raise ValueError(f'uncertain must have the entries "columns" and "rows", got {listed(list(uncertain))}.')
        pairs = [(kind, str(name)) for kind in known for name in uncertain.get(kind, ())]
    else:
        pairs = [(_kind(model, str(name)), str(name)) for name in uncertain]
    columns, rows = dict[int, int](), dict[int, int]()
    for outcome, (kind, name) in enumerate(pairs):
        own = model.columns if kind == "columns" else model.rows
        if name not in own:
            raise ValueError(f"There is no {kind[:-1]} {name!r}. The {kind} are: {listed(own)}.")
        (columns if kind == "columns" else rows)[own.index(name)] = outcome
    names = tuple(name for _, name in pairs)
    if len(set(pairs)) < len(pairs):
        raise ValueError(f"uncertain must name each column and row once, got {listed(names)}.")
    alike = {name for name in names if names.count(name) > 1}
    return columns, rows, tuple(f"{name} ({kind[:-1]})" if name in alike else name for kind, name in pairs)


def _kind(model: MpsModel, name: str) -> str:
    kinds = [kind for kind, own in (("columns", model.columns), ("rows", model.rows)) if name in own]
    if len(kinds) == 1:
        return kinds[0]
    if not kinds:
        raise ValueError(
            f"There is neither a column nor a row {name!r}. The columns are: {listed(model.columns)}; the rows are: "
            f"{listed(model.rows)}."
        )
    raise ValueError(
        f'{name!r} is a column and a row. Say which is uncertain: {{"columns": [{name!r}]}} or {{"rows": [{name!r}]}}.'
    )


def _variable(size: int, *, is_whole: bool) -> cp.Variable:
    return cp.Variable(size, integer=is_whole, name="whole" if is_whole else "z")


def _limits(model: MpsModel, parts: Sequence[Indices], variables: Sequence[cp.Variable]) -> list[cp.Constraint]:
    limits = []
    for part, z in zip(parts, variables, strict=True):
        for bound, is_lower in ((model.low[part], True), (model.high[part], False)):
            kept = np.flatnonzero(np.isfinite(bound))
            if len(kept):
                own = z if len(kept) == len(part) else z[kept]
                limits.append(own >= bound[kept] if is_lower else own <= bound[kept])
    return limits


@dataclass(frozen=True, eq=False)
class _Cost:
    """The objective, with outcomes in place of some of its entries; an object, so that problems can be pickled."""

    model: MpsModel
    parts: Sequence[Indices]
    uncertain: tuple[tuple[int, int], ...]

    def __call__(self, z: Any, u: Any) -> Any:
        sign, c = (-1.0 if self.model.is_maximised else 1.0), self.model.c.copy()
        c[[column for column, _ in self.uncertain]] = 0.0
        total = sign * self.model.offset
        for part, own in zip(self.parts, z if len(self.parts) > 1 else [z], strict=True):
            total = total + (sign * c[part]) @ own
            places = [(int(np.flatnonzero(part == column)[0]), k) for column, k in self.uncertain if column in part]
            if places:
                at, outcomes = (list(entry) for entry in zip(*places, strict=True))
                total = total + sign * (u[outcomes] @ own[at])
        return total


@dataclass(frozen=True, eq=False)
class _Sides:
    """The rows: those with a known right-hand side, and, when called, those whose right-hand side is an outcome."""

    model: MpsModel
    parts: Sequence[Indices]
    uncertain: tuple[tuple[int, int], ...]

    def __call__(self, z: Any, u: Any) -> list[cp.Constraint]:
        variables = z if len(self.parts) > 1 else [z]
        return [self._uncertain(row, variables, u[outcome]) for row, outcome in self.uncertain]

    def _uncertain(self, row: int, variables: Any, side: Any) -> cp.Constraint:
        low, high = self.model.row_low[row], self.model.row_high[row]
        if np.isfinite(low) == np.isfinite(high):
            raise ValueError(
                f"The right-hand side of row {self.model.rows[row]!r} cannot be uncertain: the row has two sides "
                f"({low:g} and {high:g}), and no decision keeps to both for every outcome. Write it as inequalities, "
                "with a variable for what is short or left over."
            )
        value = self._values(row, variables)
        return value >= side if np.isfinite(low) else value <= side

    def known(self, variables: Sequence[Any]) -> list[cp.Constraint]:
        """The rows whose right-hand sides the file tells."""
        model, free = self.model, np.ones(len(self.model.rows), dtype=bool)
        free[[row for row, _ in self.uncertain]] = False
        equal = free & (model.row_low == model.row_high)
        constraints = []
        for kept, side, holds in (
            (equal, model.row_low, operator.eq),
            (free & ~equal & np.isfinite(model.row_low), model.row_low, operator.ge),
            (free & ~equal & np.isfinite(model.row_high), model.row_high, operator.le),
        ):
            if kept.any():
                constraints.append(holds(self._values(kept, variables), side[kept]))
        return constraints

    def _values(self, rows: int | Mask, variables: Sequence[Any]) -> Any:
        A = self.model.A[np.atleast_1d(np.arange(len(self.model.rows))[rows])].toarray()
        parts: list[Array] = [A[0, part] if isinstance(rows, int) else A[:, part] for part in self.parts]
        return sum((own @ z for own, z in zip(parts[1:], variables[1:], strict=True)), parts[0] @ variables[0])
