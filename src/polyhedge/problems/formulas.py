"""Formulas in problem files: arithmetic over decisions, outcomes and parameters by name, read by Python's own parser.

Nothing is evaluated by Python: the parsed text is walked, and only the few parts below become CVXPY expressions.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import cvxpy as cp

from polyhedge.problems.toml_table import is_number

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {ast.LtE: operator.le, ast.GtE: operator.ge, ast.Eq: operator.eq}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "max": lambda *a: cp.maximum(*a),
    "min": lambda *a: cp.minimum(*a),
    "abs": cp.abs,
    "pos": cp.pos,
    "square": cp.square,
}
# Several pages of formula: longer ones are tables of numbers in disguise.
_MAX_LENGTH = 20_000
# Brackets, functions, factors and signs inside each other; CVXPY walks them by recursion, several calls a level.
_MAX_DEPTH = 100
# Of a formula that an error quotes.
_SHOWN = 200
# Names that are no identifiers stand in backquotes, such as `Heating Load`.
_QUOTED = re.compile("`([^`]*)`")


@dataclass(frozen=True)
class Formula:
    """A text such as "max(3 * (demand - order), 0) + 0.5 * order" and the names it may use.

    Examples
    --------
    >>> cost = Formula("2 * (demand - order) + square(order)", ("order",), ("demand",))
    >>> float(cost(cp.Constant([3.0]), cp.Constant([5.0])).value)
    13.0
    """

    text: str
    decisions: tuple[str, ...]
    outcomes: tuple[str, ...]
    parameters: tuple[cp.Parameter, ...] = field(default=(), compare=False)

    def __call__(self, z: Any, u: Any) -> Any:
        """The expression at a decision and an outcome."""
        return _Walk(self, z, u).number(_parse(self.text)[0])

    def relations(self, z: Any, u: Any) -> list[cp.Constraint]:
        """The constraints of a text such as "0 <= order <= 5"."""
        node, _ = _parse(self.text)
        if not isinstance(node, ast.Compare):
            raise ValueError(f'"{_shown(self.text)}" must compare two sides with <=, >= or ==.')
        walk = _Walk(self, z, u)
        sides = [walk.number(side) for side in (node.left, *node.comparators)]
        for op in node.ops:
            if type(op) not in _COMPARE:
                raise ValueError(f'"{_shown(self.text)}" must compare with <=, >= or ==.')
        made = [
            _COMPARE[type(op)](left, right) for op, left, right in zip(node.ops, sides[:-1], sides[1:], strict=True)
        ]
        if not self.names() or any(not isinstance(constraint, cp.Constraint) for constraint in made):
            raise ValueError(f'"{_shown(self.text)}" must restrict a decision or an outcome, and not compare numbers.')
        return made

    def names(self) -> set[str]:
        """The decisions and outcomes that the text mentions."""
        node, quoted = _parse(self.text)
        calls = {id(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}
        mentioned = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and id(part) not in calls}
        return {quoted.get(name, name) for name in mentioned} & {*self.decisions, *self.outcomes}


@lru_cache(maxsize=1024)
def _parse(text: str) -> tuple[ast.expr, dict[str, str]]:
    """The parsed text, and what the identifiers that stand in for quoted names mean."""
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"A formula may have {_MAX_LENGTH} characters, got {len(text)}. Use tables of numbers.")
    quoted: dict[str, str] = {}

    def stand_in(match: re.Match[str]) -> str:
        quoted[f"quoted_name_{len(quoted)}_"] = match.group(1)
        return f" {list(quoted)[-1]} "

    try:
        one_line = " ".join(_QUOTED.sub(stand_in, text).split())
        node = ast.parse(one_line, mode="eval").body
    except (RecursionError, MemoryError) as error:  # also where it is a sum of thousands
        raise ValueError(f'"{_shown(text)}" is too long for a formula. Use tables of numbers.') from error
    except (SyntaxError, ValueError) as error:
        raise ValueError(f'"{_shown(text)}" is not a formula: {getattr(error, "msg", error)}.') from error
    if _is_deep(node):
        raise ValueError(
            f'"{_shown(text)}" is nested more than {_MAX_DEPTH} deep. Write max(a, b, c) instead of max(a, max(b, c)), '
            "put numbers that are multiplied together, or use tables of numbers."
        )
    return node, quoted


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _is_deep(node: ast.expr) -> bool:
    """Whether parts are nested beyond the limit; the terms of a sum stand beside each other."""
    level: list[ast.AST] = [node]
    for _ in range(_MAX_DEPTH):
        level = [inner for part in level for one in _terms(part) for inner in ast.iter_child_nodes(one)]
        if not level:
            return False
    return True


def _terms(node: ast.AST) -> list[ast.AST]:
    """The terms of a sum, in their order: the left of a chain is its inner part, as deep as the chain is long."""
    terms: list[ast.AST] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        terms.append(node.right)
        node = node.left
    return [node, *reversed(terms)]


class _Walk:
    def __init__(self, formula: Formula, z: Any, u: Any) -> None:
        self.text, self.quoted = _shown(formula.text), _parse(formula.text)[1]
        # Entries are made where they are named: there may be thousands of which a formula names two.
        self.places = {name: (u, i) for i, name in enumerate(formula.outcomes)}
        self.places |= {name: (z, i) for i, name in enumerate(formula.decisions)}
        self.parameters = {parameter.name(): parameter for parameter in formula.parameters}

    def number(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and is_number(node.value):
            return float(node.value)  # type: ignore[arg-type]
        if isinstance(node, ast.Name):
            return self._leaf(self.quoted.get(node.id, node.id))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
            value = self.number(node.operand)
            return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            return self._power(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            return self._sum(node)
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return self._binary(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._call(node.func.id, [self.number(argument) for argument in node.args])
        raise ValueError(
            f'"{self.text}" holds "{ast.unparse(node)[:80]}". A formula is made of numbers, names, + - * / **2, '
            f"parentheses and the functions {', '.join(_FUNCTIONS)}."
        )

    def _leaf(self, name: str) -> Any:
        if name in self.parameters:
            return self.parameters[name]
        if name not in self.places:
            known = [*self.places, *self.parameters]
            close = get_close_matches(name, known, n=1)
            hint = f' Did you mean "{close[0]}"?' if close else f" Known are {_shown(', '.join(known))}."
            raise ValueError(f'"{self.text}" names "{name}", which is no decision and no outcome.{hint}')
        whole, place = self.places[name]
        return whole[place]

    def _sum(self, node: ast.expr) -> Any:
        """A chain of sums and differences from its left end, without a call inside a call for each."""
        chain = []
        while isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            chain.append((_BINARY[type(node.op)], node.right))
            node = node.left
        total = self.number(node)
        for operation, right in reversed(chain):
            total = operation(total, self.number(right))
        return total

    def _binary(self, node: ast.BinOp) -> Any:
        left, right = self.number(node.left), self.number(node.right)
        if isinstance(node.op, ast.Div) and (not isinstance(right, float) or right == 0):
            raise ValueError(f'"{self.text}" divides by "{ast.unparse(node.right)}"; divide by nonzero numbers only.')
        return _BINARY[type(node.op)](left, right)

    def _power(self, node: ast.BinOp) -> Any:
        base, exponent = self.number(node.left), self.number(node.right)
        if exponent != 2.0:
            raise ValueError(f'"{self.text}" has the exponent "{ast.unparse(node.right)}"; only **2 is allowed.')
        return cp.square(base) if isinstance(base, cp.Expression) else base * base

    def _call(self, name: str, arguments: list[Any]) -> Any:
        if name not in _FUNCTIONS:
            close = get_close_matches(name, _FUNCTIONS, n=1)
            hint = f"Did you mean {close[0]}?" if close else f"Known are {', '.join(_FUNCTIONS)}."
            raise ValueError(f'"{self.text}" calls "{name}", which is no known function. {hint}')
        n_wanted = 2 if name in ("max", "min") else 1
        if len(arguments) < n_wanted or (n_wanted == 1 and len(arguments) > 1):
            raise ValueError(f'"{self.text}" gives {name} {len(arguments)} argument(s).')
        return _FUNCTIONS[name](*arguments)
