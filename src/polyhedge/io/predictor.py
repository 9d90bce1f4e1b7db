"""The fitted predictor in a model file: as checked plain data, or through skops where the user trusts its types."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from polyhedge.io.archive import ModelFileError
from polyhedge.io.encode import parse_json
from polyhedge.io.example_rows import example_rows
from polyhedge.io.known import known_classes
from polyhedge.io.make import NotPlainError, from_record, to_record
from polyhedge.io.records import Objects, Record, pack_record, unpack_record
from polyhedge.io.roles import check_predictor
from polyhedge.io.skops_form import SKOPS_TREE, load_trusted, record_from_skops, skops_members, types_in, unknown_types
from polyhedge.predictors.regressor import (
    Predictor,
    _GivenPredictor,
    _identity,
    _TrainedPredictor,
    as_predictor,
    takes_nan,
)

PLAIN = "predictor.json"


def predictor_to_members(
    predictor: Predictor, n_outcomes: int, trusted: Sequence[str] = ()
) -> tuple[str, list[str], dict[str, bytes]]:
    """How the predictor is used ("trained", "frozen" or "precomputed"), the types in it, and its members."""
    kind, estimator = fitted_estimator(predictor)
    if estimator is None:
        return kind, [], {}
    try:
        record = to_record(estimator)
        values, members = pack_record(record)
        _check_twin(estimator, _made(unpack_record(values, dict(members)), n_outcomes))
    except (NotPlainError, ModelFileError) as error:
        members = _trusted_members(estimator, trusted, str(error))
        return kind, sorted(types_in(members)), members
    members[PLAIN] = json.dumps(values, separators=(",", ":")).encode()
    return kind, sorted(set(_types(record))), members


def _trusted_members(estimator: Any, trusted: Sequence[str], reason: str) -> dict[str, bytes]:
    reason = reason.rstrip(".")
    members = skops_members(estimator, trusted, reason)
    if not _is_trusted(members, trusted):
        raise ValueError(
            f"The predictor cannot be stored as plain data: {reason}. If you trust this code, name it in "
            f"trusted=[{_name(type(estimator))!r}] when you save and when you load."
        )
    return members


def _is_trusted(members: dict[str, bytes], trusted: Sequence[str]) -> bool:
    """Whether something that is in the predictor is trusted by name; nothing else opens the way past the checks."""
    return bool(set(trusted) & types_in(members))


def _check_twin(estimator: Any, twin: Any) -> None:
    """What would be read back must predict the same: another version of scikit-learn may keep more than we store."""
    rows = example_rows(estimator)
    answers = [_answer(model, rows) for model in (estimator, twin)]
    if answers[0] != answers[1]:
        raise NotPlainError(f"{_name(type(estimator))}, which would be read back as another predictor")


def _answer(model: Any, rows: Any) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return np.asarray(model.predict(rows)).tobytes()
        except Exception as error:  # rows of our making may be none for it; then the twin must say the same
            return f"{type(error).__name__}: {error}"


def fitted_estimator(predictor: Predictor) -> tuple[str, Any]:
    """How the predictor is used, and the estimator in it; None where predictions are given."""
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
    estimator = _estimator(members, n_outcomes, trusted)
    if kind == "frozen":
        frozen = FrozenEstimator(estimator)
        return frozen, as_predictor(frozen, n_outcomes)
    template = clone(estimator)
    predictor = _TrainedPredictor(template, n_outcomes, takes_nan(template))
    predictor.model = estimator
    return template, predictor


def _estimator(members: dict[str, bytes], n_outcomes: int, trusted: Sequence[str]) -> Any:
    if PLAIN in members:
        values = parse_json(members.pop(PLAIN), PLAIN)
        return _made(_read(lambda: unpack_record(values, members)), n_outcomes)
    if SKOPS_TREE not in members:
        raise ModelFileError("The description of the predictor is missing.")
    try:
        return _made(_read(lambda: record_from_skops(members)), n_outcomes)
    except ModelFileError as error:
        if not _is_trusted(members, trusted):
            unknown = ", ".join(sorted(unknown_types(members)))[:500]
            raise ModelFileError(f"{error} {_ADVICE}{unknown and f' It holds {unknown}.'}") from error
    made = load_trusted(members, trusted)
    if not hasattr(made, "predict") or not hasattr(made, "get_params"):
        raise ModelFileError(f"The predictor must be an estimator with predict, got {type(made).__name__}.")
    return made


_ADVICE = (
    "Only predictors that can be checked as plain data are loaded. If you trust the file's author with this process, "
    "name the types that are not known in trusted=[...]."
)


def _read(read: Any) -> Record:
    try:
        made: Record = read()
    except ModelFileError:
        raise
    except Exception as error:  # a damaged description fails in as many ways as there are damages
        raise ModelFileError(f"The predictor cannot be read: {type(error).__name__}: {error}.") from error
    return made


def _made(record: Record, n_outcomes: int) -> Any:
    """The estimator of a record, checked in the role it plays, and tried."""
    try:
        made = from_record(record)
        check_predictor(made, n_outcomes)
        answer = _answer(made, example_rows(made))
    except Exception as error:  # a damaged description fails in as many ways as there are damages
        raise ModelFileError(f"The predictor cannot be made: {type(error).__name__}: {error}.") from error
    # Zeros may lie outside of what a predictor takes, which is a ValueError; anything else is a defect of its state.
    if isinstance(answer, str) and not answer.startswith("ValueError"):
        raise ModelFileError(f"The predictor does not predict: {answer}. Which scikit-learn was it saved with?")
    return made


def _types(item: Any) -> Iterator[str]:
    """Names of the classes in a record."""
    if isinstance(item, Record):
        yield _name(known_classes()[item.name])
        yield from _types(list(item.state.values()))
    elif isinstance(item, Objects):
        yield from _types(item.items)
    elif isinstance(item, dict):
        yield from _types(list(item.values()))
    elif isinstance(item, (list, tuple)):
        for each in item:
            yield from _types(each)


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__name__}"
