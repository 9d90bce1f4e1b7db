"""What a fitted decider consists of, written to one file and read back bit by bit."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from polyhedge._support.files import replace_file
from polyhedge._support.validation import Array, Mask, check_alpha, check_count
from polyhedge._support.versions import versions
from polyhedge._support.warnings import Code, warn
from polyhedge.calibration import Calibration, OneRadius, Radii, radii_from_state, radii_to_state
from polyhedge.data import Split
from polyhedge.data.splits import are_marked
from polyhedge.io.archive import MAX_BYTES, ModelFileError, bytes_needed, open_archive, pack
from polyhedge.io.claims import check_claims, check_ranks, checked_digest
from polyhedge.io.encode import decode, encode, parse_json
from polyhedge.io.example_rows import example_rows
from polyhedge.io.families import check_outcomes_of, family_from_state, family_to_state
from polyhedge.io.fit_record import FitRecord
from polyhedge.io.predictor import fitted_estimator, predictor_from_members, predictor_to_members
from polyhedge.io.signatures import Key, check_signature, read_signature, signature_of
from polyhedge.learners import LearnResult
from polyhedge.model import Model, Prints, Record
from polyhedge.predictors.raw_columns import Schema
from polyhedge.problems import DecisionProblem, NotPortableError, problem_from_data, problem_to_data
from polyhedge.regions import RegionFamily
from polyhedge.rows import Rows
from polyhedge.solvers.program import Status

FORMAT = "polyhedge model"
# Formats 1 and 2 are still read.
FORMAT_VERSION = 3
_READABLE = (1, 2, 3)
"""Version 1 knows no spread, version 2 no predictors as plain data and one level for all radii: an older reader would
decide wrongly, or not."""
_PACKAGES = ("polyhedge", "numpy", "scipy", "scikit-learn", "cvxpy", "highspy", "clarabel", "skops")
# A calibration a day for 27 years.
_MAX_CALIBRATIONS = 10_000
_SAME = 1e-6
"""Share of the largest number up to which answers of a model and of its file are the same: solvers' own tolerance."""
_FAR_APART = 2**20
"""Rows of a split that may have any numbers: more must be sorted, which takes a second for ten times as many."""


def write_model(
    path: str | Path,
    model: Model,
    trusted: Sequence[str] = (),
    sign: Key | None = None,
    life: Mapping[str, Any] | None = None,
) -> None:
    """Write a model file, whole or not at all, and only if what is read back decides as the model does.

    Parameters
    ----------
    path : where to write.
    model : what to write.
    trusted : names of types in the predictor beyond those on the list; whoever reads the file must trust them too.
    sign : private key; None for a file that is not signed.
    life : what its decider goes on with, numbers, texts, lists and finite arrays: `read_model` gives it back as it is,
        and whoever uses it checks it.
    """
    record, family = model.record, model.family
    kind, types, members = predictor_to_members(family.predictor, model.problem.n_outcomes, trusted)
    state = {
        "format": FORMAT,
        "schema": FORMAT_VERSION,
        "created": _now(),
        "packages": versions(_PACKAGES),
        "settings": dict(record.settings),
        "problem": _problem_state(model.problem),
        **family_to_state(family),
        "radii": radii_to_state(model.radii),
        "calibrations": [[c.date, c.n, float(c.radius), c.digest, float(c.alpha)] for c in model.trail],
        "predictor": {"kind": kind, "types": types},
        "learning": None if record.learn_result is None else _learn_state(record.learn_result),
        "n_learn": int(record.n_learn),
        "split": [np.asarray(getattr(record.split, part)) for part in ("train", "learn", "calibrate")],
        "n_rows": record.split.n_rows,
        "data_digest": record.data_digest,
        "feature_names": list(record.feature_names),
        "columns": None if record.schema is None else record.schema.as_json(),
        "seen": [None if prints is None else prints.view(np.int64) for prints in (record.seen, record.trained)],
        "life": dict(life or {}),
    }
    text, arrays = encode(state)
    members.update({"model.json": text, "details.json": _details_text(record.details), **arrays})
    packed = pack(members, None if sign is None else partial(signature_of, key=sign))
    needed = bytes_needed(members, len(packed))
    _check_twin(model, packed, max(needed, MAX_BYTES), trusted)
    replace_file(Path(path), packed)
    if needed > MAX_BYTES:
        warn(
            Code.LARGE_FILE,
            f"The model is large: load it with max_bytes={needed}, or use a smaller predictor. "
            "The commands take --max-bytes.",
            stacklevel=3,
        )


def read_model(
    path: str | Path,
    *,
    problem: DecisionProblem | None = None,
    trusted: Sequence[str] = (),
    max_bytes: int = MAX_BYTES,
    verify: Key | Sequence[Key] | None = None,
) -> tuple[Model, Any, Any]:
    """Read a model file: the model, what `RobustDecider` takes as its predictor, and what it goes on with, unchecked.

    `ModelFileError` where the file is not what `write_model` wrote.

    Parameters
    ----------
    path : the file.
    problem : the problem, where the file holds only a reference to it.
    trusted : names of types in the predictor that may be made beyond those on the list, and may run code.
    max_bytes : size of the unpacked model beyond which it is refused.
    verify : public key, or several: a file that none of them has signed is refused.
    """
    return _made(open_model(path, max_bytes, verify), problem, trusted)


def _made(opened: OpenedModel, problem: DecisionProblem | None, trusted: Sequence[str]) -> tuple[Model, Any, Any]:
    """What the members of an opened file describe, as `read_model` gives it."""
    members, state = opened.members, opened.state
    try:
        its_problem = _problem(state["problem"], problem)
        d = its_problem.n_outcomes
        check_outcomes_of(state, d)
        template, predictor = predictor_from_members(state["predictor"]["kind"], members, d, trusted)
        family = family_from_state(state, its_problem, predictor)
        details, (seen, trained) = details_of(members), state.get("seen", (None, None))
        record = Record(
            split=_split(state["split"], state["n_rows"]),
            n_learn=check_count(state["n_learn"], "n_learn", minimum=0),
            data_digest=checked_digest(state["data_digest"]),
            learn_result=_learn_result(state["learning"], family),
            feature_names=_names(state["feature_names"]),
            settings={str(key): str(value) for key, value in state["settings"].items()},
            details=details,
            schema=FitRecord.schema_in(details) or _schema(state.get("columns")),
            seen=_prints(seen),
            trained=_prints(trained),
        )
        model = Model(family, record, radii_of(state), calibrations_of(state))
        check_claims(model)
        return model, template, state.get("life", {})
    except ModelFileError:
        raise
    except Exception as error:  # edited content fails wherever it is first used
        raise ModelFileError(f"The model's content is not as expected: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class OpenedModel:
    """A file before any object is made of it: members that are not read yet, its description, and where it is from.

    `signed_by` is the fingerprint of the key that the file says it is signed with, `is_verified` whether it is.
    """

    members: dict[str, bytes]
    state: dict[str, Any]
    digest: str
    signed_by: str | None
    is_verified: bool


def open_model(path: str | Path, max_bytes: int = MAX_BYTES, verify: Key | Sequence[Key] | None = None) -> OpenedModel:
    """The checked members of a file and its decoded description; its signature is checked before anything is read."""
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):  # opening a pipe waits until somebody writes to it
        raise ModelFileError(f"A model must be a file, and {path} is a pipe or a device. Copy what it holds to a file.")
    with path.open("rb") as stream:
        return _opened(stream, max_bytes, verify)


def _opened(stream: BinaryIO, max_bytes: int, verify: Key | Sequence[Key] | None = None) -> OpenedModel:
    archive = open_archive(stream, max_bytes)
    members, signature = archive.members, read_signature(archive.signature)
    if verify is not None:
        check_signature(signature, archive.digest, verify)
    signed_by = None if signature is None else signature.fingerprint
    header = parse_json(members.get("model.json", b""), "model.json")
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ModelFileError("This is not a polyhedge model file.")
    if header.get("schema") not in _READABLE:
        raise ModelFileError(
            f"The file has the format version {str(header.get('schema'))[:20]}, this polyhedge reads versions "
            f"{', '.join(map(str, _READABLE))}. "
            "Install a newer polyhedge, or save the model with an older one."
        )
    try:
        state = decode(members.pop("model.json"), members)
        return OpenedModel(members, state, archive.digest, signed_by, verify is not None)
    except ModelFileError:
        raise
    except Exception as error:  # such as numbers that are no numbers, or a description nested too deep
        raise ModelFileError(f"The description of the model is damaged: {type(error).__name__}: {error}") from error


def _check_twin(model: Model, packed: bytes, max_bytes: int, trusted: Sequence[str]) -> None:
    """Raise where what these bytes describe cannot be read, or decides otherwise at a few rows.

    Parts of a user's own may be stored by less than they are made of, whatever their types say.
    """
    advice = (
        "Something in the decider, such as a rule, a residual distribution or a set of one's own, is not stored whole. "
        "Nothing was written. Keep the decider by pickle, or use parts that Polyhedge makes."
    )
    try:
        opened = _opened(BytesIO(packed), max_bytes)
        twin = _made(opened, model.problem if "elsewhere" in opened.state["problem"] else None, trusted)[0]
    except ModelFileError as error:
        text = f"A model file must be read as it was written, and this one would be refused: {error} {advice}"
        raise ValueError(text) from error
    rows = _examples(model)
    try:
        own, proven = _answers(model, rows)
    except Exception:
        if model.record.examples is None:  # rows of our making, which need not be any that the model takes
            return
        raise
    read, proven_again = _answers(twin, rows)
    both = proven & proven_again
    for what, values in own.items():
        first, second = values[both], read[what][both]
        size = np.abs(first[np.isfinite(first)]).max(initial=0.0)
        if not np.allclose(first, second, rtol=0.0, atol=_SAME * size, equal_nan=True):
            raise ValueError(f"A model file must decide as the decider does, and {what} would differ. {advice}")


def _examples(model: Model) -> Rows:
    """Rows of the fit, or where none is known rows that the predictor takes, with values and labels or weights."""
    if model.record.examples is not None:
        return model.record.examples
    estimator = fitted_estimator(model.family.predictor)[1]
    features = np.zeros((2, model.problem.n_outcomes)) if estimator is None else example_rows(estimator)
    n_values = sum(int(np.prod(each.shape)) for each in model.problem.parameters)
    return Rows(features, parameters=np.zeros((len(features), n_values)))


def _answers(model: Model, rows: Rows) -> tuple[dict[str, Array], Mask]:
    """What a model says of N rows, by the words of an error, and where it says so in the end (N,).

    A search that was stopped by its time may stop elsewhere the next time.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        placed = model.place(rows)
        decided, shifted = placed.decide(), np.roll(placed.regions.centers, 1, axis=0)
        expected = np.full(len(decided), np.nan) if decided.expected_cost is None else decided.expected_cost
        scores = placed.regions.scores(shifted)
    answers = {"decisions": decided.flat, "bounds": decided.cost_bound, "expected costs": expected, "scores": scores}
    return answers, np.asarray(decided.status != Status.STOPPED_EARLY)


def details_of(members: Mapping[str, bytes]) -> dict[str, Any]:
    """The caller's own details."""
    details = parse_json(members.get("details.json", b"{}"), "details.json")
    if not isinstance(details, dict):
        raise ModelFileError("The details of a model must be a dictionary.")
    return details


def calibrations_of(state: Mapping[str, Any]) -> tuple[Calibration, ...]:
    """The audit trail, oldest first, each radius of a rank that its rows have."""
    entries = state["calibrations"]
    if not isinstance(entries, list) or not 1 <= len(entries) <= _MAX_CALIBRATIONS:
        raise ModelFileError(f"A model has 1 to {_MAX_CALIBRATIONS} calibrations.")
    # Older files have one level beside the radii, which was in force when they were written.
    older = {} if "alpha" not in state else {"alpha": state["alpha"]}
    made = tuple(_calibration(*entry, **older) for entry in entries)
    check_ranks(made)
    return made


def radii_of(state: Mapping[str, Any]) -> Radii:
    """The radii in force, which the newest entry of the audit trail must agree with."""
    newest = calibrations_of(state)[-1]
    if "radii" not in state:  # older files know one radius for all rows
        return OneRadius(newest.radius, newest.alpha, newest.n)
    radii = radii_from_state(state["radii"]["kind"], state["radii"])
    if (radii.n, radii.alpha, radii.radius) != (newest.n, newest.alpha, newest.radius):
        raise ModelFileError("The radii are not those of the newest entry of the audit trail.")
    return radii


def _calibration(date: str, n: int, radius: float, digest: str, alpha: float) -> Calibration:
    datetime.fromisoformat(date)
    if not isinstance(radius, float) or not math.isfinite(radius):
        raise ModelFileError(f"A radius must be a finite number, got {radius!r}.")
    return Calibration(date, check_count(n, "n", minimum=1), radius, checked_digest(digest), check_alpha(alpha))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _details_text(details: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(dict(details), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"details must hold JSON values (texts, numbers, lists, dictionaries): {error}") from error


def _problem_state(problem: DecisionProblem) -> dict[str, Any]:
    try:
        return {"stored": problem_to_data(problem)}
    except NotPortableError as error:
        if problem.source is None:
            raise ValueError(
                f"The problem cannot travel in a file: {error}. Write it in a Python file and load it with "
                'ph.problems.from_reference("file.py:name"); the model then keeps the reference.'
            ) from error
        names = {"outcome_names": list(problem.outcome_names), "decision_names": list(problem.decision_names)}
        reference = {"reference": problem.source.reference, "digest": problem.source.digest}
        return {"elsewhere": {"name": problem.name, **names, **reference}}


def _problem(state: Mapping[str, Any], given: DecisionProblem | None) -> DecisionProblem:
    """The problem of the file; one that is given must have been written in the same text."""
    try:
        is_inside = "stored" in state
        stored = problem_from_data(state["stored"]) if is_inside else None
        source = state["stored"]["source"] if is_inside else [state["elsewhere"][k] for k in ("reference", "digest")]
        reference, digest = (str(part) for part in source or ("", ""))
    except Exception as error:  # edited formulas fail wherever CVXPY first meets them
        raise ModelFileError(f"The problem cannot be made: {type(error).__name__}: {error}") from error
    if given is None:
        if stored is not None:
            return stored
        raise ModelFileError(
            f"The problem of this model is in {reference} and not in the file. Loading runs no code: pass "
            f'problem=ph.problems.from_reference("{reference}") if you trust that code.'
        )
    if given.source is None or given.source.digest != digest:
        raise ModelFileError(
            f"The given problem is not the one the model was fitted with: expected the digest {digest or None} of "
            f"{reference or None}, got {None if given.source is None else given.source.digest}."
            + (" The file holds its own problem: leave problem out." if is_inside else "")
        )
    # The names may be those of the rows that the model was fitted on.
    names = state["stored" if is_inside else "elsewhere"]["outcome_names"]
    outcomes = tuple(str(name) for name in names)
    return given if outcomes == given.outcome_names else given.labelled(outcome_names=list(outcomes))


def _schema(stored: Any) -> Schema | None:
    return Schema.from_json(stored) if isinstance(stored, dict) else None


def _names(names: Any) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ModelFileError("The names of features must be a list of texts.")
    return tuple(names)


def _prints(stored: Any) -> Prints | None:
    """Fingerprints of rows, which a file holds as signed numbers."""
    if stored is None:
        return None
    if not isinstance(stored, np.ndarray) or stored.dtype != np.int64 or stored.ndim != 1:
        raise ModelFileError("Fingerprints of rows must be a list of whole numbers.")
    return stored.view(np.uint64)


def _split(parts: Sequence[Any], n_rows: int | None) -> Split:
    train, learn, calibrate = parts
    n = sum(np.size(part) for part in parts)
    ends = [int(np.max(part, initial=0)) + 1 for part in parts if np.asarray(part).dtype.kind in "iu"]
    if n > _FAR_APART and not are_marked(max(ends, default=0), n):
        raise ModelFileError(f"A split of {n} rows has row numbers up to {max(ends)}, which no data set of ours has.")
    return Split(train, learn, calibrate, n_rows=n_rows)


def _learn_state(result: LearnResult) -> dict[str, Any]:
    numbers = [float(result.objective), float(result.seconds), float(result.lower_bound)]
    return {
        "numbers": numbers,
        "status": result.status.name,
        "trace": [float(value) for value in result.trace],
        "detail": result.detail,
        "interrupted": bool(result.interrupted),
    }


def _learn_result(state: Mapping[str, Any] | None, family: RegionFamily) -> LearnResult | None:
    if state is None:
        return None
    if family.sets is None:
        raise ValueError("a learner is told of where no set was learned")
    objective, seconds, lower_bound = state["numbers"]
    return LearnResult(
        set=family.sets.shape,
        objective=float(objective),
        status=Status[state["status"]],
        seconds=float(seconds),
        lower_bound=float(lower_bound),
        trace=tuple(float(value) for value in state["trace"]),
        detail=str(state["detail"]),
        interrupted=bool(state.get("interrupted", False)),
    )
