"""How the commands open a model file, and what `polyhedge fit` has kept in it beside the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyhedge import io
from polyhedge.app import tables
from polyhedge.app.cli.common import read_problem
from polyhedge.io.archive import MAX_BYTES

if TYPE_CHECKING:
    from polyhedge.app.tables import FitRecord
    from polyhedge.estimator import RobustDecider

__all__ = [
    "MaxBytes",
    "ModelFile",
    "Opening",
    "SignKey",
    "VerifyKey",
    "opened",
]

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
        from polyhedge.loading import load

        with opened(path):
            coded = None if self.problem is None else read_problem(self.problem)
            return load(path, problem=coded, max_bytes=self.max_bytes, verify=self.verify)

    def model_and_record(self, path: Path) -> tuple[RobustDecider, FitRecord]:
        """A fitted decider and the record of its fit."""
        decider = self.model(path)
        with opened(path):
            kept = tables.FitRecord.read(decider.details_)
            if kept is None:
                schema = decider.model_.record.schema
                if schema is None:
                    raise io.ModelFileError(
                        "the file does not say which columns it takes: its model was fitted on arrays, or with a "
                        "predictor of its own for more than numbers. Use ph.load in Python, or fit it on a data frame."
                    )
                kept = tables.FitRecord(schema)
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
