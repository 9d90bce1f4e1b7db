"""A fitted decider back from its file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyhedge.calibration import Marginal
from polyhedge.estimator import RobustDecider
from polyhedge.io import MAX_BYTES, Key, ModelFileError, read_model
from polyhedge.model import Model
from polyhedge.monitoring.monitor import Followed
from polyhedge.monitoring.state import fed_from, followed_from, seed_from, split_from
from polyhedge.problems import DecisionProblem

__all__ = ["load"]


def load(
    path: str | Path,
    *,
    problem: DecisionProblem | None = None,
    trusted: Sequence[str] = (),
    max_bytes: int = MAX_BYTES,
    verify: Key | Sequence[Key] | None = None,
) -> RobustDecider:
    """Read a fitted decider from a file that `RobustDecider.save` wrote; its decisions are the same to the last bit.

    Nothing from the file is run: sets, problem, calibration and predictor are arrays and JSON, and are checked before
    they are used. Files that are cut off, edited, hostile or of another version raise `ModelFileError`.

    Parameters
    ----------
    path : the file.
    problem : the problem, where the file holds only a reference to it (see `problems.from_reference`).
    trusted : names of types in the predictor that you allow beyond those on the list in docs/model-file.md. A file with
        such types can run code and crash the process.
    max_bytes : size of the unpacked model beyond which it is refused.
    verify : public key, or several: a file that none of them has signed, or that was changed since, is refused before
        anything of it is read. Without a key, the file can be from anybody.

    Returns
    -------
    RobustDecider
        Fitted, with `details_`. Its learner is None; what learned the set is told by `learn_result_`. It goes on where
        the saved one stood: `update` counts on from `followed_` and knows the keys that were fed, `refresh` splits as
        before, and rows that it was trained on are still known. The times that a `TimeSplit` was given stay outside:
        `refresh` asks for those of its rows.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import polyhedge as ph
    >>> Y = np.random.default_rng(0).normal(size=(100, 2))
    >>> decider = ph.RobustDecider(ph.problems.simplex_linear([0.0, 0.0]), "precomputed", random_state=0)
    >>> path = tempfile.mkdtemp() + "/model.polyhedge"
    >>> decider.fit(Y * 0.5, Y).save(path, {"columns": ["a", "b"]})
    >>> twin = ph.load(path)
    >>> bool((twin.decide(Y).cost_bound == decider.decide(Y).cost_bound).all()), twin.details_
    (True, {'columns': ['a', 'b']})
    """
    model, template, life = read_model(path, problem=problem, trusted=trusted, max_bytes=max_bytes, verify=verify)
    split, seed, followed, (keys, are_alone) = _life(life, model)
    calibrator = model.radii.calibrator
    decider = RobustDecider(
        model.problem,
        template,
        alpha=model.radii.alpha,
        calibration=None if calibrator == Marginal() else calibrator,
        guarantee=model.guarantee,
        random_state=seed,
        **({} if split is None else {"split": split}),
    )
    decider.model_ = model
    if followed is not None:
        decider.followed_ = followed
        decider._fed_keys, decider._fed_alone = keys, are_alone
    if model.record.learn_result is not None:
        decider.learn_result_ = model.record.learn_result
    return decider


def _life(life: Any, model: Model) -> tuple[Any, int | None, Followed | None, tuple[frozenset[str], bool]]:
    """How rows are split, the seed and what came of bounds; a file may say anything of them."""
    try:
        return split_from(life), seed_from(life), followed_from(life, model), fed_from(life)
    except ModelFileError:
        raise
    except Exception as error:  # edited content fails wherever it is first used
        raise ModelFileError(f"What the decider goes on with is not as expected: {error}") from error
