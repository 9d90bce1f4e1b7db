"""Options that commands share: how a table is read, how a model file is opened, what is asked of solvers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter as Argument
from inspect import Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from polyhedge import io
from polyhedge.app.reading import MAX_VALUES, read_table
from polyhedge.io.archive import MAX_BYTES

if TYPE_CHECKING:
    from polyhedge.estimator import RobustDecider
    from polyhedge.io.fit_record import FitRecord
    from polyhedge.predictors.table import Table
    from polyhedge.problems import DecisionProblem

__all__ = [
    "AsJson",
    "MaxBytes",
    "ModelFile",
    "Opening",
    "Parameter",
    "Reading",
    "SignKey",
    "Solving",
    "VerifyKey",
    "names_in",
    "opened",
    "read_problem",
    "with_bundles",
]

Parameter = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        metavar="NAME=COLUMN",
        help="Column with a parameter of the problem, or one number for all rows; by default the column of its name.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
ModelFile = Annotated[Path, typer.Argument(help="Model file, written by polyhedge fit.")]
SignKey = Annotated[
    Path | None, typer.Option("--sign", help="Private key to sign the model file with; polyhedge keygen makes one.")
]
MaxBytes = Annotated[
    int, typer.Option(min=1, help="Unpacked size beyond which a model file is refused, against files that are traps.")
]
VerifyKey = Annotated[
    Path | None,
    typer.Option("--verify", help="Public key: a model file that it has not signed, or that has changed, is refused."),
]


def with_bundles(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of its bundles in their place: the command line knows options alone.

    A bundle is a parameter whose type is a dataclass; its fields are annotated as options are.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Size:
    ...     width: int = 2
    ...     height: int = 3
    >>> @with_bundles
    ... def area(name: str, size: Size) -> None:
    ...     print(name, size.width * size.height)
    >>> area(name="field", width=4, height=5)
    field 20
    """
    types = get_type_hints(command, include_extras=True)
    bundles = {name: kind for name, kind in types.items() if is_dataclass(kind) and isinstance(kind, type)}
    options: list[Argument] = []
    for parameter in signature(command).parameters.values():
        name = parameter.name
        own = _options_of(bundles[name]) if name in bundles else [parameter.replace(annotation=types[name])]
        options += [option.replace(kind=Argument.KEYWORD_ONLY) for option in own]

    @wraps(command)
    def called(**given: Any) -> None:
        for name, bundle in bundles.items():
            given[name] = bundle(**{field.name: given.pop(field.name) for field in fields(bundle)})
        command(**given)

    called.__signature__ = Signature(options)  # type: ignore[attr-defined]
    called.__annotations__ = {option.name: option.annotation for option in options}
    return called


def _options_of(bundle: type) -> list[Argument]:
    types = get_type_hints(bundle, include_extras=True)
    return [
        Argument(field.name, Argument.KEYWORD_ONLY, default=field.default, annotation=types[field.name])
        for field in fields(bundle)
    ]


def names_in(text: str | None) -> tuple[str, ...]:
    """Names separated by commas.

    Examples
    --------
    >>> names_in("heating_load, cooling_load")
    ('heating_load', 'cooling_load')
    """
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


@dataclass(frozen=True)
class Reading:
    """How the user's table is read."""

    separator: Annotated[
        str | None, typer.Option(help="Character between values of a CSV file; found out if not given.")
    ] = None
    encoding: Annotated[str | None, typer.Option(help="Encoding of a CSV file, such as utf-8 or cp1252.")] = None
    decimal: Annotated[
        str | None, typer.Option(help="Decimal sign of a CSV file: '.' or ','; found out if not given.")
    ] = None
    missing: Annotated[str | None, typer.Option(help="More words for a missing value, separated by commas.")] = None
    max_values: Annotated[
        int,
        typer.Option(min=1, help="Values (rows times columns) beyond which a table is refused, to spare the memory."),
    ] = MAX_VALUES

    def table(self, path: Path) -> Table:
        """The table in a file."""
        return read_table(
            path,
            separator=self.separator,
            encoding=self.encoding,
            decimal=self.decimal,
            missing=names_in(self.missing),
            max_values=self.max_values,
        )


def read_problem(reference: str, uncertain: str | None = None) -> DecisionProblem:
    """A problem from a TOML file, an MPS file and what is uncertain in it, or Python code as FILE.py:NAME."""
    from polyhedge import problems

    if reference.endswith((".mps", ".mps.gz")):
        return problems.from_mps(reference, _uncertain(reference, uncertain))
    if uncertain is not None:
        raise ValueError(f"--uncertain is for MPS files, and {reference!r} says itself what is. Leave it out.")
    if ".py:" in reference:
        return problems.from_reference(reference)
    if not reference.endswith(".toml"):
        raise ValueError(f"The problem must be a .toml or .mps file, or FILE.py:NAME, got {reference!r}.")
    if not Path(reference).is_file():
        raise FileNotFoundError(f"There is no file {reference}. Check the path.")
    return problems.from_toml(reference)


def _uncertain(path: str, text: str | None) -> Any:
    """Names of columns and rows, or a dictionary of them where a name is both."""
    if not (text or "").strip():
        raise ValueError(
            f"{path} does not say what is uncertain in it. Name columns whose costs, and rows whose right-hand sides "
            "are: --uncertain NAME,NAME"
        )
    if not str(text).lstrip().startswith("{"):
        return names_in(str(text))
    try:
        return json.loads(str(text).replace("'", '"'))
    except json.JSONDecodeError as error:
        raise ValueError(
            f'--uncertain must be NAME,NAME or {{"columns": [...], "rows": [...]}}, got {text!r}.'
        ) from error


@dataclass(frozen=True)
class Opening:
    """How a model file is opened."""

    problem: Annotated[
        str | None,
        typer.Option(help="FILE.py:NAME, for a model whose problem is Python code outside the file; runs that code."),
    ] = None
    max_bytes: MaxBytes = MAX_BYTES
    verify: VerifyKey = None

    def model(self, path: Path) -> RobustDecider:
        """A fitted decider, also one that Python code has saved."""
        from polyhedge.estimator import load

        with opened(path):
            coded = None if self.problem is None else read_problem(self.problem)
            return load(path, problem=coded, max_bytes=self.max_bytes, verify=self.verify)

    def model_and_record(self, path: Path) -> tuple[RobustDecider, FitRecord]:
        """A fitted decider and the record of its fit."""
        from polyhedge.io.fit_record import FitRecord

        decider = self.model(path)
        with opened(path):
            kept = FitRecord.read(decider.details_)
            if kept is None:
                schema = decider.model_.record.schema
                if schema is None:
                    raise io.ModelFileError(
                        "the file does not say which columns it takes: its model was fitted on arrays, or with a "
                        "predictor of its own for more than numbers. Use ph.load in Python, or fit it on a data frame."
                    )
                kept = FitRecord(schema)
            if len(kept.schema.outcomes) != decider.problem_.n_outcomes:
                raise io.ModelFileError(
                    f"The file names {len(kept.schema.outcomes)} outcome columns for {decider.problem_.n_outcomes} "
                    "outcomes. Fit the model again."
                )
        return decider, kept


@contextmanager
def opened(path: Path) -> Iterator[None]:
    """Put the name of the file in front of what is wrong with it."""
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}. Write one with polyhedge fit.")
    try:
        yield
    except io.ModelFileError as error:
        raise io.ModelFileError(f"{path}: {error}") from error


@dataclass(frozen=True)
class Solving:
    """What is asked of solvers."""

    solver: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What decides in whole numbers: auto (HiGHS), scip, gurobi or another one."),
    ] = None
    solver_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="time_limit=SECONDS for each program, highs.NAME=VALUE, clarabel.NAME=VALUE, or an option of "
            "--solver.",
        ),
    ] = None

    def begin(self) -> None:
        """Let all programs of the command that is running be solved as asked; as ever where nothing was asked."""
        if self.solver is None and not self.solver_option:
            return
        from polyhedge.solvers.options import Solver

        asked: dict[str, Any] = {"backend": self.solver or "auto", "highs": {}, "clarabel": {}, "options": {}}
        for text in self.solver_option or ():
            _add_option(asked, text)
        Solver(**asked).keep_in_force()  # each command runs in a context of its own, see `_Commands.invoke`


def _add_option(asked: dict[str, Any], text: str) -> None:
    """Put an option where its solver looks for it."""
    key, value = _read(text)
    whose, _, own = key.partition(".")
    if key == "time_limit":
        asked[key] = value
    elif own and whose in ("highs", "clarabel"):
        asked[whose][own] = value
    elif asked["backend"] == "auto":
        raise ValueError(
            f"--solver-option {text!r} is for no solver: write time_limit=..., highs.NAME=..., clarabel.NAME=..., "
            "or name whose option it is with --solver."
        )
    elif asked["backend"] == "scip":  # CVXPY takes these together, under one name
        asked["options"].setdefault("scip_params", {})[key] = value
    else:
        asked["options"][key] = value


def _read(text: str) -> tuple[str, Any]:
    key, sign, value = (part.strip() for part in text.partition("="))
    if not key or not sign or not value:
        raise ValueError(f"--solver-option must be KEY=VALUE, such as highs.mip_rel_gap=1e-4, got {text!r}.")
    for kind in (int, float):
        try:
            return key, kind(value)
        except ValueError:
            continue
    return key, {"true": True, "false": False}.get(value.lower(), value)
