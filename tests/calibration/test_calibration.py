"""Calibration: the rank is exact, the radius is its definition, the coverage follows its law."""

from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from polyhedge.calibration import (
    ByCategory,
    CategoryRadii,
    conformal_radius,
    conformal_rank,
    coverage_law,
    grouped_radius,
    minimum_samples,
)
from polyhedge.calibration.by_category import labels_of
from polyhedge.rows import Rows
from shared import codes

ALPHAS = [0.001, 0.01, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 1 / 3, 0.45, 0.5, 0.55, 2 / 3, 0.9, 0.99]
# Few distinct values, so that ties are the rule.
tied_scores = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=1, max_size=40)
free_scores = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


def decimal(alpha):
    return Fraction(str(float(alpha)))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_rank_is_the_smallest_integer_that_reaches_the_level_for_every_n_up_to_500(alpha):
    level = 1 - decimal(alpha)
    for n in range(501):
        k = conformal_rank(n, alpha)
        brute_force = next(j for j in range(n + 2) if Fraction(j, n + 1) >= level)
        assert k == brute_force


def test_rank_is_exact_where_the_float_formula_is_one_too_high():
    pairs = [(n, percent / 100) for n in range(1, 501) for percent in range(1, 100)]
    wrong = [(n, alpha) for n, alpha in pairs if ceil((n + 1) * (1 - alpha)) != conformal_rank(n, alpha)]
    assert (99, 0.45) in wrong
    for n, alpha in wrong:
        assert ceil((n + 1) * (1 - alpha)) == conformal_rank(n, alpha) + 1
        assert (n + 1) * (1 - decimal(alpha)) == conformal_rank(n, alpha)


def test_rank_reads_numpy_floats_as_python_floats():
    assert [conformal_rank(n, np.float64(0.45)) for n in range(200)] == [conformal_rank(n, 0.45) for n in range(200)]


@pytest.mark.parametrize("alpha", ALPHAS)
def test_minimum_samples_is_the_first_n_whose_rank_is_attained(alpha):
    n = minimum_samples(alpha)
    assert conformal_rank(n, alpha) <= n
    assert conformal_rank(n - 1, alpha) > n - 1


@given(scores=st.one_of(tied_scores, free_scores), percent=st.integers(1, 99))
def test_radius_is_the_least_score_that_covers_k_samples(scores, percent):
    alpha = percent / 100
    k = conformal_rank(len(scores), alpha)
    if k > len(scores):
        with pytest.raises(ValueError, match="needs at least"):
            conformal_radius(scores, alpha)
        return
    covering = [r for r in scores if sum(s <= r for s in scores) >= k]
    assert conformal_radius(scores, alpha) == min(covering)


@given(scores=free_scores.filter(lambda s: len(s) >= 9), seed=st.integers(0, 2**32 - 1))
def test_radius_does_not_depend_on_the_order_of_the_scores_and_leaves_them_untouched(scores, seed):
    shuffled = np.random.default_rng(seed).permutation(scores)
    before = shuffled.copy()
    assert conformal_radius(shuffled, 0.1) == conformal_radius(scores, 0.1)
    np.testing.assert_array_equal(shuffled, before)


@given(scores=free_scores.filter(lambda s: len(s) >= 19))
def test_radius_grows_as_alpha_falls(scores):
    radii = [conformal_radius(scores, alpha) for alpha in (0.5, 0.3, 0.1, 0.05)]
    assert radii == sorted(radii)


def test_infinite_scores_count_as_never_covered():
    scores = np.append(np.arange(18.0), np.inf)
    assert conformal_radius(scores, 0.1) == 17.0
    with pytest.raises(ValueError, match=r"radius would be inf: the score of rank 19 of 19 is not finite"):
        conformal_radius(scores, 0.05)


def test_too_few_samples_is_an_error_that_says_how_many_are_needed():
    message = (
        r"^alpha=0\.01 needs at least 99 calibration samples, got 80: the conformal radius would be "
        r"infinite\. Raise alpha or the calibration share\.$"
    )
    with pytest.raises(ValueError, match=message):
        conformal_radius(np.arange(80.0), 0.01)
    with pytest.raises(ValueError, match=message):
        coverage_law(80, np.float64(0.01))
    with pytest.raises(ValueError, match="needs at least 9 calibration samples, got 0"):
        conformal_radius([], 0.1)


@pytest.mark.parametrize(
    ("scores", "message"),
    [([0.0] * 9 + [np.nan], "must not be NaN, got 1 of 10"), ([[0.0]] * 10, r"got shape \(10, 1\)")],
)
def test_scores_without_a_rank_are_refused(scores, message):
    with pytest.raises(ValueError, match=message):
        conformal_radius(scores, 0.1)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, 90, True, np.nan, "0.1"])
def test_alpha_outside_the_unit_interval_is_refused(alpha):
    for call in (lambda: conformal_rank(10, alpha), lambda: minimum_samples(alpha)):
        with pytest.raises(ValueError, match="alpha must lie strictly between 0 and 1"):
            call()


@pytest.mark.parametrize(("m", "alpha"), [(19, 0.05), (50, 0.1), (300, 0.1), (99, 0.45)])
def test_mean_coverage_lies_between_the_target_and_one_sample_above(m, alpha):
    mean = coverage_law(m, alpha).mean()
    assert 1 - alpha - 1e-12 <= mean < 1 - alpha + 1 / (m + 1) + 1e-12


@pytest.mark.parametrize(("m", "alpha"), [(19, 0.05), (50, 0.1), (99, 0.45)])
def test_simulated_coverage_follows_the_law(m, alpha):
    # Exponential scores: the coverage of a radius is known exactly. False alarms: 1 in 1000 seeds per case.
    rng = np.random.default_rng(20240)
    radii = [conformal_radius(rng.exponential(size=m), alpha) for _ in range(4000)]
    coverage = stats.expon.cdf(radii)
    assert stats.kstest(coverage, coverage_law(m, alpha).cdf).pvalue > 1e-3


class TestByCategory:
    """A rank within each category, and a stated rule for the others."""

    X = np.array([["a"], ["b"]] * 20)
    scores = np.arange(40.0)

    def radii(self, **settings: Any) -> CategoryRadii:
        return ByCategory(0, **settings).calibrate(self.scores, Rows(self.X), 0.1)

    @pytest.mark.parametrize(("otherwise", "radius"), [("refuse", np.inf), ("marginal", 36.0)])
    def test_unknown_category_falls_back_as_stated_and_is_marked(self, otherwise: str, radius: float) -> None:
        new = Rows(np.array([["a"], ["c"]]))
        radii = self.radii(otherwise=otherwise)
        assert radii.at(new)[1] == radius
        assert list(radii.notes(new)) == [1]

    def test_category_with_too_few_rows_is_named_and_has_no_radius(self) -> None:
        X = np.array([["a"]] * 35 + [["rare"]] * 5)
        with pytest.warns(
            RuntimeWarning, match=r"in each category of 0, and rare has fewer: its rows get no bound"
        ) as caught:
            radii = ByCategory(0).calibrate(self.scores, Rows(X), 0.1)
        assert codes(caught) == {"Few in a category"}
        assert radii.categories == ("a",)

    def test_groups_are_counted_within_a_category(self) -> None:
        groups = np.arange(40) // 2 % 10  # ten groups in each category
        radii = ByCategory(0).calibrate(self.scores, Rows(self.X, groups=groups), 0.1)
        assert radii.radii.tolist() == [grouped_radius(self.scores[k::2], groups[k::2], 0.1) for k in (0, 1)]

    def test_a_number_is_one_category_however_it_is_written(self) -> None:
        pd = pytest.importorskip("pandas")
        whole, broken = pd.DataFrame({"k": [1, 2]}), pd.DataFrame({"k": [1.0, 2.0]})
        assert labels_of(Rows(whole), "k").tolist() == labels_of(Rows(broken), "k").tolist()

    def test_missing_column_is_an_error_that_lists_the_columns(self) -> None:
        pd = pytest.importorskip("pandas")
        with pytest.raises(ValueError, match=r"no column 'shop'.*It has day"):
            labels_of(Rows(pd.DataFrame({"day": [1]})), "shop")
