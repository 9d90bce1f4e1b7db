"""A fitted estimator as plain data: records of known classes that hold numbers, texts, lists and arrays.

Nothing in a record names code. A class is a row of the table in `known`, a function one of a few in `known`, so that
reading a record can make no more than these. There are no references either: what stands at two places is two things.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhedge.io.archive import ModelFileError
from polyhedge.io.encode import npy_header, numbers_at
from polyhedge.io.tree_checks import NODE_TYPES

FOLDER = "predictor/"
_KINDS = "fiub"
MAX_RECORD_ITEMS = 1_000_000
"""Lists, texts, numbers and records of one predictor; ten thousand trees have a quarter of it."""
MAX_LETTERS = 10_000_000
"""Letters of one array of texts, forty megabytes."""
MAX_RECORD_DEPTH = 60
"""Levels of lists and records; a pipeline in a search in a pipeline has thirty."""


@dataclass(frozen=True)
class Record:
    """An object: the name of its class in the table, and its attributes."""

    name: str
    state: dict[str, Any]


@dataclass(frozen=True)
class Objects:
    """An array of objects (texts, or trees): its items in row-major order; `is_text` for an array of texts."""

    items: list[Any]
    shape: tuple[int, ...]
    is_text: bool = False

    def __post_init__(self) -> None:
        if math.prod(self.shape) != len(self.items) or any(n < 0 for n in self.shape) or len(self.shape) > 2:
            raise ModelFileError(f"An array of {len(self.items)} objects cannot have the shape {self.shape}.")

    def array(self, items: list[Any]) -> np.ndarray[Any, Any]:
        """The array, of `items` made of mine."""
        if self.is_text:
            # Every text of such an array takes the room of the longest.
            if len(items) * max((len(_checked_text(item)) for item in items), default=0) > MAX_LETTERS:
                raise ModelFileError(f"An array of texts may have {MAX_LETTERS} letters.")
            return np.array(items, dtype=str).reshape(self.shape)
        made = np.empty(len(items), dtype=object)
        for i, item in enumerate(items):
            made[i] = item
        return made.reshape(self.shape)


@dataclass(frozen=True)
class Named:
    """A type, a type of numbers (`dtype`) or a function, by its name in the tables of `known`."""

    kind: str
    name: str


@dataclass(frozen=True)
class Unreadable:
    """Something of an older file that is no plain data; an error only where it is needed."""

    name: str


class Work:
    """What reading may cost: items with their multiplicity, and depth."""

    def __init__(self, items: int = MAX_RECORD_ITEMS, depth: int = MAX_RECORD_DEPTH) -> None:
        self.left, self.depth = items, depth

    def step(self, depth: int) -> None:
        """Count one item at this depth."""
        self.left -= 1
        if self.left < 0 or depth > self.depth:
            raise ModelFileError(
                f"The predictor is described by more than {MAX_RECORD_ITEMS} parts, or nested deeper than "
                f"{MAX_RECORD_DEPTH} levels."
            )


def pack_record(record: Record) -> tuple[Any, dict[str, bytes]]:
    """JSON values of a record, and its arrays as members of an archive.

    Examples
    --------
    >>> values, members = pack_record(Record("Ridge", {"alpha": 0.5, "coef_": np.ones(2)}))
    >>> values
    {'$object': 'Ridge', 'state': {'alpha': {'$float': '0x1.0000000000000p-1'}, 'coef_': {'$array': 'predictor/0.npy'}}}
    >>> unpack_record(values, members).state["coef_"]
    array([1., 1.])
    """
    members: dict[str, bytes] = {}

    def plain(item: Any) -> Any:
        if isinstance(item, Record):
            return {"$object": item.name, "state": {key: plain(value) for key, value in item.state.items()}}
        if isinstance(item, np.ndarray):
            name = f"{FOLDER}{len(members)}.npy"
            members[name] = _npy(item)
            return {"$array": name}
        if isinstance(item, Objects):
            return {"$objects": [plain(v) for v in item.items], "shape": list(item.shape), "is_text": item.is_text}
        if isinstance(item, Named):
            return {"$named": [item.kind, item.name]}
        if isinstance(item, float):
            return {"$float": item.hex()}
        if isinstance(item, slice):
            return {"$slice": [item.start, item.stop, item.step]}
        if isinstance(item, tuple):
            return {"$tuple": [plain(value) for value in item]}
        if isinstance(item, dict):
            return {"$dict": [[key, plain(value)] for key, value in item.items()]}
        return [plain(value) for value in item] if isinstance(item, list) else item

    return plain(record), members


def unpack_record(values: Any, members: dict[str, bytes]) -> Record:
    """The record that `pack_record` was given; its arrays are taken out of `members`."""
    work = Work()

    def rich(item: Any, depth: int) -> Any:
        work.step(depth)
        if isinstance(item, list):
            return [rich(value, depth + 1) for value in item]
        if not isinstance(item, dict):
            return item
        tag = next(iter(item), None)
        content: Any = item.get(tag)
        match tag, len(item):
            case "$object", 2:
                state = {_checked_text(key): rich(value, depth + 1) for key, value in item["state"].items()}
                return Record(_checked_text(content), state)
            case "$array", 1:
                return take_array(members, content)
            case "$objects", 3:
                shape = tuple(_checked_int(n) for n in item["shape"])
                return Objects([rich(value, depth + 1) for value in content], shape, item["is_text"] is True)
            case "$named", 1:
                kind, name = content
                return Named(_checked_text(kind), _checked_text(name))
            case "$float", 1:
                return float.fromhex(content)
            case "$slice", 1:
                return slice(*(None if n is None else _checked_int(n) for n in content))
            case "$tuple", 1:
                return tuple(rich(value, depth + 1) for value in content)
            case "$dict", 1:
                return {_checked_key(key): rich(value, depth + 1) for key, value in content}
        raise ModelFileError(f"The predictor holds {str(tag)[:40]!r}, which is no kind of data.")

    made = rich(values, 0)
    if not isinstance(made, Record):
        raise ModelFileError("The description of the predictor is no object.")
    return made


def take_array(members: dict[str, bytes], name: Any) -> np.ndarray[Any, Any]:
    """An array of a member, which is used up: an array at two places would take the memory of two."""
    if not isinstance(name, str) or not name.startswith(FOLDER) or name not in members:
        raise ModelFileError(f"The array {str(name)[:80]!r} is missing, or used twice.")
    return read_array(members.pop(name), name)


def read_array(content: bytes, name: str) -> np.ndarray[Any, Any]:
    """Numbers of 8 to 64 bits, or the nodes of a tree, out of a .npy member."""
    shape, is_fortran, dtype, start = npy_header(content, name)
    if not _is_plain(dtype):
        raise ModelFileError(f"The array {name} holds {str(dtype)[:200]}, which no known predictor has.")
    # Truth values other than 0 and 1 would lead NumPy's own counting of them astray.
    as_read = np.dtype(np.uint8) if dtype.kind == "b" else dtype
    flat = numbers_at(content, as_read, start)
    if dtype.kind == "b":
        if len(flat) and flat.max() > 1:
            raise ModelFileError(f"The array {name} holds truth values that are neither 0 nor 1.")
        flat = flat.view(bool)
    return flat.reshape(shape, order="F" if is_fortran else "C")


def is_plain_array(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array can be stored as it is."""
    return _is_plain(array.dtype)


def _is_plain(dtype: np.dtype[Any]) -> bool:
    return dtype in NODE_TYPES or (dtype.kind in _KINDS and dtype.itemsize <= 8 and dtype.isnative)


def _npy(array: np.ndarray[Any, Any]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), allow_pickle=False)
    return stream.getvalue()


def _checked_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ModelFileError(f"Expected a text in the predictor, got {type(value).__name__}.")
    return value


def _checked_int(value: Any) -> int:
    if type(value) is not int:
        raise ModelFileError(f"Expected a whole number in the predictor, got {type(value).__name__}.")
    return value


def _checked_key(value: Any) -> str | int:
    return value if type(value) is int else _checked_text(value)
