"""What several test files need."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
import pytest
from typer.testing import CliRunner, Result

import polyhedge as ph
from polyhedge.app import cli
from polyhedge.io.codec import Decoder, encode
from polyhedge.robust.scenarios import best_against


def learning_data(
    n: int = 60, d: int = 2, seed: int = 0, *, size: float = 1.0, shift: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Correlated residuals with heavy tails (n, d), and predictions of this size around the shift."""
    rng = np.random.default_rng(seed)
    mixing = np.tril(rng.normal(size=(d, d))) * 0.3 + 0.3 * np.eye(d)
    return rng.standard_t(5, size=(n, d)) @ mixing.T, shift + size * rng.normal(size=(n, d))


def selections(n: int, alpha: float) -> list[list[int]]:
    """All choices of the conformal rank of n residuals."""
    return [list(chosen) for chosen in combinations(range(n), ph.conformal_rank(n, alpha))]


def brute_force(problem: ph.DecisionProblem, residuals: np.ndarray, centers: np.ndarray, alpha: float) -> float:
    """min over selections of the mean over contexts of min_z max_{j selected} g(z, f + eps_j)."""
    return min(
        float(np.mean([best_against(problem, center + residuals[chosen])[0].value for center in centers]))
        for chosen in selections(len(residuals), alpha)
    )


def check_evidence(result: Any, residuals: Any, contexts: Any, problem: ph.DecisionProblem, alpha: float) -> None:
    """A bounded set of unit facets and radius 0, its objective, a bound below it, and the time it took."""
    objective = ph.learners.Samples(residuals, contexts, problem, alpha)
    assert result.set.is_bounded
    assert objective.radius(result.set) == pytest.approx(0.0, abs=1e-9)
    assert np.linalg.norm(result.set.W, axis=1) == pytest.approx(1.0)
    assert result.objective == pytest.approx(objective.value(result.set), abs=1e-6)
    assert result.lower_bound <= result.objective
    assert result.seconds > 0


@dataclass(frozen=True)
class Given:
    """A learner that returns the shape it was given, at once."""

    shape: Any
    needs: ClassVar[ph.learners.Needs] = ph.learners.Needs()

    def learn(self, samples: ph.learners.Samples, random_state: Any = None) -> ph.learners.LearnResult:
        return ph.learners.LearnResult(self.shape, np.nan, ph.Status.OPTIMAL, 0.0, detail="given")


@dataclass(frozen=True)
class ScaledBox:
    """The one-sided box, scaled by a spread where that pays: what the default learner's selection mostly ends with."""

    complexity_penalty: float = 0.7

    @property
    def needs(self) -> ph.learners.Needs:
        return ph.learners.Needs(may_scale=True, complexity_penalty=self.complexity_penalty)

    def learn(self, samples: ph.learners.Samples, random_state: Any = None) -> ph.learners.LearnResult:
        return ph.learners.OneSidedBox().learn(samples, random_state)


def round_trip(value: Any, **external: object) -> Any:
    """What a model file would give back; it holds no external objects."""
    text, members = encode({"value": value}, external)
    return Decoder(text, members, external)["value"]


def save_trusting(decider: ph.RobustDecider, path: Any) -> list[str]:
    """Save a decider with a predictor of one's own, trusting the types that the error names; these are returned."""
    with pytest.raises(ValueError, match="If you trust this code, name it in trusted=") as told:
        decider.save(path)
    trusted: list[str] = re.findall(r"'([^']+)'", str(told.value).split("trusted=")[1])
    decider.save(path, trusted=trusted)
    return trusted


def codes(caught: Any) -> set[str]:
    """What the warnings are about that `pytest.warns` has caught."""
    return {str(one.message.code) for one in caught if isinstance(one.message, ph.CodedWarning)}


def run(*arguments: object) -> Result:
    """The command line with these arguments."""
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def reproduce(*arguments: object) -> Result:
    """The command that makes the paper's experiments again, with these arguments."""
    return run("reproduce", *arguments)


def simplex(z: Any) -> list[Any]:
    """Constraints of shares that add up to one."""
    return [z >= 0, cp.sum(z) == 1]


def first_two(X: Any) -> np.ndarray:
    """A predictor that trusts the order of the columns."""
    return np.asarray(X)[:, :2]
