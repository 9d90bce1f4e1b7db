"""The fitted predictor in a model file: through skops, with every type checked against a list before it is made."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from polyhedge.io.archive import ModelFileError
from polyhedge.io.encode import npy_header, parse_json
from polyhedge.io.tree_checks import check_trees
from polyhedge.predictors import Predictor, _GivenPredictor, _identity, _TrainedPredictor, as_predictor

_FOLDER = "predictor/"
_SCHEMA = f"{_FOLDER}schema.json"
_SCALARS = [f"numpy.{name}" for name in ("bool", "bool_", "int8", "int32", "int64", "uint8", "uint32", "uint64")]
_SCALARS += ["numpy.float32", "numpy.float64", "numpy.str_"]
_PLAIN = ["builtins.bool", "builtins.float", "builtins.int", "builtins.str"]
# Which types each way of making an object may make. skops calls some of these, so that a list of types alone,
# whatever the way, would let a file call what was only meant to be filled with values.
_KNOWN = {
    "BytesNode": ["builtins.bytes"],
    "DTypeNode": ["numpy.dtype"],
    "DefaultDictNode": ["collections.defaultdict"],
    "DictNode": ["builtins.dict", "collections.OrderedDict", "sklearn.utils._bunch.Bunch"],
    "FunctionNode": ["sklearn.utils.validation.check_array"],
    "JsonNode": _PLAIN,
    "ListNode": ["builtins.list"],
    "MaskedArrayNode": ["numpy.ma.MaskedArray", "numpy.ma.core.MaskedArray"],
    "NdArrayNode": ["numpy.ndarray", *_SCALARS],
    "PartialNode": ["functools.partial"],
    "RandomGeneratorNode": ["numpy.random._generator.Generator"],
    "RandomStateNode": ["numpy.random.mtrand.RandomState"],
    "SetNode": ["builtins.set"],
    "SliceNode": ["builtins.slice"],
    "TreeNode": ["sklearn.tree._tree.Tree"],
    "TupleNode": ["builtins.tuple"],
    "TypeNode": [*_SCALARS, *_PLAIN],
}
_SKLEARN = (
    *("_loss", "compose", "cross_decomposition", "decomposition", "dummy", "ensemble", "feature_selection", "frozen"),
    *("gaussian_process", "impute", "isotonic", "kernel_approximation", "kernel_ridge", "linear_model", "metrics"),
    *("model_selection", "multioutput", "neural_network", "pipeline", "preprocessing", "random_projection", "tree"),
)
_MODULES = tuple(f"sklearn.{part}." for part in _SKLEARN)
_MAX_OUTPUTS = 10_000


def predictor_to_members(predictor: Predictor, trusted: Sequence[str] = ()) -> tuple[str, dict[str, bytes]]:
    """How the predictor is used ("trained", "frozen" or "precomputed"), and its members of the archive."""
    kind, estimator = _fitted_estimator(predictor)
    if estimator is None:
        return kind, {}
    import skops.io

    try:
        packed = skops.io.dumps(estimator)
    except Exception as error:  # skops raises what the object's own methods raise
        raise ValueError(f"The predictor {type(estimator).__name__} cannot be stored: {error}") from error
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        members = {f"{_FOLDER}{name}": archive.read(name) for name in archive.namelist()}
    members[_SCHEMA] = json.dumps(parse_json(members[_SCHEMA], _SCHEMA), separators=(",", ":")).encode()
    unknown = sorted(unknown_types(members, trusted))
    if unknown:
        raise ValueError(
            f"The predictor holds {', '.join(unknown)}, which `load` would refuse. If you trust this code, name it in "
            f"trusted={unknown} when you save and when you load."
        )
    return kind, members


def _fitted_estimator(predictor: Predictor) -> tuple[str, Any]:
    if isinstance(predictor, _TrainedPredictor):
        return "trained", predictor.model
    assert isinstance(predictor, _GivenPredictor)
    if predictor.function is _identity:
        return "precomputed", None
    owner = getattr(predictor.function, "__self__", None)
    if not hasattr(owner, "predict"):
        raise ValueError(
            f"The predictor is the function {predictor.function!r}, and functions are not stored. Hand in a "
            'scikit-learn estimator, or use predictor="precomputed" and store the predictions\' model elsewhere.'
        )
    return "frozen", owner.estimator if isinstance(owner, FrozenEstimator) else owner


def predictor_from_members(
    kind: str, members: dict[str, bytes], n_outcomes: int, trusted: Sequence[str] = ()
) -> tuple[Any, Predictor]:
    """What stands for `RobustDecider.predictor`, and the fitted predictor; its members are used up."""
    if kind == "precomputed":
        return kind, as_predictor(kind, n_outcomes)
    if kind not in ("trained", "frozen"):
        raise ModelFileError(f"{str(kind)[:80]!r} is not a known kind of predictor.")
    estimator = _estimator(members, trusted)
    if kind == "frozen":
        frozen = FrozenEstimator(estimator)
        return frozen, as_predictor(frozen, n_outcomes)
    template = clone(estimator)
    predictor = _TrainedPredictor(template, n_outcomes)
    predictor.model = estimator
    return template, predictor


def _estimator(members: dict[str, bytes], trusted: Sequence[str]) -> Any:
    import skops.io

    unknown = sorted(unknown_types(members, trusted))
    if unknown:
        raise ModelFileError(
            f"The predictor holds {', '.join(unknown)[:500]}, which is not on the list of known types. If you trust "
            "the file's author and that code, name these types in trusted=[...]."
        )
    _check_arrays(members)
    types = sorted(predictor_types(members))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in _own(members):
            # Taken out, because a large forest should not be in memory three times.
            archive.writestr(name.removeprefix(_FOLDER), members.pop(name))
    try:
        made = skops.io.load(stream, trusted=types)
        check_trees(made)
    except Exception as error:  # a damaged description fails in as many ways as there are damages
        raise ModelFileError(f"The predictor cannot be made: {type(error).__name__}: {error}") from error
    if not hasattr(made, "predict") or not hasattr(made, "get_params"):
        raise ModelFileError(f"The predictor must be an estimator with predict, got {type(made).__name__}.")
    return made


def unknown_types(members: Mapping[str, bytes], trusted: Sequence[str] = ()) -> set[str]:
    """Types in a stored predictor that are neither known nor in `trusted`."""
    nodes = _nodes(_schema(members))
    return {_type_of(node) for node in nodes if _type_of(node) not in trusted and not _is_known(node)}


def predictor_types(members: Mapping[str, bytes]) -> set[str]:
    """Every type (and function) that making the predictor would use."""
    return {_type_of(node) for node in _nodes(_schema(members))}


def _schema(members: Mapping[str, bytes]) -> Any:
    if _SCHEMA not in members:
        raise ModelFileError("The description of the predictor is missing.")
    return parse_json(members[_SCHEMA], _SCHEMA)


def _type_of(node: Mapping[str, Any]) -> str:
    return f"{node.get('__module__')}.{node['__class__']}"


def _is_known(node: Mapping[str, Any]) -> bool:
    name, loader = _type_of(node), node.get("__loader__")
    if loader == "ObjectNode":
        return name == "polyhedge.predictors.FeatureRidge" or _is_own_class(node)
    if loader == "LossNode":
        return name.startswith("sklearn._loss._loss.Cy")
    if loader == "FunctionNode" and isinstance(getattr(np, str(node["__class__"]), None), np.ufunc):
        return str(node.get("__module__")).startswith("numpy")  # such as numpy.log1p in a FunctionTransformer
    return name in _KNOWN.get(str(loader), ())


def _is_own_class(node: Mapping[str, Any]) -> bool:
    """Whether a class of scikit-learn's predictors and transformers is meant, and not what its modules import."""
    module, name = str(node.get("__module__")), str(node["__class__"])
    if not f"{module}.".startswith(_MODULES) or ".tests" in module:
        return False
    try:
        found = getattr(import_module(module), name, None)
    except (ImportError, ValueError):
        return False
    return isinstance(found, type) and found.__module__ == module


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    todo = [schema]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            if "__class__" in item:
                yield item
            todo.extend(item.values())
        elif isinstance(item, list):
            todo.extend(item)


def _own(members: Mapping[str, bytes]) -> list[str]:
    return [name for name in members if name.startswith(_FOLDER)]


def _check_arrays(members: Mapping[str, bytes]) -> None:
    """Sizes of arrays, and of what compiled code copies without looking: the classes of a tree's outputs."""
    for name in _own(members):
        if name.endswith(".npy"):
            npy_header(members[name], name)
    for node in _nodes(_schema(members)):
        if node.get("__loader__") == "TreeNode":
            _check_tree_arguments(node, members)


def _check_tree_arguments(node: Mapping[str, Any], members: Mapping[str, bytes]) -> None:
    try:
        _, n_classes, n_outputs = node["__reduce__"]["args"]["content"]
        claimed = int(n_outputs["content"])
        file = f"{_FOLDER}{n_classes['file']}"
        shape = npy_header(members[file], file)[0]
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError("A tree of the predictor is described in an unexpected way.") from error
    if shape != (claimed,) or not 1 <= claimed <= _MAX_OUTPUTS:
        raise ModelFileError(f"A tree of the predictor says it has {claimed} outputs, but describes {shape}.")
