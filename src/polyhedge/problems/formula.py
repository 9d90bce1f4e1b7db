"""Formulas: CVXPY expressions, their plain data (model files, pickles) and their text (problem files, pages).

CVXPY's expression is the one tree. `to_data` and `from_data` write it as nested dictionaries of atom names, numbers and
arrays. `from_text` reads arithmetic over names, `to_text` shows any expression. Data and text of an unknown file can do
no more than describe a formula: atoms are built from a fixed list, nothing else is called, and depth and size are
limited.
"""

from __future__ import annotations

import ast
import inspect
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from functools import cache, lru_cache, reduce
from typing import Any, NoReturn

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.atom import Atom

from polyhedge._support.validation import Array

Leaves = Mapping[int, Any]
"""Replacements of leaves, by the leaf's id in CVXPY."""

MAX_DEPTH = 200
"""Levels of a formula in a file; Python's recursion limit is five times that."""
MAX_NODES = 50_000
"""Parts of all formulas of a file, a second's work."""
MAX_SIZE = 1_000_000
"""Entries of one part of a formula."""
MAX_TOTAL = 10_000_000
"""Entries of all parts of a problem's formulas."""
MAX_LETTERS = 20_000
"""Letters of a formula in text; longer ones are tables of numbers in disguise."""
MAX_TEXT_DEPTH = 100
"""Levels of a formula in text: CVXPY recurses several times a level."""


class NotPortableError(ValueError):
    """The expression holds something that cannot be written as plain data."""


def substitute(node: cp.Expression, leaves: Leaves) -> cp.Expression:
    """The expression with leaves replaced, by their id; parts that hold none of them are shared, not copied."""
    if not node.args:
        return leaves.get(getattr(node, "id", -1), node)
    args = [substitute(argument, leaves) for argument in node.args]
    # The atom cannot be compiled if its variable has become a number; the function can.
    if type(node) is cp.QuadForm and args[0].is_constant():
        return cp.quad_form(*args)
    is_same = all(new is old for new, old in zip(args, node.args, strict=True))
    return node if is_same else node.copy(args)


def substitute_in(constraint: cp.Constraint, leaves: Leaves) -> cp.Constraint:
    """The constraint with leaves replaced; an inequality gets a new id, so that several copies can be combined."""
    args = [substitute(argument, leaves) for argument in constraint.args]
    return args[0] <= args[1] if isinstance(constraint, cp.constraints.Inequality) else constraint.copy(args)


def in_structure(decision: Any, leaves: Sequence[Any]) -> Any:
    """Other leaves in the structure of a decision: one, a list, a tuple or a dictionary."""
    if isinstance(decision, Mapping):
        return dict(zip(decision, leaves, strict=True))
    if isinstance(decision, list):
        return list(leaves)
    return tuple(leaves) if isinstance(decision, tuple) else leaves[0]


def leaves_of(decision: Any, given: Any) -> list[Any]:
    """The parts of something in the structure of a decision, one for each variable."""
    if isinstance(decision, Mapping):
        return [given[name] for name in decision]
    return list(given) if isinstance(decision, (list, tuple)) else [given]


def unit_values(leaves: Sequence[Any], step: float) -> list[dict[int, Array]]:
    """Values of leaves, by id: all at zero, then one entry after the other at `step`."""
    zeros = {leaf.id: np.zeros(leaf.shape) for leaf in leaves}
    units = ((leaf.id, unit) for leaf in leaves for unit in step * np.eye(leaf.size).reshape(leaf.size, *leaf.shape))
    return [zeros, *(zeros | {key: unit} for key, unit in units)]


@dataclass(frozen=True, eq=False)
class FormulaFunction:
    """A cost `(z, u) -> expression`, or constraints `(z, u)` or `(u) -> list`, given by formulas.

    With recourse they are functions of `(z, u, y)`.

    Attributes
    ----------
    decision : the variables of the formulas in the structure of a decision.
    outcome : their variable u.
    formulas : one expression, or a tuple of constraints.
    recourse : their recourse variables; None if there are none.
    """

    decision: Any
    outcome: cp.Variable
    formulas: Any
    recourse: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """The formulas at (z, u), or at u alone."""
        if len(arguments) == 1:
            arguments = (self.decision, *arguments)
        leaves: dict[int, Any] = {self.outcome.id: arguments[1]}
        for own, given in zip((self.decision, self.recourse), (arguments[0], *arguments[2:]), strict=False):
            pairs = zip(leaves_of(own, own), leaves_of(own, given), strict=True)
            leaves |= {variable.id: part for variable, part in pairs}
        if isinstance(self.formulas, cp.Expression):
            return substitute(self.formulas, leaves)
        return [substitute_in(row, leaves) for row in self.formulas]


# --- plain data -------------------------------------------------------------------------------------------

_ATOM_NAMES = (
    # affine
    "AddExpression Concatenate DivExpression Hstack MulExpression NegExpression Promote Sum Trace Vstack "
    "broadcast_to conj conv convolve cumsum diag_mat diag_vec index kron multiply nonneg_wrap nonpos_wrap nsd_wrap "
    "psd_wrap reshape special_index symmetric_wrap transpose upper_tri "
    # elementwise
    "Power PowerApprox abs entr exp huber kl_div log log1p logistic maximum minimum rel_entr xexp "
    # of several entries
    "GeoMean GeoMeanApprox MatrixFrac Pnorm PnormApprox cummax dotsort lambda_max log_det log_sum_exp max min "
    "norm1 normNuc norm_inf quad_over_lin sigma_max sum_largest tr_inv "
    # constraints
    "Equality ExpCone Inequality NonNeg NonPos PSD PowCone3D SOC Zero"
)
_ATOMS = frozenset(_ATOM_NAMES.split())
"""Names of atoms and constraints in files: those of CVXPY 1.9."""
_NAMES_BEFORE_1_8 = {"Power": "power", "PowerApprox": "power", "PnormApprox": "Pnorm", "Trace": "trace"}


def to_data(node: Any, leaves: Mapping[int, str]) -> dict[str, Any]:
    """Plain data of an expression or constraint; `leaves` names its variables and parameters by their id."""
    if isinstance(node, (cp.Variable, cp.Parameter)):
        if node.id not in leaves:
            kind = "variable" if isinstance(node, cp.Variable) else "parameter"
            raise NotPortableError(f"it holds the {kind} {node.name()}, which the problem does not know")
        return {"leaf": leaves[node.id]}
    if isinstance(node, cp.Constant):
        return {"constant": _constant_to_data(node.value)}
    names = ["quad_form"] if type(node) is cp.QuadForm else [n for n, made in _classes().items() if made is type(node)]
    if not names:
        raise NotPortableError(f"it holds {type(node).__name__}, which is not on the list of known parts")
    settings = node.get_data() or []
    if isinstance(node, cp.Constraint):
        settings = settings[:-1]  # the last is the constraint's id
    return {
        "atom": names[-1],  # the last of two is the one with "Approx"
        "args": [to_data(argument, leaves) for argument in node.args],
        "data": [_setting_to_data(item) for item in settings],
    }


class FormulaBudget:
    """Parts and entries that the formulas of one problem may still have."""

    def __init__(self) -> None:
        self.nodes_left, self.entries_left = MAX_NODES, MAX_TOTAL

    def take_node(self, depth: int) -> None:
        """Count one part, at `depth` levels above the deepest that is allowed."""
        self.nodes_left -= 1
        if depth == 0 or self.nodes_left < 0:
            raise ValueError(f"A formula may have {MAX_NODES} parts, nested {MAX_DEPTH} deep; this one has more.")

    def take_entries(self, n: float, what: str) -> None:
        """Count the entries of a part."""
        self.entries_left -= int(min(n, MAX_TOTAL + 1))
        if n > MAX_SIZE or self.entries_left < 0:
            raise ValueError(
                f"A part of a formula may have {MAX_SIZE} entries, and all parts {MAX_TOTAL}; {what} has {n:g}."
            )


def from_data(data: Any, leaves: Mapping[str, Any], budget: FormulaBudget | None = None, depth: int = MAX_DEPTH) -> Any:
    """The expression or constraint that plain data describe, with `leaves` for its variables and parameters."""
    budget = FormulaBudget() if budget is None else budget
    budget.take_node(depth)
    if "leaf" in data:
        return leaves[data["leaf"]]
    if "constant" in data:
        return cp.Constant(_constant_from_data(data["constant"], budget))
    args = [from_data(argument, leaves, budget, depth - 1) for argument in data["args"]]
    made = _atom(data["atom"], args, [_setting_from_data(item, budget, depth - 1) for item in data["data"]])
    size = sum(a.size for a in made.args) if isinstance(made, cp.Constraint) else made.size
    budget.take_entries(size, str(data["atom"])[:80])
    return made


def _atom(name: str, args: list[Any], settings: list[Any]) -> Any:
    if name == "quad_form":
        return cp.quad_form(*args)
    if name not in _ATOMS:
        raise ValueError(f"{name!r} is not on the list of known parts of a formula.")
    if name not in _classes():
        raise ValueError(
            f"The formula holds {name}, which CVXPY {cp.__version__} does not have. Install a newer CVXPY."
        )
    made = _classes()[name]
    if name == "AddExpression":
        return made(args)
    parameters = inspect.signature(made).parameters.values()
    if not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        room = max(len(parameters) - len(args), 0)
        if any(item is not None and item is not False for item in settings[room:]):
            raise ValueError(f"{name} has settings that CVXPY {cp.__version__} does not know. Install a newer CVXPY.")
        settings = settings[:room]
    return made(*args, *settings)


@cache
def _classes() -> dict[str, type]:
    """CVXPY's classes by their name in files; a user's are not on the list, whatever their names."""

    def below(base: Any) -> Iterator[type]:
        for made in base.__subclasses__():
            if made.__module__.startswith("cvxpy."):
                yield made
                yield from below(made)

    # CVXPY moves classes between modules more often than it renames them.
    here = {made.__name__: made for made in (*below(Atom), *below(cp.Constraint))}
    known = {name: here.get(name, here.get(_NAMES_BEFORE_1_8.get(name, ""))) for name in sorted(_ATOMS)}
    return {name: made for name, made in known.items() if made is not None}


def _constant_to_data(value: Any) -> Any:
    """A number, an array, or the entries of a sparse matrix."""
    if value is None:
        raise NotPortableError("it holds a parameter without a value")
    if sp.issparse(value):
        coo = value.tocoo()
        positions = [np.asarray(part, dtype=np.int64) for part in (coo.row, coo.col)]
        shape = [int(n) for n in value.shape]
        return {"sparse": [*positions, _real(np.asarray(coo.data))], "shape": shape, "format": value.format}
    array = _real(np.asarray(value))
    return array.item() if array.ndim == 0 else array


def _real(array: Any) -> Any:
    if array.dtype.kind not in "bifu":
        raise NotPortableError(f"it holds a constant of type {array.dtype}")
    return array.astype(np.int64 if array.dtype.kind in "bi" else np.float64)


def _constant_from_data(data: Any, budget: FormulaBudget) -> Any:
    if not isinstance(data, dict):
        if not isinstance(data, (int, float, np.ndarray)) or not np.isfinite(data).all():
            raise ValueError("A constant of a formula must be a finite number or an array.")
        budget.take_entries(np.size(data), "a constant")
        return data
    row, column, entries = data["sparse"]
    shape = tuple(data["shape"])
    if len(shape) != 2 or any(type(n) is not int or n < 1 for n in shape):
        raise ValueError(f"A sparse constant must have two axes, got the shape {str(shape)[:80]}.")
    # Counted before it is built: a matrix without entries takes the memory of its rows or columns.
    budget.take_entries(float(shape[0]) * shape[1], "a sparse constant")
    positions = ((row, shape[0]), (column, shape[1]))
    if any(p.dtype.kind != "i" or p.shape != entries.shape or ((p < 0) | (p >= n)).any() for p, n in positions):
        raise ValueError("A sparse constant has entries outside of it.")
    matrix = sp.coo_array((entries, (row, column)), shape=shape)
    return matrix.asformat("csr" if data["format"] == "csr" else "csc")


def _setting_to_data(item: Any) -> Any:
    """An axis, a shape, an exponent or an index of an atom."""
    if item is None or isinstance(item, (bool, str, int, float)):
        return item
    if isinstance(item, (np.bool_, np.integer, np.floating)):
        return item.item()
    if isinstance(item, slice):
        return {"slice": [_setting_to_data(part) for part in (item.start, item.stop, item.step)]}
    if isinstance(item, (list, tuple)):
        return {type(item).__name__: [_setting_to_data(part) for part in item]}
    if isinstance(item, Fraction):
        return {"fraction": [item.numerator, item.denominator]}
    if item is Ellipsis:
        return {"ellipsis": True}
    if isinstance(item, np.ndarray):
        return {"array": _real(item), "is_mask": item.dtype.kind == "b"}
    if isinstance(item, cp.Expression):
        return {"expression": to_data(item, {})}
    raise NotPortableError(f"it holds a {type(item).__name__}")


def _setting_from_data(data: Any, budget: FormulaBudget, depth: int) -> Any:
    budget.take_node(depth)
    if not isinstance(data, dict):
        return data
    ((kind, content), *more) = data.items()
    if kind in ("slice", "list", "tuple"):
        parts = [_setting_from_data(part, budget, depth - 1) for part in content]
        return slice(*parts) if kind == "slice" else parts if kind == "list" else tuple(parts)
    if kind == "fraction":
        # CVXPY's denominators go up to 1024.
        if any(type(n) is not int or abs(n) > 2**32 for n in content):
            raise ValueError("An exponent must be a fraction of two numbers of moderate size.")
        return Fraction(*content)
    if kind == "array":
        return content.astype(bool) if more[0][1] else content
    if kind == "expression":
        return from_data(content, {}, budget, depth - 1)
    if kind == "ellipsis":
        return Ellipsis
    raise ValueError(f"{kind!r} is not a known kind of setting in a formula.")


# --- from text --------------------------------------------------------------------------------------------

_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.LtE: operator.le,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "max": lambda *a: cp.maximum(*a),
    "min": lambda *a: cp.minimum(*a),
    "abs": cp.abs,
    "pos": cp.pos,
    "square": cp.square,
}


def from_text(text: str, entries: Mapping[str, Any]) -> Any:
    """The expression of a text such as "max(3 * (demand - order), 0) + 0.5 * order".

    Python's parser reads the text, and nothing of it is evaluated. Names that are no identifiers stand in backquotes.

    Parameters
    ----------
    text : numbers, names, + - * / **2, parentheses and the functions max, min, abs, pos, square.
    entries : (vector, position) or an expression, by name.

    Examples
    --------
    >>> z = cp.Constant([3.0, 5.0])
    >>> float(from_text("2 * (demand - order) + square(order)", {"order": (z, 0), "demand": (z, 1)}).value)
    13.0
    """
    node, quoted = _parsed(text)
    return _TextReader(text, quoted, entries).number(node)


def constraints_from_text(text: str, entries: Mapping[str, Any]) -> list[cp.Constraint]:
    """The constraints of a text such as "0 <= order <= 5"; arguments as of `from_text`."""
    node, quoted = _parsed(text)
    if not isinstance(node, ast.Compare):
        raise ValueError(f'"{_quote(text)}" must compare two sides with <=, >= or ==.')
    reader = _TextReader(text, quoted, entries)
    sides = [reader.number(side) for side in (node.left, *node.comparators)]
    if any(not isinstance(op, (ast.LtE, ast.GtE, ast.Eq)) for op in node.ops):
        raise ValueError(f'"{_quote(text)}" must compare with <=, >= or ==.')
    pairs = zip(node.ops, sides[:-1], sides[1:], strict=True)
    made = [_OPERATORS[type(op)](left, right) for op, left, right in pairs]
    if not all(isinstance(row, cp.Constraint) for row in made) or not any(row.variables() for row in made):
        raise ValueError(f'"{_quote(text)}" must restrict a decision or an outcome, and not compare numbers.')
    return made


def close_match(name: str, known: Iterable[str]) -> str:
    """A hint for a name that is not known: the one that was meant, or all that are."""
    names = list(known)
    close = get_close_matches(name, names, n=1)
    return f' Did you mean "{close[0]}"?' if close else f" Known are {_quote(', '.join(names))}."


def is_number(value: Any) -> bool:
    """Whether a value of a file is a finite number that a float can hold."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


@lru_cache(maxsize=64)
def _parsed(text: str) -> tuple[ast.expr, dict[str, str]]:
    """The syntax tree, and the quoted name that each stand-in identifier means."""
    if len(text) > MAX_LETTERS:
        raise ValueError(f"A formula may have {MAX_LETTERS} characters, got {len(text)}. Use tables of numbers.")
    quoted: dict[str, str] = {}

    def stand_in(match: re.Match[str]) -> str:
        quoted[f"quoted_name_{len(quoted)}_"] = match.group(1)
        return f" {list(quoted)[-1]} "

    try:
        node = ast.parse(" ".join(re.sub("`([^`]*)`", stand_in, text).split()), mode="eval").body
    except (RecursionError, MemoryError) as error:
        raise ValueError(f'"{_quote(text)}" is too long for a formula. Use tables of numbers.') from error
    except (SyntaxError, ValueError) as error:
        raise ValueError(f'"{_quote(text)}" is not a formula: {getattr(error, "msg", error)}.') from error
    level: list[ast.AST] = [node]
    for _ in range(MAX_TEXT_DEPTH):
        level = [inner for part in level for _, term in _terms(part) for inner in ast.iter_child_nodes(term)]
    if level:
        raise ValueError(
            f'"{_quote(text)}" is nested more than {MAX_TEXT_DEPTH} deep. Write max(a, b, c) instead of '
            "max(a, max(b, c)), put numbers that are multiplied together, or use tables of numbers."
        )
    return node, quoted


def _quote(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}..."


def _terms(node: ast.AST) -> list[tuple[Callable[[Any, Any], Any], ast.AST]]:
    """The terms of a sum with their operators, in order: Python nests a chain as deep as it is long."""
    terms = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        terms.append((_OPERATORS[type(node.op)], node.right))
        node = node.left
    return [(operator.add, node), *reversed(terms)]


class _TextReader:
    def __init__(self, text: str, quoted: Mapping[str, str], entries: Mapping[str, Any]) -> None:
        self.text, self.quoted, self.entries = _quote(text), quoted, entries

    def number(self, node: Any) -> Any:
        if isinstance(node, ast.Constant) and is_number(node.value):
            return float(node.value)  # type: ignore[arg-type]
        if isinstance(node, ast.Name):
            name = self.quoted.get(node.id, node.id)
            if name not in self.entries:
                self.refuse(f'names "{name}", which is no decision and no outcome.{close_match(name, self.entries)}')
            found = self.entries[name]
            return found[0][found[1]] if isinstance(found, tuple) else found
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
            value = self.number(node.operand)
            return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            (_, first), *rest = _terms(node)
            return reduce(lambda total, term: term[0](total, self.number(term[1])), rest, self.number(first))
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div, ast.Pow)):
            return self.product(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self.call(node.func.id, [self.number(argument) for argument in node.args])
        self.refuse(
            f'holds "{ast.unparse(node)[:80]}". A formula is made of numbers, names, + - * / **2, parentheses and the '
            f"functions {', '.join(_FUNCTIONS)}."
        )

    def product(self, node: ast.BinOp) -> Any:
        left, right = self.number(node.left), self.number(node.right)
        if isinstance(node.op, ast.Pow):
            if right != 2.0:
                self.refuse(f'has the exponent "{ast.unparse(node.right)}"; only **2 is allowed.')
            return cp.square(left) if isinstance(left, cp.Expression) else left * left
        if isinstance(node.op, ast.Div) and (not isinstance(right, float) or right == 0):
            self.refuse(f'divides by "{ast.unparse(node.right)}"; divide by nonzero numbers only.')
        return _OPERATORS[type(node.op)](left, right)

    def call(self, name: str, arguments: list[Any]) -> Any:
        if name not in _FUNCTIONS:
            self.refuse(f'calls "{name}", which is no known function.{close_match(name, _FUNCTIONS)}')
        if not (len(arguments) >= 2 if name in ("max", "min") else len(arguments) == 1):
            self.refuse(f"gives {name} {len(arguments)} argument(s).")
        return _FUNCTIONS[name](*arguments)

    def refuse(self, why: str) -> NoReturn:
        raise ValueError(f'"{self.text}" {why}')


# --- to text ----------------------------------------------------------------------------------------------

# Precedence of a text: one that is lower than its place asks for gets brackets.
_SUM, _PRODUCT, _CLOSED = range(3)
_CALLED = {
    "PnormApprox": "norm",
    "Pnorm": "norm",
    "PowerApprox": "power",
    "QuadForm": "quad_form",
    "quad_over_lin": "sum_squares",
}
"""Names of atoms in CVXPY's tree that are not those of the functions which a user calls."""


def to_text(node: cp.Expression | cp.Constraint, names: Mapping[str, str] | None = None) -> str:
    """The text of an expression or constraint; `names` call variables and entries such as `z[0]` otherwise.

    CVXPY's own text leaves brackets out. A side of a constraint that is one number in every row is that number.

    Examples
    --------
    >>> z, u = cp.Variable(2, name="z"), cp.Variable(2, name="u")
    >>> to_text(cp.sum(cp.pos(z - 2 * u)) - (z[0] - (u[0] + 1)))
    'sum(maximum(z - 2 * u, 0)) - (z[0] - (u[0] + 1))'
    >>> to_text((z + u)[0] * 3 - z[1], {"z[1]": "bread"})
    '(z + u)[0] * 3 - bread'
    >>> to_text(z >= np.zeros(2))
    '0 <= z'
    """
    names = names or {}
    if isinstance(node, cp.Expression):
        return _text(node, names)[0]
    parts = [_text(argument, names)[0] for argument in node.args]
    if not isinstance(node, (cp.constraints.Inequality, cp.constraints.Equality)):
        return f"{type(node).__name__}({', '.join(parts)})"
    for k, side in enumerate(node.args):
        if isinstance(side, cp.Constant) and side.size and (value := _dense(side)).min() == value.max():
            parts[k] = _number(value.flat[0])
    return f"{parts[0]} {'<=' if isinstance(node, cp.constraints.Inequality) else '=='} {parts[1]}"


def _text(node: cp.Expression, names: Mapping[str, str]) -> tuple[str, int]:
    """A text and its precedence."""
    kind = type(node).__name__
    if isinstance(node, cp.Constant):
        return _constant_text(_dense(node))
    if not node.args:
        return names.get(node.name(), node.name()), _CLOSED
    if kind in ("Promote", "broadcast_to"):
        return _text(node.args[0], names)
    if kind == "AddExpression":
        terms = [_text(argument, names)[0] for argument in node.args]
        return terms[0] + "".join(f" - {t[1:]}" if t.startswith("-") else f" + {t}" for t in terms[1:]), _SUM
    if kind == "NegExpression":
        return f"-{_within(node.args[0], names, _PRODUCT)}", _SUM
    if kind in ("MulExpression", "multiply", "DivExpression"):
        return _product_text(node, kind, names)
    if kind in ("index", "special_index"):
        inner = node.args[0]
        place = node.name()[len(inner.name()) :]
        if kind == "special_index" and inner.ndim == 1:
            place = f"[{place}]"  # entries of a list, not a row and a column
        text = f"{_within(inner, names, _CLOSED)}{place}"
        return names.get(text, text), _CLOSED
    if kind == "transpose":
        return f"{_within(node.args[0], names, _CLOSED)}.T", _CLOSED
    return _call_text(node, kind, names), _CLOSED


def _constant_text(value: Any) -> tuple[str, int]:
    if value.size == 1:
        return _number(value.flat[0]), _CLOSED if value.flat[0] >= 0 else _SUM
    if value.size > 6:  # of more numbers only the size is shown
        return f"({' x '.join(map(str, value.shape))} numbers)", _CLOSED
    rows = [f"[{', '.join(map(_number, row))}]" for row in np.atleast_2d(value)]
    return (rows[0] if value.ndim == 1 else f"[{', '.join(rows)}]"), _CLOSED


def _product_text(node: cp.Expression, kind: str, names: Mapping[str, str]) -> tuple[str, int]:
    left, right = node.args
    for factor, other in ((left, right), (right, left)):
        while type(factor).__name__ in ("Promote", "broadcast_to"):
            factor = factor.args[0]
        is_one = kind != "DivExpression" and isinstance(factor, cp.Constant) and factor.shape == ()
        if is_one and abs(unit := float(factor.value)) == 1.0:
            return (f"-{_within(other, names, _PRODUCT)}", _SUM) if unit < 0 else _text(other, names)
    is_matrix = kind == "MulExpression" and not (left.is_scalar() or right.is_scalar())
    sign = "/" if kind == "DivExpression" else "@" if is_matrix else "*"
    # a / (b * c) is not a / b * c
    tight = _PRODUCT if sign == "*" else _CLOSED
    return f"{_within(left, names, _PRODUCT)} {sign} {_within(right, names, tight)}", _PRODUCT


def _call_text(node: Any, kind: str, names: Mapping[str, str]) -> str:
    args = [_text(argument, names)[0] for argument in node.args]
    if kind == "quad_over_lin":
        if args[1] != "1":
            return f"quad_over_lin({', '.join(args)})"
        args = args[:1]
    if kind in ("norm1", "norm_inf"):
        return f"norm({args[0]}, {'1' if kind == 'norm1' else 'inf'})"
    if kind in ("power", "PowerApprox", "Pnorm", "PnormApprox"):
        args.append(_number(getattr(node.p, "value", node.p)))
    if kind in ("sum_largest", "sum_smallest"):
        args.append(_number(node.k))
    if getattr(node, "axis", None) is not None and node.args[0].ndim > 1:
        args.append(f"axis={node.axis}")
    name = _CALLED.get(kind, kind)
    return f"{name[:1].lower()}{name[1:]}({', '.join(args)})"


def _within(node: cp.Expression, names: Mapping[str, str], asked: int) -> str:
    text, precedence = _text(node, names)
    return text if precedence >= asked else f"({text})"


def _dense(node: Any) -> Any:
    return np.asarray(node.value.toarray() if hasattr(node.value, "toarray") else node.value, dtype=float)


def _number(value: Any) -> str:
    return f"{float(value) + 0.0:.6g}"
