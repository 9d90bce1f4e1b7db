"""The content of a model file, read without making its predictor or its problem."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from polyhedge._support.text import printable
from polyhedge.calibration import CalibrationRecord, Radii
from polyhedge.data import Split
from polyhedge.io.archive import MAX_BYTES, ModelFileError
from polyhedge.io.codec import Decoder
from polyhedge.io.model import FORMAT_VERSION, OpenedModel, open_model
from polyhedge.io.signatures import Key
from polyhedge.learners import LearnResult, Spread
from polyhedge.model import Model, Record
from polyhedge.planning import PolicyReport
from polyhedge.regions import LearnedSet
from polyhedge.sets import Shape


@dataclass(frozen=True)
class ModelInfo:
    """What a model file says of itself.

    Attributes
    ----------
    format_version, created, packages : format version, time (UTC, ISO 8601), package versions at the time.
    problem_name, outcome_names, decision_names : the problem's own names.
    curvature : how the cost depends on the outcome; None for a problem that is not in the file.
    problem_source : file the problem was written in, or "".
    problem_is_inside : whether `load` needs no user code.
    guarantee : what the calibrated radius bounds, in words.
    radii : the radii in force, one for all rows or by category; `radii.promise()` says what holds.
    set : the learned shape; None where the cost of a policy is bounded.
    spread : the forest that scales it at each row; None where one size serves all.
    alpha, radius, n_calibrate, calibrations : the guarantee and its audit trail, newest last.
    predictor_kind : "trained", "frozen" or "precomputed".
    predictor_types : types inside the predictor, without Python's and NumPy's own.
    learning : status, detail, objective and lower_bound of the learner; of a plan, which rules make it.
    n_train, n_learn, n_calibrate_split : sizes of the three splits.
    data_digest, digest : fingerprints of the data with its splits, and of this file.
    signed_by : fingerprint of the key that the file says it is signed with; None where it is not signed.
    is_verified : whether the signature was checked against a key that the reader gave.
    settings, details : texts of the decider's parameters; whatever the caller stored.
    n_bytes : size of the file.

    Examples
    --------
    >>> import numpy as np, polyhedge as ph, tempfile
    >>> Y = np.random.default_rng(0).normal(size=(100, 2))
    >>> decider = ph.RobustDecider(ph.problems.simplex_linear([0.0, 0.0]), "precomputed", random_state=0)
    >>> decider.fit(Y / 2, Y).save(path := tempfile.mkdtemp() + "/model.polyhedge")
    >>> ph.inspect_model(path).alpha
    0.1
    """

    format_version: int
    created: str
    packages: Mapping[str, str]
    problem_name: str
    outcome_names: tuple[str, ...]
    decision_names: tuple[str, ...]
    curvature: str | None
    problem_source: str
    problem_is_inside: bool
    guarantee: str
    radii: Radii
    set: Shape | None
    spread: Spread | None
    calibrations: tuple[CalibrationRecord, ...]
    predictor_kind: str
    predictor_types: tuple[str, ...]
    learning: Mapping[str, Any]
    n_train: int
    n_learn: int
    n_calibrate_split: int
    data_digest: str
    digest: str
    signed_by: str | None
    is_verified: bool
    settings: Mapping[str, str]
    details: Mapping[str, Any]
    n_bytes: int

    @property
    def alpha(self) -> float:
        """The level that the radius in force was set for."""
        return self.calibrations[-1].alpha

    @property
    def radius(self) -> float:
        """The radius in force."""
        return self.calibrations[-1].radius

    @property
    def n_calibrate(self) -> int:
        """Samples behind the radius in force."""
        return self.calibrations[-1].n

    @property
    def author(self) -> str:
        """Who can have made the file, in words."""
        if self.signed_by is None:
            return "anybody: the file is not signed"
        if self.is_verified:
            return f"who holds the key {self.signed_by}, whose signature was verified"
        return f"anybody: it says it is signed with the key {self.signed_by}, which was not verified"

    def __str__(self) -> str:
        types = ", ".join(name.rsplit(".", 1)[-1] for name in self.predictor_types)
        inside = "inside" if self.problem_is_inside else f"in {self.problem_source}"
        shape = "none: the cost of the policy's decision is bounded"
        if self.set is not None:
            scaled = "" if self.spread is None else ", scaled by a predicted spread"
            shape = f"{type(self.set).__name__} in {self.set.n_outcomes} dimension(s){scaled}"
        lines = {
            "problem": f"{self.problem_name} ({inside}), cost {self.curvature or 'not in the file'}",
            "outcomes": ", ".join(self.outcome_names),
            "decisions": ", ".join(self.decision_names),
            "predictor": f"{self.predictor_kind}{f': {types}' if types else ''}",
            "set": shape,
            "learner": f"{self.learning['status']}; {self.learning['detail']}",
            "promise": f"{self.guarantee}: {self.radii.promise()}",
            "splits": f"{self.n_train} train, {self.n_learn} learn, {self.n_calibrate_split} calibrate",
            **{
                f"radius {i + 1}": f"{c.radius:.6g} for alpha {c.alpha:g} from {c.n} rows, {c.date}"
                for i, c in enumerate(self.calibrations)
            },
            "data": self.data_digest[:16],
            "file": f"{self.digest[:16]}, {self.n_bytes} bytes, format {self.format_version}, {self.created}",
            "author": self.author,
            "packages": ", ".join(f"{name} {version}" for name, version in self.packages.items()),
        }
        # A file may hold any text; what is printed must not reach the terminal as commands.
        return "\n".join(f"{name:<10} {printable(text)}" for name, text in lines.items())


def inspect_model(
    path: str | Path, *, max_bytes: int = MAX_BYTES, verify: Key | Sequence[Key] | None = None
) -> ModelInfo:
    """What is in a model file; its digest is checked, its predictor and its problem are not made.

    Parameters
    ----------
    path : the file.
    max_bytes : size of the unpacked model beyond which it is refused.
    verify : public key, or several: a file that none of them has signed is refused.

    Examples
    --------
    >>> import numpy as np, polyhedge as ph, tempfile
    >>> Y = np.random.default_rng(0).normal(size=(100, 2))
    >>> decider = ph.RobustDecider(ph.problems.simplex_linear([0.0, 0.0]), "precomputed", random_state=0)
    >>> decider.fit(Y / 2, Y).save(path := tempfile.mkdtemp() + "/model.polyhedge")
    >>> info = ph.inspect_model(path)
    >>> info.problem_name, info.n_calibrate, info.radius == decider.radius_
    ('simplex linear', 50, True)
    """
    import_module("polyhedge.fitting")  # registers the classes that a model file may hold
    opened = open_model(path, max_bytes, verify)
    try:
        return _info(opened, Path(path).stat().st_size)
    except ModelFileError:
        raise
    except Exception as error:  # edited content fails wherever it is first used
        raise ModelFileError(f"The model's content is not as expected: {type(error).__name__}: {error}") from error


def _info(opened: OpenedModel, n_bytes: int) -> ModelInfo:
    decoder = opened.decoder
    values, model, record = decoder.values, decoder.first(Model), decoder.first(Record)
    if model is None or record is None:
        raise ModelFileError("The file must hold a model and its record.")
    is_inside = "stored" in values["problem"]
    problem = values["problem"]["stored" if is_inside else "elsewhere"]
    source = (problem["source"] or [""])[0] if is_inside else problem["reference"]
    split, sets, predictor = decoder.value(record["split"]), decoder.first(LearnedSet), decoder["predictor"]
    if not isinstance(split, Split):
        raise ModelFileError("The file must hold the split of its rows.")
    trail = tuple(decoder.value(model["trail"]))
    return ModelInfo(
        format_version=FORMAT_VERSION,
        created=str(values["created"]),
        packages={str(name): str(version) for name, version in values["packages"].items()},
        problem_name=str(problem["name"]),
        outcome_names=tuple(str(name) for name in problem["outcome_names"]),
        decision_names=tuple(str(name) for name in problem["decision_names"]),
        curvature=str(problem["curvature"]).lower().replace("_", " ") if is_inside else None,
        problem_source=str(source),
        problem_is_inside=is_inside,
        guarantee=str(getattr(decoder.class_of(model["family"]), "promise", "")),
        radii=decoder.value(model["radii"]),
        set=None if sets is None else decoder.value(sets["shape"]),
        spread=None if sets is None else decoder.value(sets["spread"]),
        calibrations=trail,
        predictor_kind=predictor.kind,
        predictor_types=tuple(name for name in predictor.types if name.split(".")[0] not in ("builtins", "numpy")),
        learning=_learning(decoder, decoder.value(record["learn_result"])),
        n_train=len(split.train),
        n_learn=len(split.learn),
        n_calibrate_split=len(split.calibrate),
        data_digest=str(record["data_digest"]),
        digest=opened.digest,
        signed_by=opened.signed_by,
        is_verified=opened.is_verified,
        settings={str(key): str(value) for key, value in record["settings"].items()},
        details=decoder.value(record["details"]),
        n_bytes=n_bytes,
    )


def _learning(decoder: Decoder, result: LearnResult | None) -> dict[str, Any]:
    """How the family was made: by a learner, or by a selection among policies."""
    if result is not None:
        status = result.status.name.lower().replace("_", " ")
        found = {"objective": result.objective, "lower_bound": result.lower_bound}
        return {"status": status, "detail": result.detail, **found}
    if (state := decoder.first(PolicyReport)) is None:
        return {"status": "finished", "detail": "no learner", "objective": math.nan, "lower_bound": math.nan}
    report = PolicyReport(**{**state, "entries": tuple(decoder.value(state["entries"]))})
    detail = ", ".join(f"{entry.rule} ({entry.share:.0%})" for entry in report.chosen)
    return {"status": "policy", "detail": detail, "objective": report.chosen[0].bound, "lower_bound": -math.inf}
