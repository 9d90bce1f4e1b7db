"""Parts of one's own beside those that Polyhedge has: radii, families, plans, learners and calibrators.

What a user writes as CONTRIBUTING shows must be taken for what it is: kept in files whole or not at all, told in words
that are true of it, and refused with an error that names it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
from polyhedge.calibration import ByCategory, Calibrator, Marginal, OneRadius, Radii
from polyhedge.data import Split
from polyhedge.diagnostics import diagnostics_of_radii
from polyhedge.model import Record, calibrated_radii, fitted_model, promise_of
from polyhedge.monitoring.monitor import alarm_for
from polyhedge.planning import margin_path
from polyhedge.planning.residual_distributions import DISTRIBUTIONS
from polyhedge.predictors.regressor import as_predictor
from polyhedge.regions import CostGuard, LearnedSet, PlannedDecisions, RegionFamily, SetPolicy
from polyhedge.rows import Rows, with_values

CENTERS, Y = np.random.default_rng(0).normal(size=(2, 100, 2))
PROBLEM = ph.problems.simplex_linear([0.0, 0.0])
PREDICTOR = as_predictor("precomputed", 2)
SETS = LearnedSet(PROBLEM, PREDICTOR, ph.Box([1.0, 1.0]))


def decider_of(family: RegionFamily, calibrator: Any = None) -> ph.RobustDecider:
    """A decider of this family, calibrated on sixty rows."""
    calibrator = calibrator or Marginal()
    radii, digest = calibrated_radii(family, calibrator, Rows(CENTERS[:60], Y[:60]), 0.1)
    split = Split(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.arange(60), n_rows=60)
    decider = ph.RobustDecider(PROBLEM, "precomputed", calibration=calibrator)
    decider.model_ = fitted_model(family, Record(split, 0, digest), radii, digest)
    return decider


@dataclass(frozen=True)
class TwiceRadius(OneRadius):
    """Twice the radius, under a name of its own."""

    kind: ClassVar[str] = "twice"

    def promise(self) -> str:
        return "holds more often than it must"


@dataclass(frozen=True)
class NamelessRadius(OneRadius):
    """The same, without a name of its own."""

    def promise(self) -> str:
        return "holds more often than it must"


@dataclass(frozen=True)
class Twice(Calibrator):
    """Calibrates such radii."""

    radii: type[OneRadius] = TwiceRadius

    def calibrate(self, scores: Any, rows: Any, alpha: float) -> OneRadius:
        made = Marginal().calibrate(scores, rows, alpha)
        return self.radii(2 * made.radius, made.alpha, made.n, scores=scores)


class WiderSet(LearnedSet):
    """Regions of twice the radius, under the name of its parent."""

    def at(self, features: Any, values: Any = None, work: Any = None) -> Any:
        return replace(super().at(features, values), shape=ph.Box([2.0, 2.0]))


def guard_of(policy: SetPolicy) -> CostGuard:
    return CostGuard(PROBLEM, PREDICTOR, policy)


class BolderPolicy(SetPolicy):
    """Another planned cost, under the name of its parent."""

    def decide(self, *given: Any, **more: Any) -> Any:
        planned = super().decide(*given, **more)
        return replace(planned, v=planned.v - 1)


class TestFiles:
    """A file gives back what was written, so that what would be read as something else is refused."""

    @pytest.mark.parametrize("radii", [TwiceRadius, NamelessRadius])
    def test_radii_of_ones_own_are_refused_where_the_model_is_saved(self, radii: Any, tmp_path: Path) -> None:
        decider = decider_of(SETS, Twice(radii))
        with pytest.raises(ValueError, match=rf"not by Twice.*{radii.__name__}.*is registered with"):
            decider.save(tmp_path / "model.polyhedge")
        assert not list(tmp_path.iterdir())
        decider.set_params(calibration=Marginal()).recalibrate(CENTERS[60:], Y[60:]).save(tmp_path / "model.polyhedge")
        assert ph.load(tmp_path / "model.polyhedge").radius_ == decider.radius_

    @pytest.mark.parametrize(
        ("family", "told"),
        [
            (WiderSet(PROBLEM, PREDICTOR, SETS.shape), "a WiderSet in Model.family"),
            (guard_of(SetPolicy(WiderSet(PROBLEM, PREDICTOR, SETS.shape))), "a WiderSet in SetPolicy.sets"),
            (guard_of(BolderPolicy(SETS)), "a BolderPolicy in CostGuard.policy"),
        ],
        ids=["family", "set of a policy", "policy"],
    )
    def test_subclass_that_would_be_read_as_its_parent_is_refused(
        self, family: RegionFamily, told: str, tmp_path: Path
    ) -> None:
        with pytest.raises(ValueError, match=rf"got {told}.*keep the decider by pickle"):
            decider_of(family).save(tmp_path / "model.polyhedge")
        assert not list(tmp_path.iterdir())


NARROW = """
from dataclasses import dataclass
import numpy as np
from polyhedge.planning import ResidualDistribution, residual_distribution

@residual_distribution("by side")
@dataclass(frozen=True, eq=False)
class BySide(ResidualDistribution):
    spreads: tuple[float, float]

    @classmethod
    def fit(cls, rows, seed):
        residuals, is_right = rows.outcomes - rows.centers, np.asarray(rows.X)[:, 0] > 0
        spreads = tuple(float(residuals[is_right == side].std()) for side in (False, True))
        return cls(residuals / np.where(is_right, spreads[1], spreads[0])[:, None], spreads)

    def at(self, X, centers):
        return centers, np.where(np.asarray(X)[:, 0] > 0, self.spreads[1], self.spreads[0])
"""
"""A residual distribution of one's own, in a file of its own: residuals are larger on one side."""


class TestResidualDistributions:
    """A distribution in one file is tried by the selection, held by model files, and refitted like any other."""

    @pytest.fixture
    def by_side(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        (tmp_path / "by_side.py").write_text(NARROW, encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        with patch.dict(DISTRIBUTIONS):
            import_module("by_side")
            yield
        del sys.modules["by_side"]

    @pytest.mark.parametrize("has_limit", [False, True], ids=["guard", "margins"])
    @pytest.mark.usefixtures("by_side")
    def test_the_one_that_fits_wins_and_decides_the_same_from_a_file(
        self, has_limit: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(margin_path, "helpful_distributions", lambda rows, seed: ("by side",))
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, size=(300, 1))
        Y = 10 + X + np.where(X > 0, 2.0, 0.2) * rng.standard_normal((300, 1))
        problem = ph.DecisionProblem(
            decision=cp.Variable(1, nonneg=True),
            cost=lambda z, u: cp.sum(cp.pos(z - u)) + 3 * cp.sum(cp.pos(u - z)),
            constraints=[],
            uncertain_constraints=(lambda z, u: [z >= 0.5 * u]) if has_limit else None,
            n_outcomes=1,
        )
        decider = ph.RobustDecider(problem, "linear", guarantee="cost", random_state=0).fit(X, Y)
        assert "by side" in repr(decider.model_.family.report)  # which names the chosen rules alone
        decider.save(tmp_path / "model.polyhedge")
        again, expected = ph.load(tmp_path / "model.polyhedge").decide(X[:40]), decider.decide(X[:40])
        np.testing.assert_array_equal(again.flat, expected.flat)
        np.testing.assert_array_equal(again.cost_bound, expected.cost_bound)


class TestReadBack:
    """What a file would decide otherwise is not written, whatever the types of the parts are."""

    def test_calibrator_that_would_be_read_as_another_one_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"recalibrates by .*Marginal\(\), and not by Twice\("):
            decider_of(SETS, Twice(OneRadius)).save(tmp_path / "model.polyhedge")
        assert not list(tmp_path.iterdir())


class TestPromises:
    """Radii of one's own make no claim that they do not make themselves."""

    @pytest.mark.parametrize("radii", [TwiceRadius, NamelessRadius])
    def test_subclass_of_the_marginal_radius_has_neither_its_distribution_nor_its_words(self, radii: Any) -> None:
        decider = decider_of(SETS, Twice(radii))
        assert decider.model_.radii.law() is None
        assert alarm_for(decider.model_.radii) is None
        assert promise_of(decider.model_)[0].endswith("More exactly, it holds more often than it must.")
        assert not diagnostics_of_radii(decider.model_, Rows(CENTERS[:60]))
        assert decider_of(SETS).model_.radii.law() is not None

    def test_other_levels_need_scores_that_the_calibrator_hands_over(self) -> None:
        decider = decider_of(SETS, Twice())
        assert decider.at(alpha=0.2).radius_ < decider.radius_
        decider.model_ = replace(decider.model_, radii=replace(decider.model_.radii, scores=None))
        with pytest.raises(
            ValueError, match=r"came without the scores of their calibration rows, .* recalibrate on fre"
        ):
            decider.at(alpha=0.2)


@dataclass(frozen=True)
class Named(Radii):
    """A calibrator of one's own that reads a value of each row, and the radii that it makes."""

    where: Any
    radius: float = 1.0

    @property
    def source(self) -> Any:
        return self.where


@dataclass(frozen=True)
class Weighing(Named):
    reads_weights: ClassVar[bool] = True


class TestReading:
    """What is read of rows is what the part says, and labels where it does not say."""

    def test_values_take_the_place_of_the_column_that_is_named(self) -> None:
        assert with_values(Weighing("a"), [1.0]) == Weighing([1.0])
        assert with_values(ByCategory("a", "marginal"), ["b"]) == ByCategory(["b"], "marginal")
        with pytest.raises(ValueError, match="must be a dataclass with one field that is its source, got Marginal"):
            with_values(Marginal(), [1.0])


@pytest.mark.parametrize(
    "status",
    [
        np.full(2, ph.Status.FINISHED, dtype=object),
        np.full(2, ph.Status.FINISHED),
        [ph.Status.FINISHED] * 2,
        ["optimal"] * 2,
    ],
    ids=["objects", "texts", "list", "words"],
)
def test_statuses_are_members_however_they_came(status: Any) -> None:
    decided = PlannedDecisions(np.full((2, 2), 0.5), np.zeros(2), status).decisions(PROBLEM, np.array([1.0, np.nan]))
    assert all(type(each) is ph.Status for each in decided.status)
    assert decided.status[1] is ph.Status.FAILED  # without a bound nothing is proven
    assert decided.to_frame()["status"].tolist()[0] in ("finished", "optimal")
    assert "costs at most 1" in str(decided[0])


def test_status_that_is_none_is_refused_with_the_row_count_and_an_example() -> None:
    for status, told in (
        (["done", "done"], "such as Status.FINISHED, got: 'done' is not"),
        (["optimal"], r"shape \(1,"),
    ):
        with pytest.raises(ValueError, match=rf"status must be a polyhedge.Status for each of 2 rows, .*{told}"):
            PlannedDecisions(np.full((2, 2), 0.5), np.zeros(2), np.array(status, dtype=object))


@dataclass(frozen=True)
class Returning(Calibrator):
    """A learner and a calibrator of one's own that returns what it is told to."""

    given: Any
    needs: ClassVar[ph.learners.Needs] = ph.learners.Needs()

    def learn(self, samples: Any, random_state: Any = None) -> Any:
        return self.given

    def calibrate(self, scores: Any, rows: Any, alpha: float) -> Any:
        return self.given


class FlatBox(ph.Box):
    """A set whose scores are no array (n,)."""

    def scores(self, residuals: Any) -> Any:
        return super().scores(residuals)[:, None]


def learned(shape: Any, status: Any = ph.Status.FINISHED) -> ph.learners.LearnResult:
    return ph.learners.LearnResult(shape, 0.0, status, seconds=0.0)


class TestResults:
    """What a part of one's own returns is looked at where it is returned, with an error that names the part."""

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            (
                1,
                r"must return a polyhedge\.learners\.LearnResult .* learn of Returning returned 1\. Return LearnResult",
            ),
            (learned(ph.Ball(2), "done"), r"with a polyhedge\.Status, .* of Returning returned <LearnResult: Ball, .*"),
            (learned("a box"), r"must learn a polyhedge\.sets\.Shape, .* of Returning holds 'a box'\. Return a"),
            (
                learned(ph.Ball(3)),
                r"the 2 outcomes of the problem, but the Ball that Returning learned has 3\. Make it",
            ),
            (learned(FlatBox([1.0, 1.0])), r"one number for each of \d+ rows, .* have the shape \(\d+, 1\)\. Its set"),
        ],
        ids=["no result", "no status", "no set", "other outcomes", "other scores"],
    )
    def test_result_of_a_learner_is_refused_in_words_that_name_it(self, given: Any, told: str) -> None:
        decider = ph.RobustDecider(PROBLEM, "precomputed", learner=Returning(given), random_state=0)
        with pytest.raises((TypeError, ValueError), match=told):
            decider.fit(CENTERS, Y)
        assert not hasattr(decider, "model_")

    def test_result_of_a_calibrator_is_refused_in_words_that_name_it(self) -> None:
        told = r"calibrate of Returning returned 1\.0\. Return OneRadius\(radius, alpha"
        with pytest.raises(TypeError, match=told):
            decider_of(SETS, Returning(1.0))

    def test_a_calibrator_that_does_not_count_groups_meets_none(self) -> None:
        decider = ph.RobustDecider(PROBLEM, "precomputed", calibration=Returning(OneRadius(1.0, 0.1, 60)))
        with pytest.raises(ValueError, match="Returning counts rows one by one, and rows of one group are near-copies"):
            decider.fit(CENTERS, Y, groups=np.repeat(np.arange(50), 2))
