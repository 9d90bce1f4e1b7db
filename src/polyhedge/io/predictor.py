"""The fitted predictor in a model file: plain arrays, or through skops where the user trusts its types."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from polyhedge._support.stored import stored
from polyhedge.io.archive import ModelFileError
from polyhedge.io.codec import npy_header, parse_json
from polyhedge.predictors.recipes import ArrayPredictor, Recipe
from polyhedge.predictors.regressor import (
    Predictor,
    _GivenPredictor,
    _identity,
    _TrainedPredictor,
    as_predictor,
    takes_nan,
)

_FOLDER = "predictor/"
_TREE = f"{_FOLDER}schema.json"
_SCALARS = ("bool", "bool_", "int8", "int32", "int64", "uint8", "uint32", "uint64", "float32", "float64", "str_")
_PLAIN = {
    "BytesNode": ("builtins.bytes",),
    "DTypeNode": ("numpy.dtype",),
    "DefaultDictNode": ("collections.defaultdict",),
    "DictNode": ("builtins.dict", "collections.OrderedDict"),
    "JsonNode": ("builtins.bool", "builtins.float", "builtins.int", "builtins.str"),
    "ListNode": ("builtins.list",),
    "NdArrayNode": ("numpy.ndarray", *(f"numpy.{name}" for name in _SCALARS)),
    "SetNode": ("builtins.set",),
    "SliceNode": ("builtins.slice",),
    "TupleNode": ("builtins.tuple",),
    "TypeNode": (*(f"numpy.{name}" for name in _SCALARS), "builtins.float", "builtins.int", "builtins.str"),
}
"""Plain data in a description of skops: what makes it, and types; some makers call what they name."""


@stored("predictor")
@dataclass(frozen=True, eq=False)
class StoredPredictor:
    """A predictor as a file holds it.

    Attributes
    ----------
    kind : how it is used: "trained" by fit, "frozen" as it came, or "precomputed" by the user.
    types : names of the types that it was made of, or of its recipe.
    model, template : arrays, and the recipe that `refresh` fits again; None where predictions are given, or where skops
        describes the predictor.
    """

    kind: Literal["trained", "frozen", "precomputed"]
    types: tuple[str, ...] = ()
    model: ArrayPredictor | None = None
    template: Recipe | None = None

    def __post_init__(self) -> None:
        if (self.model is None) != (self.template is None) or (self.model is not None and self.kind != "trained"):
            raise ValueError("A predictor made of arrays must have been trained by a recipe.")


def store_predictor(predictor: Predictor, trusted: Sequence[str] = ()) -> tuple[StoredPredictor, dict[str, bytes]]:
    """The predictor as a file holds it, and members of the archive for one that skops describes."""
    kind: Literal["trained", "frozen"] = "trained"
    if isinstance(predictor, _TrainedPredictor):
        if isinstance(predictor.template, Recipe):
            return StoredPredictor("trained", (predictor.template.name,), predictor.model, predictor.template), {}
        estimator = predictor.model
    else:
        assert isinstance(predictor, _GivenPredictor)
        if predictor.function is _identity:
            return StoredPredictor("precomputed"), {}
        kind, estimator = "frozen", getattr(predictor.function, "__self__", None)
        if not hasattr(estimator, "predict"):
            raise ValueError(
                f"The predictor is the function {predictor.function!r}, and functions are not stored. Hand in a "
                'scikit-learn estimator, or use predictor="precomputed" and store the predictions\' model elsewhere.'
            )
        estimator = estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator
    members = _skops_members(estimator, trusted)
    return StoredPredictor(kind, tuple(sorted(set(_types_in(members))))), members


def load_predictor(
    held: StoredPredictor, members: dict[str, bytes], n_outcomes: int, trusted: Sequence[str] = ()
) -> tuple[Any, Predictor]:
    """What stands for `RobustDecider.predictor`, and the fitted predictor; its members are used up."""
    if held.kind == "precomputed":
        return held.kind, as_predictor(held.kind, n_outcomes)
    template, model = held.template, held.model
    if model is None:
        model = _load_trusted(members, trusted)
        if held.kind == "frozen":
            return FrozenEstimator(model), as_predictor(FrozenEstimator(model), n_outcomes)
        template = clone(model)
    elif (shape := model.predict(model.example()).shape) != (1, n_outcomes):
        raise ModelFileError(f"The predictor must predict {n_outcomes} outcome(s) of a row, got the shape {shape}.")
    predictor = _TrainedPredictor(template, n_outcomes, takes_nan(template))
    predictor.model = model
    return template, predictor


def _skops_members(estimator: Any, trusted: Sequence[str]) -> dict[str, bytes]:
    """Members for an estimator all types of which are plain or in `trusted`; otherwise a ValueError."""
    import skops.io

    try:
        packed = skops.io.dumps(estimator)
    except Exception as error:  # skops raises what the object's own methods raise
        raise ValueError(f"The predictor {type(estimator).__name__} cannot be stored: {error}") from error
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        members = {f"{_FOLDER}{name}": archive.read(name) for name in archive.namelist()}
    members[_TREE] = json.dumps(parse_json(members[_TREE], _TREE), separators=(",", ":")).encode()
    unknown = _unknown_types(members, trusted)
    if unknown:
        raise ValueError(
            f"The predictor holds {', '.join(unknown)}, which `load` would refuse: only predictors that fit makes are "
            f"stored as numbers. If you trust this code, name it in trusted={unknown} when you save and when you load."
        )
    return members


def _load_trusted(members: dict[str, bytes], trusted: Sequence[str]) -> Any:
    """The predictor as skops makes it, every type of it plain or trusted by name; its members are used up.

    What it is made of is checked by type only: whoever trusts a type trusts the file's author with it.
    """
    import skops.io

    unknown = _unknown_types(members, trusted)
    if unknown:
        raise ModelFileError(
            f"The predictor holds {', '.join(unknown)[:500]}, which may run code. If you trust the file's author and "
            f"that code, name these types in trusted=[...]."
        )
    own = [name for name in members if name.startswith(_FOLDER)]
    for name in own:
        if name.endswith(".npy"):
            npy_header(members[name], name)
    types, stream = sorted(set(_types_in(members))), io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in own:
            # Taken out, because a large forest should not be in memory three times.
            archive.writestr(name.removeprefix(_FOLDER), members.pop(name))
    try:
        made = skops.io.load(stream, trusted=types)
    except (Exception, SystemExit) as error:  # what a trusted type does when it is made
        raise ModelFileError(f"The predictor cannot be made: {type(error).__name__}: {error}") from error
    if not hasattr(made, "predict") or not hasattr(made, "get_params"):
        raise ModelFileError(f"The predictor must be an estimator with predict, got {type(made).__name__}.")
    return made


def _unknown_types(members: Mapping[str, bytes], trusted: Sequence[str]) -> list[str]:
    """Types and functions that are neither plain nor in `trusted`; nothing is imported to find out."""
    unknown = {
        _type_of(node) for node in _nodes(members) if _type_of(node) not in _PLAIN.get(str(node["__loader__"]), ())
    }
    return sorted(unknown - set(trusted))


def _types_in(members: Mapping[str, bytes]) -> Iterator[str]:
    return (_type_of(node) for node in _nodes(members))


def _type_of(node: Mapping[str, Any]) -> str:
    return f"{node.get('__module__')}.{node['__class__']}"


def _nodes(members: Mapping[str, bytes]) -> Iterator[dict[str, Any]]:
    """All nodes of the description of a predictor by skops."""
    if _TREE not in members:
        raise ModelFileError("The description of the predictor is missing.")
    todo = [parse_json(members[_TREE], _TREE)]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            if "__class__" in item:
                yield {"__loader__": None, **item}
            todo.extend(item.values())
        elif isinstance(item, list):
            todo.extend(item)
