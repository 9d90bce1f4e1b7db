"""How the commands open a model file, and what `polyhedge fit` has kept in it beside the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhedge import io, tables
from polyhedge.cli.common import read_problem

if TYPE_CHECKING:
    from polyhedge.estimator import RobustDecider
    from polyhedge.tables import Schema

__all__ = [
    "CodedProblem",
    "MaxBytes",
    "ModelFile",
    "SignKey",
    "VerifyKey",
    "fit_details",
    "open_model",
    "opened",
    "read_model",
]

ModelFile = Annotated[Path, typer.Argument(help="Model file, written by polyhedge fit.")]
CodedProblem = Annotated[
    str | None,
    typer.Option(
        "--problem", help="FILE.py:NAME, for a model whose problem is Python code outside the file; runs that code."
    ),
]
MaxBytes = Annotated[
    int, typer.Option(min=1, help="Unpacked size beyond which a model file is refused, against files that are traps.")
]
SignKey = Annotated[
    Path | None, typer.Option("--sign", help="Private key to sign the model file with; polyhedge keygen makes one.")
]
VerifyKey = Annotated[
    Path | None,
    typer.Option("--verify", help="Public key: a model file that it has not signed, or that has changed, is refused."),
]


def read_model(path: Path, problem: str | None, max_bytes: int, verify: Path | None) -> tuple[RobustDecider, Schema]:
    """A fitted decider and the columns it takes."""
    decider = open_model(path, problem, max_bytes, verify)
    with opened(path):
        kept = fit_details(decider.details_)
        if kept is None:
            raise io.ModelFileError(
                "not written by polyhedge fit: the file does not say which columns it takes. Use ph.load in Python."
            )
        schema = tables.Schema.from_json(kept["columns"])
        if len(schema.outcomes) != decider.problem_.n_outcomes:
            raise io.ModelFileError(
                f"The file names {len(schema.outcomes)} outcome columns for {decider.problem_.n_outcomes} outcomes. "
                "Fit the model again."
            )
    return decider, schema


def open_model(path: Path, problem: str | None, max_bytes: int, verify: Path | None) -> RobustDecider:
    """A fitted decider, also one that Python code has saved."""
    from polyhedge.loading import load

    with opened(path):
        coded = None if problem is None else read_problem(problem)
        return load(path, problem=coded, max_bytes=max_bytes, verify=verify)


@contextmanager
def opened(path: Path) -> Iterator[None]:
    """Put the name of the file in front of what is wrong with it."""
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}. Write one with polyhedge fit.")
    try:
        yield
    except io.ModelFileError as error:
        raise io.ModelFileError(f"{path}: {error}") from error


def fit_details(details: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What `polyhedge fit` kept, its parts of the kinds it wrote; None for a model that other code has saved."""
    if not isinstance(details.get("columns"), dict):
        return None
    for name, is_right in _KEPT.items():
        if details.get(name) is not None and not is_right(details[name]):
            raise io.ModelFileError(f"What the file says under {name!r} is damaged. Fit the model again.")
    return details


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_data(value: Any) -> bool:
    return isinstance(value, dict) and _is_text(value.get("file")) and isinstance(value.get("n_rows"), int)


_KEPT: dict[str, Callable[[Any], bool]] = {
    "data": _is_data,
    "group": _are_texts,
    "n_groups": lambda value: isinstance(value, int) and value > 0,
    "copies": _is_text,
    "coverage": _is_text,
    "warnings": _are_texts,
    "seen": _are_texts,
}
