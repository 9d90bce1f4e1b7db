"""Predictors as skops describes them: read as records where they are known, made by skops where the user trusts them.

Files of the formats 1 and 2 hold their predictors in this form, newer files only those that need `trusted`.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from polyhedge.io.archive import ModelFileError
from polyhedge.io.encode import npy_header, parse_json
from polyhedge.io.known import TYPES, is_function, is_numbers_of_boosting, known_classes
from polyhedge.io.records import FOLDER, Named, Objects, Record, Unreadable, Work, read_array

SKOPS_TREE = f"{FOLDER}schema.json"
_SCALARS = ("bool", "bool_", "int8", "int32", "int64", "uint8", "uint32", "uint64", "float32", "float64", "str_")
# What skops makes of plain data; each by its own way of making things only, because some ways call what they name.
_PLAIN = {
    "BytesNode": ("builtins.bytes",),
    "DTypeNode": ("numpy.dtype",),
    "DefaultDictNode": ("collections.defaultdict",),
    "DictNode": ("builtins.dict", "collections.OrderedDict", "sklearn.utils._bunch.Bunch"),
    "JsonNode": ("builtins.bool", "builtins.float", "builtins.int", "builtins.str"),
    "ListNode": ("builtins.list",),
    "MaskedArrayNode": ("numpy.ma.MaskedArray", "numpy.ma.core.MaskedArray"),
    "NdArrayNode": ("numpy.ndarray", *(f"numpy.{name}" for name in _SCALARS)),
    "RandomGeneratorNode": ("numpy.random._generator.Generator",),
    "RandomStateNode": ("numpy.random.mtrand.RandomState",),
    "SetNode": ("builtins.set",),
    "SliceNode": ("builtins.slice",),
    "TreeNode": ("sklearn.tree._tree.Tree",),
    "TupleNode": ("builtins.tuple",),
    "TypeNode": (*(f"numpy.{name}" for name in _SCALARS), *TYPES),
}


def skops_members(estimator: Any, trusted: Sequence[str], reason: str) -> dict[str, bytes]:
    """Members of an archive for a predictor whose unknown types are all in `trusted`; otherwise a ValueError.

    `reason` says why it cannot be stored as plain data.
    """
    import skops.io

    try:
        packed = skops.io.dumps(estimator)
    except Exception as error:  # skops raises what the object's own methods raise
        raise ValueError(f"The predictor {type(estimator).__name__} cannot be stored: {error}") from error
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        members = {f"{FOLDER}{name}": archive.read(name) for name in archive.namelist()}
    members[SKOPS_TREE] = json.dumps(parse_json(members[SKOPS_TREE], SKOPS_TREE), separators=(",", ":")).encode()
    unknown = sorted(unknown_types(members, trusted))
    if unknown:
        raise ValueError(
            f"The predictor cannot be stored as plain data: {reason}. It holds {', '.join(unknown)}, which `load` "
            f"would refuse. If you trust this code, name it in trusted={unknown} when you save and when you load."
        )
    return members


def load_trusted(members: dict[str, bytes], trusted: Sequence[str]) -> Any:
    """The predictor as skops makes it, every type of it known or trusted by name; its members are used up.

    What it is made of is checked by type only: whoever trusts a type trusts the file's author with it.
    """
    import skops.io

    unknown = sorted(unknown_types(members, trusted))
    if unknown:
        raise ModelFileError(
            f"The predictor holds {', '.join(unknown)[:500]}, which is not on the list of known types. If you trust "
            "the file's author and that code, name these types in trusted=[...]."
        )
    own = [name for name in members if name.startswith(FOLDER)]
    for name in own:
        if name.endswith(".npy"):
            npy_header(members[name], name)
    types = sorted(types_in(members))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in own:
            # Taken out, because a large forest should not be in memory three times.
            archive.writestr(name.removeprefix(FOLDER), members.pop(name))
    try:
        return skops.io.load(stream, trusted=types)
    except (Exception, SystemExit) as error:  # what a trusted type does when it is made
        raise ModelFileError(f"The predictor cannot be made: {type(error).__name__}: {error}") from error


def unknown_types(members: Mapping[str, bytes], trusted: Sequence[str] = ()) -> set[str]:
    """Types and functions in a predictor that are neither known nor in `trusted`; nothing is imported to find out."""
    return {_type_of(node) for node in _nodes(_tree(members)) if not _is_known(node)} - set(trusted)


def types_in(members: Mapping[str, bytes]) -> set[str]:
    """Every type and function that making the predictor would use."""
    return {_type_of(node) for node in _nodes(_tree(members))}


def _is_known(node: Mapping[str, Any]) -> bool:
    name, loader = _type_of(node), str(node.get("__loader__"))
    if loader == "ObjectNode":
        cls = known_classes().get(str(node["__class__"]))
        return cls is not None and name == f"{cls.__module__}.{cls.__name__}"
    return name in _PLAIN.get(loader, ())


def _tree(members: Mapping[str, bytes]) -> Any:
    if SKOPS_TREE not in members:
        raise ModelFileError("The description of the predictor is missing.")
    return parse_json(members[SKOPS_TREE], SKOPS_TREE)


def _type_of(node: Mapping[str, Any]) -> str:
    return f"{node.get('__module__')}.{node['__class__']}"


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    todo = [tree]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            if "__class__" in item:
                yield item
            todo.extend(item.values())
        elif isinstance(item, list):
            todo.extend(item)


def record_from_skops(members: Mapping[str, bytes]) -> Record:
    """The record of a predictor; what is no plain data in it becomes `Unreadable`.

    Every node is read where it stands: numbers that refer to other nodes (`__id__`) mean nothing here.
    """
    record = _Reader(members).read(_tree(members), 0)
    if not isinstance(record, Record):
        raise ModelFileError("The description of the predictor is no object.")
    return record


class _Reader:
    def __init__(self, members: Mapping[str, bytes]) -> None:
        self.members, self.work = members, Work()
        self.bytes_left = 2 * sum(len(member) for member in members.values())

    def read(self, node: Any, depth: int) -> Any:
        self.work.step(depth)
        if not isinstance(node, dict):
            raise ModelFileError("A part of the predictor is described in an unexpected way.")
        way = _ROUTES.get(str(node.get("__loader__")))
        if way is None or not isinstance(node.get("__class__"), str):
            return Unreadable(f"{node.get('__module__')}.{node.get('__class__')}")
        return way(self, node, depth + 1)

    def _object(self, node: dict[str, Any], depth: int) -> Any:
        state = self.read(node["content"], depth) if node.get("content") is not None else {}
        name, package = node["__class__"], str(node.get("__module__")).split(".")[0]
        if package not in ("sklearn", "polyhedge") or not isinstance(state, dict):
            return Unreadable(f"{node.get('__module__')}.{name}")
        if name == "_RemainderColsList":  # how scikit-learn 1.5 to 1.7 keeps the columns of a remainder
            return state["data"]
        return Record(name, state)

    def _tree(self, node: dict[str, Any], depth: int) -> Any:
        n_features, n_classes, n_outputs = self.read(node["__reduce__"]["args"], depth)
        state = self.read(node["content"], depth)
        return Record("Tree", {"n_features": n_features, "n_classes": n_classes, "n_outputs": n_outputs, **state})

    def _dict(self, node: dict[str, Any], depth: int) -> Any:
        made = {key: self.read(value, depth) for key, value in node["content"].items()}
        types = [each["__class__"] for each in node["key_types"]["content"]]
        return {int(key) if "int" in kind else key: made[key] for key, kind in zip(made, types, strict=True)}

    def _list(self, node: dict[str, Any], depth: int) -> Any:
        return [self.read(value, depth) for value in node["content"]]

    def _tuple(self, node: dict[str, Any], depth: int) -> Any:
        return tuple(self.read(value, depth) for value in node["content"])

    def _single(self, node: dict[str, Any], depth: int) -> Any:
        value = parse_json(str(node["content"]).encode(), "a value of the predictor")
        if not (value is None or isinstance(value, (bool, int, float, str))):
            raise ModelFileError("A value of the predictor is no single value.")
        return value

    def _slice(self, node: dict[str, Any], depth: int) -> Any:
        parts = [node["content"][key] for key in ("start", "stop", "step")]
        return slice(*parts) if all(n is None or type(n) is int for n in parts) else Unreadable("builtins.slice")

    def _type(self, node: dict[str, Any], depth: int) -> Any:
        return Named("type", _type_of(node))

    def _dtype(self, node: dict[str, Any], depth: int) -> Any:
        content = node["content"]
        if content.get("type") == "json":
            return Named("dtype", "object")
        file = f"{FOLDER}{content['file']}"
        return Named("dtype", npy_header(self.members[file], file)[2].name)

    def _function(self, node: dict[str, Any], depth: int) -> Any:
        name = str(node["__class__"])
        is_numpy = node.get("__module__") in ("numpy", "numpy._core._multiarray_umath", "numpy.core._multiarray_umath")
        # By its name alone: to look into NumPy for any other would import what NumPy imports when it is asked.
        return Named("function", name) if is_numpy and is_function(name) else Unreadable(_type_of(node))

    def _partial(self, node: dict[str, Any], depth: int) -> Any:
        """Only the one that histogram boosting puts in front of its numbers."""
        from sklearn.utils import check_array

        content = node["content"]
        is_check = _type_of(content["func"]) == "sklearn.utils.validation.check_array"
        args, keywords = self.read(content["args"], depth), self.read(content["kwds"], depth)
        types = keywords.get("dtype") if isinstance(keywords, dict) else None
        if isinstance(types, list) and types == [Named("type", "numpy.float64")]:
            keywords = {**keywords, "dtype": [np.float64]}
        if is_check and is_numbers_of_boosting(check_array, args, keywords):
            return Named("function", "numbers of boosting")
        return Unreadable("functools.partial")

    def _array(self, node: dict[str, Any], depth: int) -> Any:
        if node.get("type") == "json":
            shape = self.read(node["shape"], depth)
            items = [self.read(item, depth) for item in node["content"]]
            if len(shape) == 2:
                items = [value for row in items for value in row]
            return Objects(items, tuple(shape))
        file = f"{FOLDER}{node['file']}"
        self.bytes_left -= len(self.members[file])
        if self.bytes_left < 0:
            raise ModelFileError("The arrays of the predictor are used over and over.")
        texts = _texts(self.members[file], file)
        if texts is not None:
            return texts
        array = read_array(self.members[file], file)
        return array if node["__class__"] == "ndarray" else array[()].item()


def _texts(content: bytes, name: str) -> Objects | None:
    """An array of texts; None where it holds numbers."""
    shape, _, dtype, _ = npy_header(content, name)
    if dtype.kind != "U" or len(shape) != 1:
        return None
    return Objects(np.load(io.BytesIO(content), allow_pickle=False).tolist(), shape, is_text=True)


_ROUTES: Mapping[str, Callable[[_Reader, dict[str, Any], int], Any]] = {
    "ObjectNode": _Reader._object,
    "TreeNode": _Reader._tree,
    "DictNode": _Reader._dict,
    "ListNode": _Reader._list,
    "TupleNode": _Reader._tuple,
    "JsonNode": _Reader._single,
    "SliceNode": _Reader._slice,
    "TypeNode": _Reader._type,
    "DTypeNode": _Reader._dtype,
    "FunctionNode": _Reader._function,
    "PartialNode": _Reader._partial,
    "NdArrayNode": _Reader._array,
}
