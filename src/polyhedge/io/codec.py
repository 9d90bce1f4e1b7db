"""The codec of model files: objects of registered frozen dataclasses as JSON values and .npy members.

A file holds a list of objects, each the name of its class and the values of its fields. A value is a number, a text, a
boolean, None, a list, a dictionary with texts as keys, or a reference:

| value | meaning |
|---|---|
| `{"$array": name}`    | an array, a member of the archive; every bit is kept |
| `{"$object": i}`      | an earlier object of the list |
| `{"$external": name}` | an object that the reader brings: the problem, the predictor |

Decoding makes only objects of classes that were registered with `stored`, through their constructors. Every value must
have the type that its field is annotated with; what else must hold is checked by `__post_init__`.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence, Set as AbstractSet
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

from polyhedge._support.stored import StoredClass, stored_class, stored_class_named
from polyhedge.io.archive import ModelFileError

_FOLDER = "arrays"
_MAX_CONTAINERS = 400_000
"""Lists and dictionaries of one JSON member: each takes a hundred bytes and more, in a file only two."""
_MAX_VALUES = 4_000_000
"""Values of one JSON member; the fingerprints of a million rows have a million."""
_MOST_HEADER = 16_384
"""Bytes in which the header of an array ends; NumPy refuses longer ones than 10 000."""
_DTYPES = {"f": np.dtype("<f8"), "i": np.dtype("<i8"), "u": np.dtype("<u8"), "b": np.dtype("|b1")}
"""Types of numbers in files, by the kind of the array."""


def encode(values: Mapping[str, Any], external: Mapping[str, object] | None = None) -> tuple[bytes, dict[str, bytes]]:
    """The JSON text of `values`, and their arrays as members of an archive.

    The objects in `external` are not stored; the reader brings them.

    Examples
    --------
    >>> text, members = encode({"level": 0.5, "A": np.eye(2)})
    >>> text
    b'{"objects":[],"level":0.5,"A":{"$array":"arrays/0.npy"}}'
    >>> Decoder(text, members)["A"][1]
    array([0., 1.])
    """
    encoder = _Encoder(external or {})
    encoded = {name: encoder.value(value, name) for name, value in values.items()}
    text = json.dumps({"objects": encoder.objects, **encoded}, separators=(",", ":"))
    return text.encode(), encoder.members


class _Encoder:
    """One writing: an object that occurs twice is stored once."""

    def __init__(self, external: Mapping[str, object]) -> None:
        self.external = {id(value): name for name, value in external.items()}
        self.objects: list[Any] = []
        self.members: dict[str, bytes] = {}
        # The objects are kept next to their references, because a number of `id` may be given to another one otherwise.
        self.references: dict[int, tuple[Any, int]] = {}

    def value(self, item: Any, where: str) -> Any:
        if id(item) in self.external:
            return {"$external": self.external[id(item)]}
        if isinstance(item, Enum):
            return item.name
        if item is None or isinstance(item, (bool, int, float, str)):
            return item
        if isinstance(item, np.generic) and item.dtype.kind in "fiub":
            return item.item()
        if isinstance(item, np.ndarray):
            return {"$array": self._array(item, where, is_finite=True)}
        if isinstance(item, (list, tuple)):
            return [self.value(each, where) for each in item]
        if isinstance(item, AbstractSet):
            return [self.value(each, where) for each in sorted(item)]
        if isinstance(item, Mapping):
            wrong = next((key for key in item if not isinstance(key, str) or key.startswith("$")), None)
            if wrong is not None:
                raise ValueError(f"Dictionaries in a model file must have texts as keys, got {wrong!r} in {where}.")
            return {key: self.value(each, f"{where}.{key}") for key, each in item.items()}
        known = stored_class(type(item))
        if known is None:
            name = getattr(item, "__qualname__", repr(item))
            kind = f"the function {name}" if callable(item) else f"a {type(item).__name__}"
            raise ValueError(
                f"A model file holds numbers, texts and objects of registered classes, got {kind} in {where}. Make it "
                'a frozen dataclass and register it with @polyhedge.io.stored("name"), or keep the decider by pickle.'
            )
        if id(item) not in self.references:
            self.references[id(item)] = (item, self._object(item, known))
        return {"$object": self.references[id(item)][1]}

    def _object(self, item: Any, known: StoredClass) -> int:
        state = {}
        for name in known.hints:
            value, where = getattr(item, name), f"{type(item).__name__}.{name}"
            if isinstance(value, np.ndarray) and name in known.unbounded:
                state[name] = {"$array": self._array(value, where, is_finite=False)}
            else:
                state[name] = self.value(value, where)
        self.objects.append([known.name, state])
        return len(self.objects) - 1

    def _array(self, array: np.ndarray[Any, Any], where: str, *, is_finite: bool) -> str:
        if array.dtype.kind not in _DTYPES:
            raise ValueError(f"Arrays in a model file must hold numbers, got {array.dtype} in {where}.")
        if is_finite and not _is_finite(array):
            raise ValueError(f"Arrays in a model file must be finite, got NaN or infinity in {where}.")
        stream, name = io.BytesIO(), f"{_FOLDER}/{len(self.members)}.npy"
        plain = array.astype(_DTYPES[array.dtype.kind], copy=False)
        np.lib.format.write_array(stream, plain, version=(1, 0), allow_pickle=False)
        self.members[name] = stream.getvalue()
        return name


class Decoder:
    """What `encode` was given, decoded part by part when it is asked for.

    `tree` is the JSON text, or what was parsed of it; arrays that are decoded are taken out of the `members` of the
    archive.
    """

    def __init__(self, tree: Any, members: dict[str, bytes], external: Mapping[str, object] | None = None) -> None:
        tree = parse_json(tree, "model.json") if isinstance(tree, bytes) else tree
        if not isinstance(tree, dict) or not isinstance(tree.get("objects"), list):
            raise ModelFileError("The description of the model has no list of objects.")
        self.records: list[Any] = tree.pop("objects")
        self.values: dict[str, Any] = tree
        self.members, self.external = members, dict(external or {})
        self._made: dict[int, Any] = {}

    def __getitem__(self, name: str) -> Any:
        return self.value(self.values[name], len(self.records))

    def first(self, cls: type[Any]) -> dict[str, Any] | None:
        """The fields, not decoded yet, of the first object of a class; None without one."""
        known = stored_class(cls)
        record = next(
            (one for one in self.records if known and isinstance(one, list) and one[:1] == [known.name]), None
        )
        return None if record is None else self._record(record)[1]

    def class_of(self, item: Any) -> type[Any]:
        """The class of the object that a value refers to."""
        return self._record(self.records[item["$object"]])[0].cls

    def value(self, item: Any, before: int | None = None) -> Any:
        """A decoded value; objects must stand before the place `before` in the list."""
        before = len(self.records) if before is None else before
        if isinstance(item, list):
            named = [str(each["$object"]) for each in item if isinstance(each, dict) and each.keys() == {"$object"}]
            if len(set(named)) < len(named):
                raise ModelFileError("A list of the model holds one object twice.")
            return [self.value(each, before) for each in item]
        if not isinstance(item, dict):
            return item
        if item.keys() == {"$array"}:
            return self._array(item["$array"], is_finite=True)
        if item.keys() == {"$object"}:
            return self._object(item["$object"], before)
        if item.keys() == {"$external"}:
            return self.external[item["$external"]]
        return {key: self.value(each, before) for key, each in item.items()}

    def _object(self, index: Any, before: int) -> Any:
        if type(index) is not int or not 0 <= index < before:
            raise ModelFileError(f"An object refers to object {str(index)[:20]}, which does not come before it.")
        if index not in self._made:
            known, state = self._record(self.records[index])
            unknown = sorted(state.keys() - known.hints.keys())
            if unknown:
                raise ModelFileError(f"A {known.name} has no field {unknown[0][:80]!r}.")
            arguments = {}
            for name, item in state.items():
                if name in known.unbounded and isinstance(item, dict) and item.keys() == {"$array"}:
                    value = self._array(item["$array"], is_finite=False)
                else:
                    value = self.value(item, index)
                arguments[name] = conform(value, known.hints[name], f"{known.name}.{name}")
            self._made[index] = known.cls(**arguments)
        return self._made[index]

    def _record(self, record: Any) -> tuple[StoredClass, dict[str, Any]]:
        if not (isinstance(record, list) and len(record) == 2 and isinstance(record[1], dict)):
            raise ModelFileError("An object of the model must be the name of its class and its fields.")
        known = stored_class_named(record[0]) if isinstance(record[0], str) else None
        if known is None:
            raise ModelFileError(
                f"The model holds an object of the class {str(record[0])[:80]!r}, which no imported module registers. "
                "If it is a class of your own, import its module before you load the model."
            )
        return known, record[1]

    def _array(self, name: Any, *, is_finite: bool) -> np.ndarray[Any, Any]:
        # Taken out: an array at many places would cost far more than its file shows.
        if not isinstance(name, str) or not name.startswith(f"{_FOLDER}/") or name not in self.members:
            raise ModelFileError(f"The array {str(name)[:80]!r} is missing, or used twice.")
        content = self.members.pop(name)
        shape, is_fortran, dtype, start = npy_header(content, name)
        if dtype not in _DTYPES.values():
            raise ModelFileError(f"The array {name} holds {dtype}; only 64-bit numbers and booleans are allowed.")
        # The numbers stay in the member itself, unless it is read-only or they are not aligned there.
        flat = np.frombuffer(content, dtype=dtype, offset=start)
        if dtype.kind == "b" and flat.size and flat.view(np.uint8).max() > 1:
            raise ModelFileError(f"The array {name} holds booleans other than 0 and 1.")
        flat = flat if flat.flags.writeable and flat.flags.aligned else flat.copy()
        array = flat.reshape(shape, order="F" if is_fortran else "C")
        if is_finite and not _is_finite(array):
            raise ModelFileError(f"The array {name} has NaN or infinite entries. Save the model again.")
        return array


def conform(value: Any, hint: Any, where: str) -> Any:
    """The value with the type that a field is annotated with: lists as tuples, names as enums; an error otherwise."""
    if hint is Any:
        return value
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        for part in sorted(parts, key=lambda part: part is not NoneType):
            try:
                return conform(value, part, where)
            except ModelFileError:
                continue
        raise _unlike(value, hint, where)
    if origin is np.ndarray:
        wanted = (get_args(parts[-1]) or (np.generic,))[0]  # the type of numbers that `NDArray[...]` names
        wanted = get_origin(wanted) or wanted
        has_type = isinstance(value, np.ndarray) and (
            not isinstance(wanted, type) or issubclass(value.dtype.type, wanted)
        )
        if not has_type:
            raise _unlike(value, hint, where)
        return value
    if origin in (tuple, list, frozenset, Sequence, Collection):
        is_fixed = origin is tuple and parts[-1] is not Ellipsis
        if not isinstance(value, list) or (is_fixed and len(parts) != len(value)):
            raise _unlike(value, origin, where)
        made = tuple if origin in (Sequence, Collection) else origin
        kinds = parts if is_fixed else [parts[0]] * len(value)
        return made(conform(each, kind, where) for each, kind in zip(value, kinds, strict=True))
    if origin in (dict, Mapping):
        if not isinstance(value, dict):
            raise _unlike(value, hint, where)
        return {key: conform(each, parts[1], f"{where}.{key[:40]}") for key, each in value.items()}
    if hint is float and type(value) is int:
        return float(value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        if not isinstance(value, str) or value not in hint.__members__:
            raise _unlike(value, hint, where)
        return hint[value]
    if not _is_of(value, hint, origin, parts):
        raise _unlike(value, hint, where)
    return value


def _is_of(value: Any, hint: Any, origin: Any, parts: tuple[Any, ...]) -> bool:
    if hint in (None, NoneType):
        return value is None
    if hint in (bool, int, float, str):
        return type(value) is hint
    if origin is Literal:
        return value in parts
    if hint is Callable or origin is Callable:
        return callable(value)
    if getattr(hint, "_is_protocol", False):
        return all(hasattr(value, name) for name in dir(hint) if not name.startswith("_"))
    return isinstance(value, origin or hint) if isinstance(origin or hint, type) else False


def _unlike(value: Any, hint: Any, where: str) -> ModelFileError:
    got = (
        f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"{type(value).__name__} {str(value)[:40]!r}"
    )
    return ModelFileError(f"{where} must be {getattr(hint, '__name__', hint)}, got {got}.")


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


def _is_finite(array: np.ndarray[Any, Any]) -> bool:
    # The extremes tell, without a second array: NaN is the least and the greatest of whatever it is among.
    return array.dtype.kind != "f" or not array.size or bool(np.isfinite([array.min(), array.max()]).all())
