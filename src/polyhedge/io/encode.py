"""Nested dictionaries with arrays and floats, as one JSON text and .npy members that keep every bit."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from polyhedge.io.archive import ModelFileError

_FOLDER = "arrays"
_MAX_CONTAINERS = 400_000
"""Lists and dictionaries of one JSON member: each takes a hundred bytes and more, in a file only two."""
_MAX_VALUES = 4_000_000
"""Values of one JSON member; the fingerprints of a million rows have a million."""
_MOST_HEADER = 16_384
"""Bytes in which the header of an array ends; NumPy refuses longer ones than 10 000."""
_TYPES = (np.dtype("<f8"), np.dtype("<i8"))


def encode(state: Any) -> tuple[bytes, dict[str, bytes]]:
    """The JSON text of `state`, and its arrays as members of their own.

    Examples
    --------
    >>> text, members = encode({"x": 0.5, "A": np.eye(2)})
    >>> text
    b'{"x": {"$float": "0x1.0000000000000p-1"}, "A": {"$array": "arrays/0.npy"}}'
    >>> decode(text, members)["A"][1]
    array([0., 1.])
    """
    members: dict[str, bytes] = {}

    def plain(item: Any) -> Any:
        if isinstance(item, np.ndarray):
            name = f"{_FOLDER}/{len(members)}.npy"
            members[name] = _npy(item)
            return {"$array": name}
        if isinstance(item, float):
            return {"$float": float(item).hex()}
        if isinstance(item, Mapping):
            return {str(key): plain(value) for key, value in item.items()}
        if isinstance(item, (list, tuple)):
            return [plain(value) for value in item]
        return item

    return json.dumps(plain(state)).encode(), members


def decode(text: bytes, members: dict[str, bytes]) -> Any:
    """The state that `encode` was given; arrays must be finite, and are taken out of `members`."""

    def rich(item: Any) -> Any:
        if isinstance(item, list):
            return [rich(value) for value in item]
        if not isinstance(item, dict):
            return item
        if item.keys() == {"$array"}:
            return _finite_array(str(item["$array"]), members)
        if item.keys() == {"$float"}:
            return float.fromhex(item["$float"])
        return {key: rich(value) for key, value in item.items()}

    return rich(parse_json(text, "model.json"))


def parse_json(text: bytes, name: str) -> Any:
    """The content of a JSON member; how much memory it will take is seen before it is read."""
    if text.count(b"{") + text.count(b"[") > _MAX_CONTAINERS or text.count(b",") > _MAX_VALUES:
        raise ModelFileError(f"The member {name} has more than {_MAX_CONTAINERS} lists or {_MAX_VALUES} values.")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"The member {name} is not proper JSON: {error}.") from error


def npy_header(content: bytes, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, memory order, type and start of the numbers of a .npy member whose size fits its header."""
    stream = io.BytesIO(content[:_MOST_HEADER])
    try:
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, is_fortran, dtype = read(stream)
    except Exception as error:  # a damaged header fails in as many ways as there are damages
        raise ModelFileError(f"The array {name} has a damaged header: {error}.") from error
    if dtype.hasobject or any(n < 0 for n in shape):
        raise ModelFileError(f"The array {name} holds {dtype} in the shape {shape}, which is not allowed.")
    if math.prod(shape) * dtype.itemsize != len(content) - stream.tell():
        raise ModelFileError(f"The array {name} says it has the shape {shape}, but its size is another.")
    return shape, is_fortran, dtype, stream.tell()


def _npy(array: np.ndarray[Any, Any]) -> bytes:
    wanted = np.dtype("<f8") if array.dtype.kind == "f" else np.dtype("<i8")
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array.astype(wanted, copy=False), version=(1, 0), allow_pickle=False)
    return stream.getvalue()


def _finite_array(name: str, members: dict[str, bytes]) -> np.ndarray[Any, Any]:
    # Taken out: an array at two places would take the memory of two, in a file that has it once.
    if not name.startswith(f"{_FOLDER}/") or name not in members:
        raise ModelFileError(f"The array {name[:80]!r} is missing, or used twice.")
    content = members.pop(name)
    shape, is_fortran, dtype, start = npy_header(content, name)
    if dtype not in _TYPES:
        raise ModelFileError(f"The array {name} holds {dtype}; only 64-bit floats and integers are allowed.")
    flat = numbers_at(content, dtype, start)
    # The extremes tell, without a second array: NaN is the least and the greatest of whatever it is among.
    if len(flat) and not np.isfinite([flat.min(), flat.max()]).all():
        raise ModelFileError(f"The array {name} has NaN or infinite entries. Save the model again.")
    return flat.reshape(shape, order="F" if is_fortran else "C")


def numbers_at(content: bytes, dtype: np.dtype[Any], start: int) -> np.ndarray[Any, Any]:
    """Numbers that may be written to: those of the member itself, unless it is read-only or they lie askew in it."""
    flat = np.frombuffer(content, dtype=dtype, offset=start)
    return flat if flat.flags.writeable and flat.flags.aligned else flat.copy()
