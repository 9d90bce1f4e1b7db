"""Selection among candidates by a cross-validated score and a complexity penalty."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from polyhedge._support.validation import Indices

logger = logging.getLogger(__name__)
Candidate = TypeVar("Candidate")
Model = TypeVar("Model")


@dataclass(frozen=True)
class Selection:
    """What was chosen, and the scores behind the choice.

    Attributes
    ----------
    chosen : name of the candidate with the least penalised score.
    scores : cross-validated scores by name, without penalties.
    penalties : complexity penalties by name.
    failed : names of candidates that could not be fitted.
    """

    chosen: str
    scores: Mapping[str, float]
    penalties: Mapping[str, float]
    failed: tuple[str, ...]


def cross_validated(
    candidates: Mapping[str, Candidate],
    fit: Callable[[Candidate, int], Model],
    score: Callable[[Sequence[Model]], float],
    folds: Sequence[Indices],
    penalty: Callable[[str, float], float] = lambda name, simplest: 0.0,
) -> Selection:
    """Fit every candidate without each fold, score its models on the folds, and choose the least penalised score.

    Parameters
    ----------
    candidates : the simplest first; of those that tie, the first is chosen.
    fit : (candidate, k) -> model fitted without fold k. A ValueError excludes a candidate where the simplest has a
        finite score.
    score : models, one for each fold -> score of the candidate on all folds together; lower is better.
    folds : rows that are left out in turn.
    penalty : (name, score of the simplest candidate) -> what its complexity adds to a candidate's score.
    """
    simplest, *_ = candidates
    scores: dict[str, float] = {}
    failed = []
    for name, candidate in candidates.items():
        try:
            models = [fit(candidate, k) for k in range(len(folds))]
        except ValueError as error:
            if not np.isfinite(scores.get(simplest, np.inf)):
                raise
            logger.info("%s cannot be fitted here: %s", name, error)
            failed.append(name)
            continue
        scores[name] = score(models)
        logger.info("%s: cross-validated score %g", name, scores[name])
    penalties = {name: penalty(name, scores[simplest]) for name in scores}
    best = min(scores, key=lambda name: scores[name] + penalties[name])
    return Selection(best, scores, penalties, tuple(failed))
