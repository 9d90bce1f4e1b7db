"""The record of `polyhedge fit` in the details of a model file: how to read new rows, and what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from polyhedge._support.stored import stored
from polyhedge._support.warnings import Code
from polyhedge.diagnostics import Diagnostic
from polyhedge.predictors.columns import Schema

_KEY = "table"


@stored("refresh from a table")
@dataclass(frozen=True)
class Refreshed:
    """The last refresh: the table's name and size, and how many of its rows trained and calibrated."""

    file: str
    n_rows: int
    train: int
    calibrate: int


@stored("fit from a table")
@dataclass(frozen=True)
class FitRecord:
    """The record of a fit from a table; `RobustDecider.details_` of such a model holds it as `as_details`.

    Attributes
    ----------
    schema : the columns that the model takes.
    file, n_rows : the table's name and size.
    time_column, group, copies : roles of columns, and how equal rows were counted; see `TableOptions`.
    coverage : what was observed on held-out rows, in words; None where there were none.
    refreshed : the last refresh; None without.
    labels : column with the labels or weights of calibration, where it is no feature.
    coded : code and text of each diagnostic of the fit.
    parameters : where the values of the problem's parameters came from: columns or numbers, see `tables.Sources`.
    """

    schema: Schema
    file: str = ""
    n_rows: int = 0
    time_column: str | None = None
    group: tuple[str, ...] = ()
    copies: str = "together"
    coverage: str | None = None
    refreshed: Refreshed | None = None
    labels: str | None = None
    parameters: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    coded: tuple[tuple[str, str], ...] = ()

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """Diagnostics of the fit."""
        return tuple(Diagnostic(Code(code), text) for code, text in self.coded)

    def as_details(self) -> dict[str, Any]:
        """The record as plain values, for `RobustDecider.details_`; `read` is the reverse."""
        return {_KEY: self}

    @staticmethod
    def read(details: Mapping[str, Any]) -> FitRecord | None:
        """The record of a fit from a table; None for a model that other code has saved."""
        record = details.get(_KEY)
        return record if isinstance(record, FitRecord) else None
