"""What `polyhedge fit` keeps in a model file beside the model: how to read new rows, and what was found.

It lies among the details, where callers keep what they like: this module alone knows under which names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from polyhedge.diagnostics import Code, Diagnostic
from polyhedge.io.archive import ModelFileError
from polyhedge.predictors.raw_columns import Schema

__all__ = ["FitRecord", "Refreshed"]


@dataclass(frozen=True)
class Refreshed:
    """The last refresh: the table's name and size, and how many of its rows trained and calibrated."""

    file: str
    n_rows: int
    train: int
    calibrate: int


@dataclass(frozen=True)
class FitRecord:
    """The record of a fit from a table; `RobustDecider.details_` of such a model holds its `as_json`.

    Attributes
    ----------
    schema : the columns that the model takes.
    file, n_rows : the table's name and size.
    sizes : rows of each part.
    n_groups : groups among the calibration rows; None where rows count one by one.
    time_column, group, copies : roles of columns, and how equal rows were counted; see `TableOptions`.
    predictor : its name.
    coverage : what was observed on held-out rows, in words; None where there were none.
    warnings : diagnostics about the fit.
    seen, trained : fingerprints of rows used for training and learning, and of those on which a refresh trained.
    refreshed : the last refresh; None without.
    labels : column with the labels or weights of calibration, where it is no feature.
    parameters : where the values of the problem's parameters came from: columns or numbers, see `tables.Sources`.
    """

    schema: Schema
    file: str = ""
    n_rows: int = 0
    sizes: Mapping[str, int] | None = None
    n_groups: int | None = None
    time_column: str | None = None
    group: tuple[str, ...] = ()
    copies: str = "together"
    predictor: str = ""
    coverage: str | None = None
    warnings: tuple[Diagnostic, ...] = ()
    seen: tuple[str, ...] = ()
    trained: tuple[str, ...] = ()
    refreshed: Refreshed | None = None
    labels: str | None = None
    parameters: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """For `save`; `read` gives it back."""
        return {
            "columns": self.schema.as_json(),
            "data": {"file": self.file, "n_rows": self.n_rows, "sizes": self.sizes},
            "n_groups": self.n_groups,
            "time_column": self.time_column,
            "group": list(self.group),
            "copies": self.copies,
            "predictor": self.predictor,
            "coverage": self.coverage,
            "warnings": [str(diagnostic) for diagnostic in self.warnings],
            "codes": [str(diagnostic.code) for diagnostic in self.warnings],
            "seen": list(self.seen),
            "trained": list(self.trained),
            "refreshed": None if self.refreshed is None else asdict(self.refreshed),
            "labels": self.labels,
            "parameters": {name: list(source) for name, source in self.parameters.items()},
        }

    @staticmethod
    def schema_in(details: Mapping[str, Any]) -> Schema | None:
        """The columns that the table of a fit had; None for a model that other code has saved."""
        columns = details.get("columns")
        return Schema.from_json(columns) if isinstance(columns, dict) else None

    @classmethod
    def if_readable(cls, details: Mapping[str, Any]) -> FitRecord | None:
        """What was kept; None also where a part is damaged, for words about a model that decides all the same."""
        with suppress(ValueError):
            return cls.read(details)
        return None

    @classmethod
    def read(cls, details: Mapping[str, Any]) -> FitRecord | None:
        """What was kept, if each part is of the kind that was written; None for a model that other code has saved."""
        schema = cls.schema_in(details)
        if schema is None:
            return None
        known = {name: details[name] for name in _KINDS if details.get(name) is not None}
        for name, value in known.items():
            if not _KINDS[name](value):
                raise ModelFileError(f"What the file says under {name!r} is damaged. Fit the model again.")
        data, warnings, last = known.pop("data", {}), known.pop("warnings", []), known.pop("refreshed", None)
        codes = known.pop("codes", None) or [_code_of(text) for text in warnings]
        return cls(
            schema=schema,
            file=data.get("file", ""),
            n_rows=data.get("n_rows", 0),
            sizes=data.get("sizes"),
            # Files of 0.1 keep the number of groups with the data until the model is recalibrated.
            n_groups=known.pop("n_groups", data.get("n_groups") if "n_groups" not in details else None),
            warnings=tuple(Diagnostic(Code(code), text) for code, text in zip(codes, warnings, strict=True)),
            group=tuple(known.pop("group", ())),
            refreshed=None if last is None else Refreshed(*(last[one.name] for one in fields(Refreshed))),
            seen=tuple(known.pop("seen", ())),
            trained=tuple(known.pop("trained", ())),
            parameters={name: tuple(source) for name, source in known.pop("parameters", {}).items()},
            **known,
        )


def _code_of(text: str) -> Code:
    """The code of a warning in a file of 0.1, which kept texts alone: most begin with it."""
    start = text.partition(":")[0]
    return Code(start) if start in set(Code) else Code.LEFT_OUT


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_codes(value: Any) -> bool:
    return _are_texts(value) and set(value) <= set(Code)


def _is_data(value: Any) -> bool:
    return isinstance(value, dict) and _is_text(value.get("file")) and isinstance(value.get("n_rows"), int)


def _is_refresh(value: Any) -> bool:
    counts = ("n_rows", "train", "calibrate")
    return isinstance(value, dict) and _is_text(value.get("file")) and all(type(value.get(k)) is int for k in counts)


def _are_sources(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(source, list) and source and (_are_texts(source) or all(type(entry) is float for entry in source))
        for source in value.values()
    )


_KINDS: dict[str, Callable[[Any], bool]] = {
    "data": _is_data,
    "time_column": _is_text,
    "group": _are_texts,
    "n_groups": lambda value: isinstance(value, int) and value > 0,
    "copies": _is_text,
    "predictor": _is_text,
    "coverage": _is_text,
    "warnings": _are_texts,
    "codes": _are_codes,
    "seen": _are_texts,
    "trained": _are_texts,
    "refreshed": _is_refresh,
    "labels": _is_text,
    "parameters": _are_sources,
}
