"""What commands share: options for tables, model files and solvers; results as lines and as JSON; exit codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import wraps
from inspect import Parameter as Argument, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from polyhedge import io
from polyhedge.app.cli.app import app, say, say_json
from polyhedge.app.reading import MAX_VALUES, read_table
from polyhedge.io.archive import MAX_BYTES

if TYPE_CHECKING:
    from polyhedge.app.rows import NewRows, Sources, TableRows
    from polyhedge.estimator import RobustDecider
    from polyhedge.io.fit_record import FitRecord
    from polyhedge.predictors.columns import Table
    from polyhedge.problems import DecisionProblem
    from polyhedge.solvers.program import Status

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
ModelFile = Annotated[Path, typer.Argument(help="Model file, written by polyhedge fit.")]
SignKey = Annotated[
    Path | None, typer.Option("--sign", help="Private key to sign the model file with; polyhedge keygen makes one.")
]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Add a command to the application; the fields of the dataclass that its argument `options` has are options too."""
    types = get_type_hints(function, include_extras=True)
    bundle = types["options"]
    kinds = get_type_hints(bundle, include_extras=True)
    own = [
        argument.replace(annotation=types[name])
        for name, argument in signature(function).parameters.items()
        if name != "options"
    ]
    shared = [
        Argument(field.name, Argument.KEYWORD_ONLY, default=field.default, annotation=kinds[field.name])
        for field in fields(bundle)
    ]

    @wraps(function)
    def called(**given: Any) -> None:
        options = bundle(**{field.name: given.pop(field.name) for field in fields(bundle)})
        if isinstance(options, TableOptions):
            options.begin()
        function(**given, options=options)

    called.__signature__ = Signature([*own, *shared])  # type: ignore[attr-defined]
    called.__annotations__ = {argument.name: argument.annotation for argument in (*own, *shared)}
    return app.command()(called)


def names_in(text: str | None) -> tuple[str, ...]:
    """Names separated by commas."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


@dataclass(frozen=True)
class FileOptions:
    """How a model file is opened."""

    max_bytes: Annotated[
        int,
        typer.Option(min=1, help="Unpacked size beyond which a model file is refused, against files that are traps."),
    ] = MAX_BYTES
    verify: Annotated[
        Path | None,
        typer.Option(help="Public key: a model file that it has not signed, or that has changed, is refused."),
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True)
class ModelOptions(FileOptions):
    """How a fitted decider is read from a model file."""

    problem: Annotated[
        str | None,
        typer.Option(help="FILE.py:NAME, for a model whose problem is Python code outside the file; runs that code."),
    ] = None

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


@dataclass(frozen=True)
class TableOptions:
    """How the user's table is read, and what is asked of solvers."""

    parameter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=COLUMN",
            help="Column with a parameter of the problem, or a number for all rows; by default the column of its name.",
        ),
    ] = None
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
    solver: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What decides integers: auto (HiGHS), scip, gurobi or another one."),
    ] = None
    solver_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="time_limit=SECONDS for each program, highs.NAME=VALUE, clarabel.NAME=VALUE, or an option of "
            "--solver.",
        ),
    ] = None
    as_json: AsJson = False

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

    def begin(self) -> None:
        """Put the solver options of the running command in force; without options nothing changes."""
        if self.solver is None and not self.solver_option:
            return
        from polyhedge.solvers.options import Solver

        asked: dict[str, Any] = {"backend": self.solver or "auto", "highs": {}, "clarabel": {}, "options": {}}
        for text in self.solver_option or ():
            _add_option(asked, text)
        Solver(**asked).keep_in_force()  # each command runs in a context of its own, see `_Commands.invoke`


@dataclass(frozen=True)
class ModelTableOptions(TableOptions, ModelOptions):
    """How a fitted decider and a table for it are read."""

    def rows(self, model: Path, data: Path) -> tuple[RobustDecider, FitRecord, Table, TableRows]:
        """The decider, the record of its fit, the table, and the rows of it that can be used."""
        decider, record = self.model_and_record(model)
        table = self.table(data)
        return decider, record, table, self.rows_for(decider, record, table)

    def rows_for(self, decider: RobustDecider, record: FitRecord, table: Table, **more: Any) -> TableRows:
        """The usable rows of a table for a decider; `more` as in `table_rows`."""
        from polyhedge.app.rows import table_rows

        record = replace(record, parameters=self.sources(decider, record))
        return table_rows(table, decider.problem_, record, decider.model_.radii, **more)

    def new_rows(self, decider: RobustDecider, record: FitRecord, table: Table) -> NewRows:
        """The rows of a table without outcomes, and which of them can be decided."""
        from polyhedge.app.rows import new_rows

        record = replace(record, parameters=self.sources(decider, record))
        return new_rows(table, decider.problem_, record, decider.model_.radii)

    def sources(self, decider: RobustDecider, record: FitRecord) -> Sources:
        """Where the values of the problem's parameters come from: as asked now, else as in the fit."""
        from polyhedge.app.rows import read_sources, sources_of

        return sources_of(decider.problem_, record.parameters, read_sources(self.parameter or []))


def read_problem(reference: str, uncertain: str | None = None) -> DecisionProblem:
    """A problem from a TOML file, an MPS file and what is uncertain in it, or Python code as FILE.py:NAME."""
    from polyhedge import problems

    if reference.endswith((".mps", ".mps.gz")):
        if not names_in(uncertain):
            raise ValueError(
                f"{reference} does not say what is uncertain in it. Name columns whose costs, and rows whose "
                "right-hand sides are: --uncertain NAME,NAME"
            )
        return problems.from_mps(reference, names_in(uncertain))
    if uncertain is not None:
        raise ValueError(f"--uncertain is for MPS files, and {reference!r} says itself what is. Leave it out.")
    if ".py:" in reference:
        return problems.from_reference(reference)
    if not reference.endswith(".toml"):
        raise ValueError(f"The problem must be a .toml or .mps file, or FILE.py:NAME, got {reference!r}.")
    if not Path(reference).is_file():
        raise FileNotFoundError(f"There is no file {reference}. Check the path.")
    return problems.from_toml(reference)


@contextmanager
def opened(path: Path) -> Iterator[None]:
    """Put the name of the file in front of what is wrong with it."""
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}. Write one with polyhedge fit.")
    try:
        yield
    except io.ModelFileError as error:
        raise io.ModelFileError(f"{path}: {error}") from error


def _add_option(asked: dict[str, Any], text: str) -> None:
    """Put an option where its solver looks for it."""
    key, sign, number = (part.strip() for part in text.partition("="))
    if not key or not sign or not number:
        raise ValueError(f"--solver-option must be KEY=VALUE, such as highs.mip_rel_gap=1e-4, got {text!r}.")
    value: Any = {"true": True, "false": False}.get(number.lower(), number)
    for kind in (float, int):
        with suppress(ValueError):
            value = kind(number)
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


BAD_INPUT, NO_SOLUTION, STOPPED_EARLY = 2, 3, 4
"""Exit codes; 1 is left to faults of the library."""


def sources_in_words(sources: Sources) -> str:
    """Where the values of the problem's parameters come from, for a reader."""
    return ", ".join(
        name if source == (name,) else f"{name} = {', '.join(map(str, source))}" for name, source in sources.items()
    )


def seen_before(decider: RobustDecider, rows: TableRows) -> list[Any]:
    """Whether rows trained or shaped the model: then its coverage on them is not to be trusted."""
    from polyhedge.diagnostics import fresh_rows_diagnostic

    model = decider.model_
    return fresh_rows_diagnostic(model, model.read(rows.X, rows.Y, to_score=True))


def tell(lines: Mapping[str, str]) -> None:
    """Print labelled lines, the labels in one column."""
    width = max(map(len, lines))
    for label, text in lines.items():
        say(f"{label:<{width}}  {text}".rstrip())


def warn(messages: Sequence[str]) -> None:
    """Print warnings to stderr, one a line."""
    for message in messages:
        say(f"warning: {message}", err=True)


def tell_json(payload: Mapping[str, Any], *, err: bool = False) -> None:
    """Print one JSON object; numbers that JSON cannot write become null."""
    say_json(plain(payload), err=err)


def plain(value: Any) -> Any:
    """Dictionaries, lists, texts and finite numbers only."""
    import numpy as np

    if is_dataclass(value) and not isinstance(value, type):
        return plain({field.name: getattr(value, field.name) for field in fields(value) if field.repr})
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        return float(value) if np.isfinite(value) else None
    return str(value) if isinstance(value, (Path, Enum)) else value


def check_statuses(statuses: Sequence[Status]) -> None:
    """End with the exit code that the statuses of solves ask for; go on where all are optimal."""
    from polyhedge.solvers.program import Status

    no_solution = (Status.INFEASIBLE, Status.UNBOUNDED, Status.UNBOUNDED_SET, Status.EMPTY_SET, Status.REFUSED)
    if any(status in no_solution for status in statuses):
        raise typer.Exit(NO_SOLUTION)
    if any(status is Status.STOPPED_EARLY for status in statuses):
        raise typer.Exit(STOPPED_EARLY)
    if any(status is Status.FAILED for status in statuses):
        raise typer.Exit(1)
