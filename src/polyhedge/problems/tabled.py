"""Costs and constraints given by tables of coefficients or by formulas, as objects that can be pickled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

from polyhedge._support.validation import Array
from polyhedge.problems.formulas import Formula
from polyhedge.problems.toml_table import Table

_BIAFFINE = ["constant", "decision", "outcome", "product"]
_SIDES = ["at_most", "at_least", "equals"]


@dataclass(frozen=True, eq=False)
class Biaffine:
    """constant + decision'z + outcome'u + u' product z."""

    constant: float
    decision: Array
    outcome: Array
    product: Array | None = None

    def __call__(self, z: Any, u: Any) -> Any:
        """The expression; terms without coefficients are left out."""
        total = cp.Constant(self.constant)
        for weights, argument in ((self.decision, z), (self.outcome, u)):
            total = total + weights @ argument if weights.any() else total
        return total if self.product is None else total + u @ (self.product @ z)

    @property
    def sees_outcome(self) -> bool:
        """Whether it depends on the outcome."""
        return bool(self.outcome.any()) or self.product is not None

    @property
    def is_zero(self) -> bool:
        """Whether nothing was given."""
        return not (self.constant or self.decision.any() or self.sees_outcome)


@dataclass(frozen=True, eq=False)
class Maximum:
    """Weight times the maximum of biaffine pieces."""

    weight: float
    pieces: tuple[Biaffine, ...]

    def __call__(self, z: Any, u: Any) -> Any:
        """The expression."""
        return self.weight * cp.maximum(*[piece(z, u) for piece in self.pieces])


@dataclass(frozen=True, eq=False)
class TabledCost:
    """A sum of terms: biaffine ones, maxima, a quadratic one |root z|^2, a formula."""

    terms: tuple[Any, ...]
    root: Array | None = None

    def __call__(self, z: Any, u: Any) -> Any:
        """The cost as an expression."""
        parts = [term(z, u) for term in self.terms]
        parts += [] if self.root is None else [cp.sum_squares(self.root @ z)]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total


@dataclass(frozen=True, eq=False)
class Row:
    """One constraint: a biaffine expression with sides, or a formula that compares."""

    expression: Biaffine | Formula
    side: str = ""
    bound: float | cp.Parameter = 0.0
    name: str = ""

    def constraints(self, z: Any, u: Any) -> list[cp.Constraint]:
        """The CVXPY constraints."""
        if isinstance(self.expression, Formula):
            return self.expression.relations(z, u)
        value = self.expression(z, u)
        if self.side == "equals":
            return [value == self.bound]
        return [value <= self.bound if self.side == "at_most" else value >= self.bound]

    @property
    def sees_outcome(self) -> bool:
        """Whether it must hold for every outcome."""
        if isinstance(self.expression, Formula):
            return bool(self.expression.names() & set(self.expression.outcomes))
        return self.expression.sees_outcome


@dataclass(frozen=True, eq=False)
class Rows:
    """Constraints as a function of (z, u), or of u alone."""

    rows: tuple[Row, ...]

    def __call__(self, *arguments: Any) -> list[cp.Constraint]:
        """The CVXPY constraints."""
        u = arguments[-1]
        z = arguments[0] if len(arguments) == 2 else cp.Constant(np.zeros(1))
        return [constraint for row in self.rows for constraint in row.constraints(z, u)]


def read_cost(
    table: Table,
    decisions: tuple[str, ...],
    outcomes: tuple[str, ...],
    parameters: tuple[cp.Parameter, ...] = (),
    formula_at: str = "cost.formula",
) -> TabledCost:
    """The cost that a table describes; its parts are added."""
    plain = _biaffine(table, decisions, outcomes)
    terms: list[Any] = [] if plain.is_zero else [plain]
    for maximum in table.tables("maxima"):
        pieces = [_whole(piece, decisions, outcomes) for piece in maximum.tables("pieces")]
        if len(pieces) < 2:
            raise maximum.wrong("pieces", "must be a list of at least 2 tables", pieces or None)
        weight = maximum.number("weight", 1.0)
        if weight <= 0:
            raise maximum.wrong("weight", "must be positive, otherwise the cost is not convex", weight)
        maximum.finish(["pieces", "weight"])
        terms.append(Maximum(weight, tuple(pieces)))
    if table.has("formula"):
        formula = Formula(table.text("formula"), decisions, outcomes, parameters)
        _try(formula, formula_at, relations=False)
        terms.append(formula)
    root = _root(table, len(decisions))
    if not terms and root is None:
        terms.append(plain)
    table.finish([*_BIAFFINE, "maxima", "formula", "quadratic"])
    return TabledCost(tuple(terms), root)


def read_rows(
    table: Table,
    key: str,
    decisions: tuple[str, ...],
    outcomes: tuple[str, ...],
    parameters: tuple[cp.Parameter, ...] = (),
) -> list[Row]:
    """Constraints: a list of formulas and tables."""
    value = table.take(key, [])
    if not isinstance(value, list) or not all(isinstance(item, (str, dict)) for item in value):
        raise table.wrong(key, 'must be a list of formulas such as "a + b <= 1" or of tables', value)
    rows = []
    for i, item in enumerate(value):
        place = f"{table.at(key)}[{i + 1}]"
        if isinstance(item, str):
            formula = Formula(item, decisions, outcomes, parameters)
            _try(formula, place, relations=True)
            rows.append(Row(formula, name=item))
        else:
            rows.append(_row(Table(item, place), decisions, outcomes, parameters))
    return rows


def _row(
    table: Table, decisions: tuple[str, ...], outcomes: tuple[str, ...], parameters: tuple[cp.Parameter, ...]
) -> Row:
    sides = [side for side in _SIDES if table.has(side)]
    if len(sides) != 1:
        raise ValueError(f"{table.place} must have exactly one of {', '.join(_SIDES)}, got {sides or 'none'}.")
    bound = _bound(table, sides[0], {parameter.name(): parameter for parameter in parameters})
    expression = _biaffine(table, decisions, outcomes)
    name = table.text("name", table.place)
    table.finish([*_BIAFFINE, *_SIDES, "name"])
    if not (expression.decision.any() or expression.sees_outcome):
        raise ValueError(f"{table.place} restricts nothing: all its coefficients are zero.")
    return Row(expression, sides[0], bound, name)


def _bound(table: Table, side: str, parameters: dict[str, cp.Parameter]) -> float | cp.Parameter:
    """A number, or the parameter that is named."""
    name = table.content.get(side)
    if not isinstance(name, str):
        return table.number(side)
    if name not in parameters:
        raise table.wrong(
            side, f"must be a finite number or a parameter ({', '.join(parameters) or 'there is none'})", name
        )
    return parameters[table.text(side)]


def _whole(table: Table, decisions: tuple[str, ...], outcomes: tuple[str, ...]) -> Biaffine:
    made = _biaffine(table, decisions, outcomes)
    table.finish(_BIAFFINE)
    return made


def _biaffine(table: Table, decisions: tuple[str, ...], outcomes: tuple[str, ...]) -> Biaffine:
    constant = table.number("constant", 0.0)
    outcome = table.vector("outcome", outcomes)
    if not decisions:
        return Biaffine(constant, np.zeros(1), outcome)
    product = table.matrix("product", len(outcomes), len(decisions), "one row an outcome, one column a decision")
    return Biaffine(constant, table.vector("decision", decisions), outcome, product)


def _root(table: Table, n: int) -> Array | None:
    """R with z' quadratic z = |R z|^2, which CVXPY sees to be convex."""
    P = table.matrix("quadratic", n, n, "a symmetric matrix")
    if P is None or not P.any():
        return None
    if not np.allclose(P, P.T, rtol=1e-9, atol=0):
        raise ValueError(f"{table.at('quadratic')} must be symmetric.")
    values, vectors = np.linalg.eigh((P + P.T) / 2)
    if values.min() < -1e-9 * values.max():
        raise ValueError(
            f"{table.at('quadratic')} must be positive semidefinite, its least eigenvalue is {values.min():.3g}: "
            "the cost would not be convex."
        )
    kept = values > 0
    return np.asarray(np.sqrt(values[kept])[:, None] * vectors.T[kept])


def _try(formula: Formula, place: str, *, relations: bool) -> None:
    """Read the formula once, so that a mistake is reported with its place."""
    z, u = cp.Variable(max(len(formula.decisions), 1)), cp.Variable(len(formula.outcomes))
    try:
        formula.relations(z, u) if relations else formula(z, u)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error
