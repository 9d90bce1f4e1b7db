"""A fitted model, written to one file and read back."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from polyhedge._support.files import replace_file
from polyhedge._support.validation import Array, Mask
from polyhedge._support.versions import versions
from polyhedge._support.warnings import Code, warn
from polyhedge.io.archive import MAX_BYTES, ModelFileError, bytes_needed, open_archive, pack
from polyhedge.io.codec import Decoder, encode, parse_json
from polyhedge.io.fit_record import FitRecord
from polyhedge.io.predictor import load_predictor, store_predictor
from polyhedge.io.signatures import Key, check_signature, read_signature, signature_of
from polyhedge.model import Model
from polyhedge.problems import DecisionProblem, NotPortableError, problem_from_data, problem_to_data
from polyhedge.rows import Rows
from polyhedge.solvers.program import Status

FORMAT = "polyhedge model"
FORMAT_VERSION = 5
"""Raised when what a file holds changes: a file of another version is refused."""
_PACKAGES = ("polyhedge", "numpy", "scipy", "scikit-learn", "cvxpy", "highspy", "clarabel", "skops")
_DIGEST = re.compile("[0-9a-f]{64}")
_SAME = 1e-6
"""Share of the largest number up to which answers of a model and of its file are the same: solvers' own tolerance."""


def write_model(
    path: str | Path, model: Model, trusted: Sequence[str] = (), sign: Key | None = None, life: Any = None
) -> None:
    """Write a `model` file to `path`, whole or not at all, and only if what is read back decides as the model does.

    `sign` is a private key. Types in the predictor that are `trusted` go through skops; whoever reads the file must
    trust them too. `life` is what its decider goes on with, an object of a stored class.
    """
    predictor, members = store_predictor(model.family.predictor, trusted)
    values = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "packages": versions(_PACKAGES),
        "problem": _problem_state(model.problem),
        "predictor": predictor,
        "model": model,
        "life": life,
    }
    text, arrays = encode(values, {"problem": model.problem, "predictor": model.family.predictor})
    members.update({"model.json": text, **arrays})
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
    """Read a model file: the model, what `RobustDecider` takes as its predictor, and what it goes on with.

    `ModelFileError` where the file is not what `write_model` wrote. The arguments `path`, `problem`, `trusted`,
    `max_bytes` and `verify` are those of `polyhedge.load`.
    """
    return _made(open_model(path, max_bytes, verify), problem, trusted)


def _made(opened: OpenedModel, problem: DecisionProblem | None, trusted: Sequence[str]) -> tuple[Model, Any, Any]:
    """What the members of an opened file describe, as `read_model` gives it."""
    decoder = opened.decoder
    try:
        decoder.external["problem"] = its_problem = _problem(decoder["problem"], problem)
        template, predictor = load_predictor(decoder["predictor"], decoder.members, its_problem.n_outcomes, trusted)
        decoder.external["predictor"] = predictor
        model = decoder["model"]
        _check(model, its_problem)
        if (kept := FitRecord.read(model.record.details)) is not None:
            model = replace(model, record=replace(model.record, schema=kept.schema))
        return model, template, decoder["life"]
    except ModelFileError:
        raise
    except Exception as error:  # edited content fails wherever it is first used
        raise ModelFileError(f"The model's content is not as expected: {type(error).__name__}: {error}") from error


def _check(model: Any, problem: DecisionProblem) -> None:
    """Raise where the parts of a model do not fit together."""
    if not isinstance(model, Model) or not model.trail:
        raise ModelFileError("The file must hold a model that was calibrated.")
    family, radii, newest, d = model.family, model.radii, model.trail[-1], problem.n_outcomes
    if family.problem is not problem or (radii.n, radii.alpha, radii.radius) != (newest.n, newest.alpha, newest.radius):
        raise ModelFileError("The radii are not those of the newest entry of the audit trail.")
    if family.sets is not None:
        spread = family.sets.spread
        if family.sets.shape.n_outcomes != d or not (spread is None or spread.fits(d)):
            raise ModelFileError(f"The set must be one of {d} outcomes, as the problem is.")
    digests = [model.record.data_digest, *(entry.digest for entry in model.trail)]
    names = model.record.feature_names
    if not all(map(_DIGEST.fullmatch, digests)) or len(set(names)) < len(names):
        raise ModelFileError("Digests must have 64 hexadecimal digits, and features different names.")


@dataclass(frozen=True)
class OpenedModel:
    """A file before any object is made of it.

    `signed_by` is the fingerprint of the key that the file says it is signed with, `is_verified` whether it is.
    """

    decoder: Decoder
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
    text = members.pop("model.json", b"")
    header = parse_json(text, "model.json")
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ModelFileError("This is not a polyhedge model file.")
    if header.get("version") != FORMAT_VERSION:
        raise ModelFileError(
            f"The file has the format version {str(header.get('version'))[:20]}, this polyhedge reads version "
            f"{FORMAT_VERSION}. Fit the model again, or use the polyhedge that saved it."
        )
    return OpenedModel(Decoder(header, members), archive.digest, signed_by, verify is not None)


def _check_twin(model: Model, packed: bytes, max_bytes: int, trusted: Sequence[str]) -> None:
    """Raise where what these bytes describe cannot be read, or decides otherwise at a few rows of the fit.

    Parts of a user's own may be stored by less than they are made of, whatever their types say.
    """
    advice = (
        "Something in the decider, such as a policy, a residual distribution or a set of one's own, is not stored "
        "whole. Nothing was written. Keep the decider by pickle, or use parts that Polyhedge makes."
    )
    try:
        opened = _opened(BytesIO(packed), max_bytes)
        is_elsewhere = "elsewhere" in opened.decoder.values["problem"]
        twin = _made(opened, model.problem if is_elsewhere else None, trusted)[0]
    except ModelFileError as error:
        text = f"A model file must be read as it was written, and this one would be refused: {error} {advice}"
        raise ValueError(text) from error
    if model.record.examples is None:  # a loaded model, every part of which came from a file
        return
    (own, proven), (read, proven_again) = (_answers(one, model.record.examples) for one in (model, twin))
    both = proven & proven_again
    for what, values in own.items():
        first, second = values[both], read[what][both]
        size = np.abs(first[np.isfinite(first)]).max(initial=0.0)
        if not np.allclose(first, second, rtol=0.0, atol=_SAME * size, equal_nan=True):
            raise ValueError(f"A model file must decide as the decider does, and {what} would differ. {advice}")


def _answers(model: Model, rows: Rows) -> tuple[dict[str, Array], Mask]:
    """What a model answers at N rows, by name, and which rows can be compared (N,).

    A search that a time limit stopped may stop elsewhere the next time.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        placed = model.place(rows)
        decided, shifted = placed.decide(), np.roll(placed.regions.centers, 1, axis=0)
        expected = np.full(len(decided), np.nan) if decided.expected_cost is None else decided.expected_cost
        scores = placed.regions.scores(shifted)
    answers = {"decisions": decided.flat, "bounds": decided.cost_bound, "expected costs": expected, "scores": scores}
    return answers, np.asarray(decided.status != Status.STOPPED_EARLY)


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
