"""Region families and calibrators: what every one of them keeps to, in every combination.

A new family is one row in `FAMILIES`, a new calibrator one in `CALIBRATORS`. Two families are written here, as a user
would: `Diamond` is one of its own, and `EVEN` the guard of a policy of one's own.
"""

from __future__ import annotations

import pickle
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path as FilePath
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import stats

import polyhedge as ph
import polyhedge.app.report.facets as ph_words
from polyhedge.calibration import (
    ByCategory,
    ByConstraint,
    ByGroups,
    Calibrator,
    CVaR,
    Marginal,
    Mean,
    Online,
    Radii,
    Recent,
    ThisModel,
    Weighted,
)
from polyhedge.data import Split
from polyhedge.decisions import all_optimal
from polyhedge.io import stored
from polyhedge.model import Model, Record, fitted_model
from polyhedge.planning import DevelopmentRows, fit_path, fit_policy, margin_path
from polyhedge.predictors.regressor import Predictor, as_predictor
from polyhedge.regions import (
    CostGuard,
    LearnedSet,
    MarginPath,
    PlannedDecisions,
    Policy,
    RegionFamily,
    Regions,
    SetPolicy,
)
from polyhedge.rows import Rows

Floats = NDArray[np.float64]
N_CATEGORIES = 2


def rows(n: int, seed: int) -> tuple[Floats, Floats]:
    """Rows whose last feature is a category, 1 or 2 in turn; outcomes of the second vary more."""
    features, outcomes = ph.data.make_synthetic(n, rng=np.random.default_rng(seed))
    category = 1 + np.arange(n) % N_CATEGORIES
    noise = np.random.default_rng(seed + 1).normal(size=outcomes.shape) * (category - 1)[:, None]
    return np.column_stack([features, category]), outcomes + noise


@stored("test diamond")
@dataclass(frozen=True, eq=False)
class Diamond(RegionFamily):
    """A family of one's own, {u : |u_1 - f_1(x)| + |u_2 - f_2(x)| <= r}: what the base class asks for and no more."""

    problem: ph.DecisionProblem
    predictor: Predictor
    kind: ClassVar[str] = "diamond"
    guarantee: ClassVar[str] = "outcome"

    def at(self, features: Any, values: Any = None, work: Any = None) -> Diamonds:
        return Diamonds(self.problem, self.predictor.predict(features))


@dataclass(frozen=True, eq=False)
class Diamonds(Regions):
    problem: ph.DecisionProblem
    centers: Floats

    def scores(self, outcomes: Floats) -> Floats:
        return np.asarray(np.abs(outcomes - self.centers).sum(axis=1))

    def decide(self, radii: Floats) -> ph.Decisions:
        return ph.robust.decide(self.problem, ph.Ball(2, norm=1), radii, self.centers)

    def region(self, row: int, radius: float) -> ph.Region:
        return ph.Region(ph.Ball(2, norm=1), radius, self.centers[row])

    def volume(self, radii: Floats) -> ph.sets.Volume:
        return ph.sets.Volume(float(np.mean(2 * radii**2)))

    def take(self, rows: Any) -> Diamonds:
        return replace(self, centers=self.centers[rows])


@dataclass(frozen=True, eq=False)
class Even(Policy):
    """A policy of one's own: half and half."""

    kind: ClassVar[str] = "even"

    def decide(self, features: Any, centers: Floats, values: Floats, work: Any = None) -> PlannedDecisions:
        return PlannedDecisions(np.full((len(centers), 2), 0.5), centers.mean(axis=1), all_optimal(len(centers)))

    def state(self) -> dict[str, Any]:
        return {}


def short_path() -> MarginPath:
    """Policies of two amounts that must suffice, of four steps and after a short selection: each step is a program a
    row."""
    problem = ph.DecisionProblem(
        decision=cp.Variable(2, nonneg=True),
        cost=lambda z, u: cp.sum(z) + 0.1 * cp.sum(u),
        constraints=[],
        uncertain_constraints=lambda z, u: [z >= u],
        n_outcomes=2,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(margin_path, "helpful_distributions", lambda rows, seed: ("scaled",))
        patch.setattr(margin_path, "_SCORED_ROWS", 2)
        policy = fit_path(problem, DEVELOPED, 0.1, 0.5, 0)
    policy = replace(policy, margins=policy.margins[::5], spreads=policy.spreads[::5])
    return MarginPath(problem, PREDICTOR, policy)


X, Y = rows(120, 0)
NEW = X[100:106]
PREDICTOR = as_predictor(None, 2).fit(X[:40], Y[:40])
SHAPE = ph.Polyhedron([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], -np.array([0.4, 0.3, 2.0, 2.0]))
PROBLEM = ph.problems.simplex_linear([-0.08, 0.0])
SPREAD = replace(ph.learners.Spread.fit(X[:40], Y[:40], np.exp(X[:40, 0]), min_leaf=10, seed=0), power=0.5)
DEVELOPED = DevelopmentRows(X[:40], PREDICTOR.predict(X[:40]), Y[:40], np.zeros((40, 0)), np.arange(40) // 8)
SETS = LearnedSet(PROBLEM, PREDICTOR, SHAPE, SPREAD)
EVEN = CostGuard(PROBLEM, PREDICTOR, Even())
FAMILIES: dict[str, RegionFamily] = {
    "set": LearnedSet(PROBLEM, PREDICTOR, SHAPE),
    "scaled set": SETS,
    "guard": CostGuard(PROBLEM, PREDICTOR, SetPolicy(SETS)),
    "planned": CostGuard(PROBLEM, PREDICTOR, fit_policy(PROBLEM, DEVELOPED, 0.1, 0.5, 0)),
    "path": short_path(),
    "own": Diamond(PROBLEM, PREDICTOR),
}


@dataclass(frozen=True)
class Row:
    """A calibrator in the table.

    Attributes
    ----------
    calibrator : what calibrates.
    block : calibration rows, in each category where it looks at them, from which it covers 4 of 5 new rows.
    is_exact : whether it covers that many exactly where no two scores are equal, and not more.
    copies : calibration rows of one group of near-copies.
    """

    calibrator: Calibrator
    block: int = 4
    is_exact: bool = True
    copies: int = 1

    @property
    def by_category(self) -> bool:
        return isinstance(self.calibrator, (ByCategory, ByGroups))

    def groups(self, n: int) -> Any:
        return np.arange(n) // self.copies if self.copies > 1 else None


CATEGORY = X.shape[1] - 1
CALIBRATORS = {
    "marginal": Row(Marginal()),
    "grouped": Row(Marginal(), 8, False, copies=2),
    "by category": Row(ByCategory(CATEGORY)),
    "by category, else marginal": Row(ByCategory(CATEGORY, otherwise="marginal")),
    "by groups": Row(ByGroups([CATEGORY])),
    "mean": Row(Mean(largest=1e10)),
    "CVaR": Row(CVaR(0.5, largest=1e10), 14),
    "weighted": Row(Weighted(CATEGORY), 14, False),
    "recent": Row(Recent(40), 9, False),
    "online": Row(Online(step=0.05)),
    "this model": Row(ThisModel(delta=0.5)),
}
every_family = pytest.mark.parametrize("name", list(FAMILIES))
every_calibrator = pytest.mark.parametrize("calibrator", list(CALIBRATORS))


@cache
def own_scores(name: str) -> Floats:
    """Scores of the middle rows, which calibrate."""
    return FAMILIES[name].at(X[40:100]).scores(Y[40:100])


def radii_in_order(name: str, calibrator: str, order: Any) -> Radii:
    """The radii of the middle rows, taken in this order."""
    row, n = CALIBRATORS[calibrator], len(order)
    groups = row.groups(n)
    given = Rows(X[40:100][order], groups=None if groups is None else groups[order])
    return row.calibrator.calibrate(own_scores(name)[order], given, 0.1)


@cache
def model_of(name: str, calibrator: str) -> Model:
    """A family, calibrated on the middle rows."""
    split = Split(np.arange(40), np.zeros(0, dtype=np.int64), np.arange(40, 100), n_rows=120)
    radii = radii_in_order(name, calibrator, np.arange(60))
    return fitted_model(FAMILIES[name], Record(split, 40, "0" * 64), radii, "0" * 64)


@cache
def bounds_of(name: str, calibrator: str) -> ph.Decisions:
    return model_of(name, calibrator).decide(NEW)


@cache
def fresh_scores(name: str) -> Floats:
    """Scores of fresh rows, fewer of a path; those that fall off it come after all others."""
    features, outcomes = (part[: 200 if name == "path" else None] for part in FRESH)
    return np.nan_to_num(FAMILIES[name].at(features).scores(outcomes), posinf=1e9)


FRESH = rows(1200, 5)


@every_calibrator
@every_family
def test_coverage_follows_its_law_in_every_category_that_is_promised(name: str, calibrator: str) -> None:
    # Blocks of calibration rows (in each category or in all) and new ones, independent of each other: with alpha = 1/5
    # and 4 rows the new score is at most the 4th with probability 4/5 exactly, and at least 4/5 where scores are equal,
    # rows count differently, or in groups. False alarms: 1 in 10 000 a family.
    row, scores, rng = CALIBRATORS[calibrator], fresh_scores(name), np.random.default_rng(3)
    n_kinds = N_CATEGORIES if row.by_category else 1
    order = np.arange(len(scores)) if row.by_category else rng.permutation(len(scores))
    n, size = row.block * n_kinds, (row.block + 1) * n_kinds
    covered: list[list[bool]] = [[], []]
    for start in range(0, len(scores) - size + 1, size):
        block, new = order[start : start + n], order[start + n : start + size]
        if calibrator == "weighted":  # rows of the second category are to come twice as often as they came
            new = new[rng.uniform(size=len(new)) < FRESH[0][new, -1] / N_CATEGORIES]
        radii = row.calibrator.calibrate(scores[block], Rows(FRESH[0][block], groups=row.groups(n)), 0.2)
        inside = scores[new] <= radii.at(Rows(FRESH[0][new]))
        for kind, is_inside in zip(FRESH[0][new, -1].astype(int) - 1, inside, strict=True):
            covered[kind if row.by_category else 0].append(bool(is_inside))
    side: Any = "two-sided" if row.is_exact and not FAMILIES[name].scores_are_steps else "less"
    for counted in filter(None, covered):
        assert stats.binomtest(sum(counted), len(counted), 0.8, side).pvalue > 1e-4


@every_calibrator
@every_family
def test_order_of_calibration_rows_does_not_matter_where_none_is_asked_for(name: str, calibrator: str) -> None:
    new, given = Rows(X[100:]), CALIBRATORS[calibrator].calibrator
    shuffled = radii_in_order(name, calibrator, np.random.default_rng(0).permutation(60)).at(new)
    if not (given.needs_order):
        np.testing.assert_array_equal(shuffled, model_of(name, calibrator).radii.at(new))


@every_calibrator
@every_family
def test_radii_of_new_rows_lie_between_the_smallest_and_the_largest(name: str, calibrator: str) -> None:
    radii = model_of(name, calibrator).radii
    found = radii.at(Rows(X[100:]))
    assert radii.smallest <= found.min() <= found.max() <= radii.radius
    assert radii.is_grouped == (calibrator == "grouped")


@every_calibrator
@every_family
def test_rows_are_decided_alone_as_in_any_batch_and_order(name: str, calibrator: str) -> None:
    model, new = model_of(name, calibrator), X[100:104]
    whole = model.decide(new)
    for parts in ([[i] for i in range(4)], np.split(np.arange(4), [1]), [np.arange(4)[::-1]]):
        found = [model.decide(new[part]) for part in parts]
        order = np.concatenate(parts)
        for field in ("flat", "cost_bound"):
            together = np.concatenate([getattr(one, field) for one in found])
            np.testing.assert_allclose(together, getattr(whole, field)[order], rtol=1e-9, atol=1e-9)


@every_calibrator
@every_family
def test_model_decides_the_same_after_a_file_and_after_a_pickle(name: str, calibrator: str, tmp_path: FilePath) -> None:
    decider = ph.RobustDecider(FAMILIES[name].problem)
    decider.model_ = model_of(name, calibrator)
    decider.save(tmp_path / "model.polyhedge")
    read = ph.load(tmp_path / "model.polyhedge")
    expected = bounds_of(name, calibrator)
    for twin in (read.model_, pickle.loads(pickle.dumps(decider.model_))):
        found = twin.decide(NEW)
        np.testing.assert_allclose(found.cost_bound, expected.cost_bound, rtol=1e-9)
        np.testing.assert_allclose(found.flat, expected.flat, rtol=1e-9, atol=1e-9)
        assert twin.radii.promise() == decider.model_.radii.promise()
    given = Rows(X[40:100], groups=CALIBRATORS[calibrator].groups(60))
    assert read.model_.radii.calibrator.calibrate(own_scores(name), given, 0.1).radius == decider.radius_
    if calibrator == "marginal":  # scores of the read family are those of the one that was written, whoever calibrates
        assert read.recalibrate(X[40:100], Y[40:100]).radius_ == pytest.approx(decider.radius_, abs=1e-8)


@every_calibrator
@every_family
def test_rows_of_a_table_are_decided_as_in_memory(name: str, calibrator: str) -> None:
    table = ph.distributed.decide_rows(model_of(name, calibrator), pd.DataFrame(NEW))
    np.testing.assert_allclose(table["cost_bound"], bounds_of(name, calibrator).cost_bound, rtol=1e-9)
    assert table["note"].isna().all()


@pytest.mark.parametrize("calibrator", [name for name, row in CALIBRATORS.items() if row.by_category])
@every_family
def test_row_of_a_category_without_calibration_rows_is_marked(name: str, calibrator: str) -> None:
    model, new = model_of(name, calibrator), np.vstack([X[100], X[101]])
    new[1, -1] = 7
    found = model.decide(new)
    assert found.detail[0] == ""
    assert ("=7)" if calibrator == "by groups" else "category '7'") in found.detail[1]
    assert (found.cost_bound[1] == np.inf) == (calibrator != "by category, else marginal")
    noted = ph.distributed.decide_rows(model, pd.DataFrame(new))["note"]
    assert "nothing is promised" in noted[1]


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize("family", [FAMILIES["own"], EVEN], ids=["family", "policy"])
def test_what_is_ones_own_is_told_drawn_and_followed_like_any_other(family: RegionFamily, tmp_path: FilePath) -> None:
    decider = ph.RobustDecider(PROBLEM, random_state=0)
    decider.model_ = replace(model_of("own", "marginal"), family=family)
    decider.recalibrate(X[40:100], Y[40:100])
    assert decider.model_.guarantee == family.guarantee
    assert family.made_of in decider.summary()
    decider.report(tmp_path / "page.html", X[100:], Y[100:])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert family.made_of in page
    assert "60 calibration rows that did nothing else" in page
    is_set = family.guarantee == "outcome"
    assert decider.at(alpha=0.2).radius_ < decider.radius_
    ph.plots.regions(decider, X[100])
    told = rf"No set was learned: what guards decisions is {family.made_of}\. " + (
        r"region\(x\) gives the region of a row" if is_set else 'Use guarantee="outcome"'
    )
    for asked in (
        lambda: decider.set_,
        lambda: decider.spread_,
        lambda: decider.model_.set_radius,
        lambda: ph_words.facets_in_words(decider, X[100:]),
        lambda: ph.plots.residual_set(decider, X[100:], Y[100:]),
    ):
        with pytest.raises((AttributeError, ValueError), match=told):
            asked()
    with pytest.raises(AttributeError, match=r'There was no selection of policies\. Use guarantee="cost"'):
        _ = decider.policy_
    with pytest.raises(ValueError, match=f"residuals of its own predictor, .*: it is {family.made_of}. Fit it again"):
        decider.refresh(X[40:], Y[40:])
    decided = decider.decide(X[100:])
    coverage = decider.update(X[100:], Y[100:], bounds=decided).coverage
    assert coverage == decider.measure(X[100:], Y[100:]).inside.mean()
    if family is EVEN:
        model = decider.model_
        radii = model.place(model.read(X[100:])).regions.radii_of(decided.cost_bound, decided.radii)
        np.testing.assert_array_equal(radii, decided.radii)
    else:
        with pytest.raises(ValueError, match="Bounds on costs do not say which outcomes"):
            decider.update(X[100:], Y[100:], bounds=decided.cost_bound)
    if family is EVEN:
        with pytest.raises(ValueError, match=r"got a Even in CostGuard\.policy\. Make it a frozen"):
            decider.save(tmp_path / "model.polyhedge")


@pytest.fixture(scope="module")
def decider() -> ph.RobustDecider:
    """A decider that promises a cost."""
    learner = ph.learners.OneSidedBox()
    return ph.RobustDecider(PROBLEM, learner=learner, guarantee="cost", random_state=0).fit(X, Y)


class TestCostGuarantee:
    """`RobustDecider(guarantee="cost")` guards the decisions over the learned set."""

    def test_bound_is_the_worst_cost_at_the_learned_size_plus_the_radius(self, decider: ph.RobustDecider) -> None:
        planned = ph.robust.decide(PROBLEM, decider.set_, 0.0, decider.centers(X[:5]), scales=decider.scales(X[:5]))
        found = decider.decide(X[:5])
        np.testing.assert_allclose(found.cost_bound, planned.cost_bound + decider.radius_, rtol=1e-7)

    def test_share_of_rows_inside_is_the_share_whose_bound_held(self, decider: ph.RobustDecider) -> None:
        measured = decider.measure(*rows(60, 11))
        np.testing.assert_array_equal(measured.inside, measured.held)

    def test_uncertain_constraints_that_a_plan_breaks_count_against_it(self) -> None:
        z = cp.Variable(2, nonneg=True)
        problem = ph.DecisionProblem(
            decision=z,
            cost=lambda z, u: cp.sum(z),
            constraints=[z <= 20],
            uncertain_constraints=lambda z, u: [z >= u],
            n_outcomes=2,
        )
        sets = LearnedSet(problem, PREDICTOR, SHAPE)
        placed = CostGuard(problem, PREDICTOR, SetPolicy(sets)).at(X[:10])
        broken = (Y[:10] > placed.planned.z).any(axis=1)
        np.testing.assert_array_equal(placed.scores(Y[:10]) == np.inf, broken)
        assert 0 < broken.sum() < 10

    def test_unknown_guarantee_is_refused(self) -> None:
        with pytest.raises(ValueError, match="guarantee must be"):
            ph.RobustDecider(PROBLEM, guarantee="costs").fit(X, Y)


@every_family
def test_score_is_the_least_radius_whose_region_holds_the_outcome(name: str) -> None:
    placed = FAMILIES[name].at(X[40:50])
    for i, score in enumerate(placed.scores(Y[40:50])):
        assert placed.region(i, score + 1e-6).contains(Y[40 + i])
        assert not placed.region(i, score - 1e-6).contains(Y[40 + i])


@every_family
def test_cost_is_at_most_the_bound_where_the_outcome_is_in_the_region(name: str) -> None:
    placed = FAMILIES[name].at(X[40:60])
    found = placed.decide(placed.scores(Y[40:60]))  # every outcome lies on the border of its region
    costs = FAMILIES[name].problem.evaluate(found.flat, Y[40:60])
    assert (costs <= found.cost_bound + 1e-9).all()
    if name == "guard":
        np.testing.assert_allclose(costs, found.cost_bound, atol=1e-9)


@every_family
def test_some_rows_are_as_among_all(name: str) -> None:
    rows, radii = np.array([7, 3, 9]), np.linspace(0.1, 0.5, 10)
    placed = FAMILIES[name].at(X[40:50])
    some, whole = placed.take(rows).decide(radii[rows]), placed.decide(radii)
    np.testing.assert_allclose(some.cost_bound, whole.cost_bound[rows], rtol=1e-9)
    np.testing.assert_allclose(some.z, whole.z[rows], rtol=1e-9, atol=1e-9)


def test_guard_of_decisions_from_a_shared_pool_does_not_depend_on_the_batch() -> None:
    problem = ph.problems.newsvendor(
        0.3, 0.7, 2, nonnegative_demand=False
    )  # no closed form: contexts of a call share decisions
    guard = CostGuard(problem, PREDICTOR, SetPolicy(LearnedSet(problem, PREDICTOR, SHAPE)))
    whole = guard.at(X[40:50]).planned
    for i in (0, 7):
        alone = guard.at(X[40 + i : 41 + i]).planned
        np.testing.assert_allclose(alone.z[0], whole.z[i], rtol=1e-9)
        assert alone.v[0] == pytest.approx(whole.v[i], rel=1e-9)


def test_row_without_a_plan_scores_infinity_and_has_no_bound() -> None:
    class Nothing(SetPolicy):
        def decide(self, *given: Any, **more: Any) -> Any:
            planned = super().decide(*given, **more)
            planned.z[0] = np.nan
            return planned

    placed = CostGuard(PROBLEM, PREDICTOR, Nothing(SETS)).at(X[40:43])
    assert placed.scores(Y[40:43])[0] == np.inf
    found = placed.decide(np.ones(3))
    assert np.isnan(found.cost_bound).tolist() == [True, False, False]
    assert not found.status[0].has_solution


ASKED_BY_TYPE = re.compile(
    r"isinstance\((\w+\.)*family\b|type\((\w+\.)*family\) |family\.kind [!=]=|radii\.kind [!=]="
    r"|isinstance\([\w.]*(radii|calibrat\w+), (One|By|Category|Weighted|Online|Recent|This|Marginal\))"
    r"|(getattr|hasattr)\((\w+\.)*(family|radii|calibrat\w+|\w+\.plan), \""
)


def test_nobody_asks_a_family_for_its_type_or_radii_for_what_no_protocol_names() -> None:
    package = FilePath(ph.__file__).parent
    asking = {
        path.relative_to(package).as_posix(): ASKED_BY_TYPE.search(path.read_text(encoding="utf-8"))
        for path in package.rglob("*.py")
    }
    assert [name for name, found in asking.items() if found] == []


LEVELS = {"cost": 0.2, **dict.fromkeys(FAMILIES["path"].problem.constraint_names[::-1], 0.1)}


def test_path_with_a_level_for_each_constraint_keeps_them_in_a_file_and_in_tables(tmp_path: FilePath) -> None:
    family, given = FAMILIES["path"], Rows(X[40:100], Y[40:100])
    radii, _ = ph.model.calibrated_radii(family, ByConstraint(LEVELS), given, 0.1)
    placed = family.at(given.features)
    steps = placed.scores_of_promises(given.Y)
    np.testing.assert_array_equal(steps.max(axis=1), placed.scores(given.Y))
    for k, name in enumerate(("cost", *family.problem.constraint_names)):
        own = radii.radii[list(LEVELS).index(name)]
        assert own == ph.calibration.conformal_radius(steps[:, k], LEVELS[name])
        kept = placed._kept(int(radii.radius), np.arange(60), given.Y)[:, k]
        assert (kept >= (steps[:, k] <= radii.radius)).all()
    shuffled = given.take(np.random.default_rng(0).permutation(60))
    assert ph.model.calibrated_radii(family, ByConstraint(LEVELS), shuffled, 0.1)[0].radii == radii.radii
    decider = ph.RobustDecider(family.problem)
    split = Split(np.arange(40), np.zeros(0, dtype=np.int64), np.arange(40, 100), n_rows=120)
    decider.model_ = fitted_model(family, Record(split, 40, "0" * 64), radii, "0" * 64)
    decider.save(tmp_path / "model.polyhedge")
    again = ph.load(tmp_path / "model.polyhedge")
    np.testing.assert_allclose(again.decide(NEW).cost_bound, decider.decide(NEW).cost_bound)
    np.testing.assert_allclose(
        ph.distributed.decide_rows(decider.model_, pd.DataFrame(NEW))["cost_bound"], decider.decide(NEW).cost_bound
    )
    assert again.promise_ == decider.promise_
    assert again.recalibrate(X[40:100], Y[40:100]).model_.radii.radii == radii.radii


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "path"])
def test_other_families_keep_no_constraints_apart(name: str) -> None:
    with pytest.raises(ValueError, match="Levels by constraint need"):
        ph.model.calibrated_radii(FAMILIES[name], ByConstraint(LEVELS), Rows(X[40:100], Y[40:100]), 0.1)
