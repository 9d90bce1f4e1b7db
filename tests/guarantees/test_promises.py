"""Promises beyond the marginal one: each calibrator against its law or theorem."""

from __future__ import annotations

import re
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from polyhedge.calibration import (
    ByCategory,
    Online,
    OnlineRadii,
    Recent,
    ThisModel,
    Weighted,
    conformal_radius,
    conformal_rank,
    coverage_law,
    minimum_samples,
    this_model_minimum,
    this_model_rank,
)
from polyhedge.calibration.radii import rows_without_features
from polyhedge.calibration.weighted import WeightedScores
from polyhedge.monitoring.monitor import _MULTIPLES, Alarm
from polyhedge.rows import Rows
from shared import round_trip

FALSE_ALARM = 1e-4
NONE = rows_without_features(1)


class TestThisModel:
    """A rank so high that nearly every model covers."""

    @pytest.mark.parametrize("n", [30, 57, 100])
    @pytest.mark.parametrize(("alpha", "delta"), [(0.1, 0.05), (0.5, 0.25), (0.2, 0.5), (0.3, 0.01)])
    def test_rank_is_the_smallest_whose_exact_tail_is_small_enough(self, n: int, alpha: float, delta: float) -> None:
        kept = 1 - Fraction(str(alpha))

        def tail(k: int) -> Fraction:
            return sum((comb(n, j) * kept**j * (1 - kept) ** (n - j) for j in range(k, n + 1)), Fraction(0))

        brute_force = next(k for k in range(1, n + 2) if tail(k) <= Fraction(str(delta)))
        assert this_model_rank(n, alpha, delta) == max(brute_force, conformal_rank(n, alpha))

    @pytest.mark.parametrize(("alpha", "delta"), [(0.1, 0.05), (0.05, 0.01), (0.5, 0.25), (0.25, 0.9)])
    def test_minimum_is_the_first_n_whose_rank_is_attained(self, alpha: float, delta: float) -> None:
        n = this_model_minimum(alpha, delta)
        assert this_model_rank(n, alpha, delta) <= n
        assert this_model_rank(n - 1, alpha, delta) > n - 1
        with pytest.raises(ValueError, match=rf"needs at least {n} calibration samples, got {n - 1}"):
            ThisModel(delta).calibrate(np.arange(n - 1.0), NONE, alpha)

    def test_tie_between_tail_and_delta_is_settled_in_whole_numbers(self) -> None:
        # P{Bin(3, 1/2) >= 3} is 1/8 exactly.
        assert this_model_rank(3, 0.5, 0.125) == 3

    def test_share_of_models_that_cover_follows_its_binomial_law(self) -> None:
        rng, models = np.random.default_rng(0), 500
        radii = ThisModel(delta=0.1)
        made = [radii.calibrate(rng.uniform(size=100), NONE, 0.1) for _ in range(models)]
        lucky = sum(found.radius >= 0.9 for found in made)  # of uniform scores, the radius is the coverage
        share = made[0].law().sf(0.9)
        low, high = stats.binom(models, share).ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2])
        assert share >= 0.9
        assert low <= lucky <= high
        # The marginal radius does what it promises, and that is less.
        assert coverage_law(100, 0.1).sf(0.9) < 0.6

    @pytest.mark.parametrize("delta", [0.0, 1.0, True, "0.05"])
    def test_delta_must_lie_between_0_and_1(self, delta: Any) -> None:
        with pytest.raises(ValueError, match="delta must lie strictly between 0 and 1"):
            ThisModel(delta)


class TestByCategory:
    """The exact law in each category; rare categories are merged without a look at calibration rows."""

    def test_coverage_of_each_category_follows_its_own_beta_law(self) -> None:
        rng, repetitions = np.random.default_rng(1), 400
        X = np.repeat([[0.0], [1.0], [2.0]], [20, 40, 80], axis=0)
        scale, new = np.array([1.0, 5.0, 0.2]), Rows(np.array([[0.0], [1.0], [2.0]]))
        found = np.array(
            [
                ByCategory(0).calibrate(rng.uniform(size=140) * scale[X[:, 0].astype(int)], Rows(X), 0.1).at(new)
                for _ in range(repetitions)
            ]
        )
        for category, n in enumerate((20, 40, 80)):
            coverage = found[:, category] / scale[category]
            assert stats.kstest(coverage, coverage_law(n, 0.1).cdf).pvalue > FALSE_ALARM / 3

    def test_rare_categories_are_merged_by_other_rows_and_covered_together(self) -> None:
        past = np.repeat([[0.0], [1.0], [2.0], [3.0]], [800, 10, 20, 170], axis=0)
        prepared = ByCategory(0).prepared(Rows(past), 200, 0.1)
        assert prepared.merged == ("1", "2", "3")
        X = np.repeat([[0.0], [1.0], [2.0], [3.0]], [160, 3, 4, 33], axis=0)
        scores = np.random.default_rng(0).normal(size=200)
        radii = prepared.calibrate(scores, Rows(X), 0.1)
        at = radii.at(Rows(np.array([[0.0], [1.0], [2.0], [3.0], [9.0]])))
        assert at.tolist() == [conformal_radius(scores[:160], 0.1), *[conformal_radius(scores[160:], 0.1)] * 3, np.inf]
        assert "1, 2, 3 are one category together" in radii.promise()

    @given(counts=st.lists(st.integers(1, 60), min_size=2, max_size=6), n=st.integers(40, 300))
    @settings(max_examples=40)
    def test_what_is_merged_has_enough_rows_in_expectation_wherever_all_rows_are_enough(
        self, counts: list[int], n: int
    ) -> None:
        X = np.repeat(np.arange(len(counts)), counts)[:, None]
        merged = [int(name) for name in ByCategory(0).prepared(Rows(X), n, 0.1).merged]
        expected = np.array(counts) * n / sum(counts)
        needed = 2 * minimum_samples(0.1)
        assert {k for k in range(len(counts)) if expected[k] < needed} <= set(merged)
        assert not merged or expected[merged].sum() >= needed * (1 - 1e-9)


class TestWeighted:
    """Covariate shift."""

    @given(
        scores=st.lists(st.sampled_from([0.0, 1.0, 1.5, 3.0, np.inf]), min_size=1, max_size=12),
        data=st.data(),
        percent=st.integers(1, 99),
    )
    @settings(max_examples=60)
    def test_radius_is_its_definition_in_exact_arithmetic(self, scores: list[float], data: Any, percent: int) -> None:
        weight = st.sampled_from([0.0, 0.1, 0.3, 1.0, 2.5])
        weights = data.draw(st.lists(weight, min_size=len(scores), max_size=len(scores)))
        counted = [w for s, w in zip(scores, weights, strict=True) if np.isfinite(s)]
        if not any(counted):
            return
        own = data.draw(weight)
        total = sum(map(Fraction, weights), Fraction(own)) * (1 - Fraction(percent, 100))
        covered = {r: sum(Fraction(w) for s, w in zip(scores, weights, strict=True) if s <= r) for r in scores}
        enough = [r for r, w in covered.items() if w >= total and np.isfinite(r)]
        found = WeightedScores.of(scores, weights).radii([own], percent / 100)[0]
        positive = [r for r in enough if any(s == r and w > 0 for s, w in zip(scores, weights, strict=True))]
        assert found == min(positive, default=np.inf if not enough else found)

    @given(scores=st.lists(st.floats(-10, 10), min_size=9, max_size=40), percent=st.integers(10, 90))
    def test_equal_weights_give_the_marginal_radius(self, scores: list[float], percent: int) -> None:
        found = WeightedScores.of(scores, np.full(len(scores), 0.1)).radii([0.1], percent / 100)
        assert found[0] == conformal_radius(scores, percent / 100)

    def test_known_shift_is_covered_where_the_marginal_radius_fails(self) -> None:
        """Scores |N(0, 1)| (1 + 5 x); x is uniform in the past and has the density 4 x^3 among rows to decide."""
        rng, repetitions, m = np.random.default_rng(0), 1000, 200
        covered = {"weighted": 0, "marginal": 0}
        for _ in range(repetitions):
            x, new = rng.uniform(size=(m, 1)), rng.uniform(size=(1, 1)) ** 0.25
            scores, score = (np.abs(rng.normal(size=len(u))) * (1 + 5 * u[:, 0]) for u in (x, new))
            weighted = Weighted(weights=lambda X: 4 * X[:, 0] ** 3).calibrate(scores, Rows(x), 0.1)
            covered["weighted"] += bool(score[0] <= weighted.at(Rows(new))[0])
            covered["marginal"] += bool(score[0] <= conformal_radius(scores, 0.1))
        # Each repetition is an independent draw: counts are binomial, with a chance of at least 0.9 where it holds.
        least = stats.binom(repetitions, 0.9).ppf(FALSE_ALARM)
        assert covered["marginal"] < least <= covered["weighted"]

    def test_estimated_ratio_repairs_most_of_a_shift_and_is_called_approximate(self) -> None:
        rng = np.random.default_rng(0)
        past, x = rng.normal(size=(2000, 1)), rng.normal(size=(2000, 1))
        target, new = rng.normal(1.0, 1.0, size=(2000, 1)), rng.normal(1.0, 1.0, size=(2000, 1))
        scores, later = (np.abs(rng.normal(size=len(u))) * np.exp(u[:, 0]) for u in (x, new))
        calibrator = Weighted(target=target).prepared(Rows(past), 2000, 0.1)
        radii = calibrator.calibrate(scores, Rows(x), 0.1)
        marginal = (later <= conformal_radius(scores, 0.1)).mean()
        assert marginal < 0.8 < 0.87 < (later <= radii.at(Rows(new))).mean() < 0.95
        assert "about 0.9" in radii.promise()
        assert "approximate" in radii.promise()

    def test_row_that_the_past_does_not_know_has_no_bound_and_says_so(self) -> None:
        radii = Weighted(weights=0).calibrate(np.arange(100.0), Rows(np.ones((100, 1))), 0.1)
        new = Rows(np.array([[1.0], [12.0]]))
        assert radii.at(new).tolist() == [90.0, np.inf]
        assert list(radii.notes(new)) == [1]

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: Weighted(), "either weights"),
            (lambda: Weighted(0, np.ones((2, 1))), "either weights"),
            (lambda: Weighted(target=np.ones((2, 3))).prepared(Rows(np.ones((2, 1))), 9, 0.1), "the 1 features of X"),
            (lambda: Weighted(0).calibrate(np.arange(9.0), Rows(np.full((9, 1), -1.0)), 0.1), "not be negative"),
            (lambda: Weighted(0).calibrate(np.arange(9.0), Rows(np.zeros((9, 1))), 0.1), "a weight above zero"),
            (lambda: Weighted(target=1).calibrate(np.arange(9.0), NONE, 0.1), "not estimated yet"),
        ],
    )
    def test_what_cannot_be_weighted_is_refused(self, make: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            make()

    def test_code_is_not_stored(self) -> None:
        X = np.arange(20.0)[:, None]
        radii = Weighted(weights=lambda X: X[:, 0]).calibrate(np.arange(20.0), Rows(X), 0.1)
        with pytest.raises(ValueError, match=r"in \w+\.\w+\. Make it a frozen dataclass"):
            round_trip(radii)


class TestRecent:
    """Fixed weights."""

    def test_endless_half_life_is_marginal_and_a_short_one_follows_the_newest(self) -> None:
        scores = np.concatenate([np.random.default_rng(0).uniform(size=300), 5 + np.arange(100.0)])
        assert Recent(1e12).calibrate(scores, NONE, 0.1).radius == conformal_radius(scores, 0.1)
        assert Recent(20).calibrate(scores[::-1], NONE, 0.1).radius < 1 < Recent(20).calibrate(scores, NONE, 0.1).radius

    def test_exchangeable_rows_lose_nothing(self) -> None:
        rng, repetitions = np.random.default_rng(0), 1000
        recent, scores = Recent(30), rng.uniform(size=(repetitions, 101))
        hits = sum(row[-1] <= recent.calibrate(row[:-1], NONE, 0.1).radius for row in scores)
        assert hits >= stats.binom(repetitions, 0.9).ppf(FALSE_ALARM)

    @pytest.mark.parametrize(("half_life", "n"), [(3.0, 500), (50.0, 8)])
    def test_too_little_weight_is_an_error_that_says_what_is_needed(self, half_life: float, n: int) -> None:
        with pytest.raises(ValueError, match=r"weights add up to 9.*half-life of at least 6\.58 and at least 9 rows"):
            Recent(half_life).calibrate(np.arange(float(n)), NONE, 0.1)

    def test_wrong_half_lives_are_refused(self) -> None:
        with pytest.raises(ValueError, match="half_life must be a number of rows above zero"):
            Recent(0)


def start(**given: Any) -> OnlineRadii:
    return Online(**given).calibrate(np.linspace(0.0, 1.0, 30), NONE, 0.1)


MOVES = st.lists(st.integers(0, 3), min_size=1, max_size=150)
"""What an adversary does with the radius in sight: hit, miss, just inside, far outside."""


def adversary(radii: OnlineRadii, moves: list[int], turns: list[tuple[int, int]]) -> tuple[OnlineRadii, int, int]:
    """Rows are decided and fed in turns of (so many, so many), the oldest or the newest first; misses, and the delay.

    The delay is the most outcomes that became known between the decision of a row and its own outcome.
    """
    waiting, missed, delay, n_fed, k = list[tuple[float, float, int]](), 0, 0, 0, 0
    while k < len(moves) or waiting:
        n_decided, n_known = turns[k % len(turns)]
        for move in moves[k : k + n_decided]:
            issued = radii.issued
            finite = min(issued, 1e6)
            waiting.append(((finite - 1.0, finite + 1.0, finite, 1e6 + finite)[move], issued, n_fed))
        k += n_decided
        n_now = len(waiting) if k >= len(moves) else n_known
        fed, waiting = (
            (waiting[:n_now], waiting[n_now:]) if k % 2 else (waiting[::-1][:n_now], waiting[: -n_now or None])
        )
        radii = radii.updated([score for score, _, _ in fed], [issued for _, issued, _ in fed])
        for score, issued, since in fed:
            missed, delay, n_fed = missed + (score > issued), max(delay, n_fed - since), n_fed + 1
    return radii, missed, delay


class TestOnline:
    """Coverage in the long run."""

    @given(
        step=st.sampled_from([0.005, 0.05, 0.3, "auto"]),
        moves=MOVES,
        turns=st.lists(st.tuples(st.integers(1, 12), st.integers(0, 12)), min_size=1, max_size=8),
    )
    @settings(max_examples=60, deadline=None)
    def test_misses_are_bounded_on_every_sequence_in_batches_and_late(
        self, step: Any, moves: list[int], turns: list[tuple[int, int]]
    ) -> None:
        radii, missed, delay = adversary(start(step=step), moves, turns)
        assert radii.n_rows == len(moves)
        assert radii.n_missed == missed <= 0.1 * len(moves) + radii.excess(delay) + 1e-9
        # Rows that are missed as counted are no fewer, whatever the delay, so that the level comes back from above.
        assert radii.surplus >= -(0.9 / (0.01 if step == "auto" else step) + 0.1) - 1e-9

    def test_bound_is_nearly_attained_and_that_for_outcomes_without_delay_does_not_hold_for_batches(self) -> None:
        radii, missed, delay = adversary(start(step=0.05), [3] * 40, [(40, 40)])
        assert (missed, delay) == (40, 39)
        assert 0.1 * 40 + radii.excess() < missed <= 0.1 * 40 + radii.excess(delay) < missed + 3

    @given(step=st.sampled_from([0.02, 0.2]), moves=MOVES, size=st.integers(1, 12))
    @settings(max_examples=30, deadline=None)
    def test_tracked_radius_keeps_both_bounds_in_batches(self, step: float, moves: list[int], size: int) -> None:
        """Scores are those of the interval [0, 1] next to the radius, so that each counts against what was issued."""
        radii = start(step=step, follow="radius")
        for k in range(0, len(moves), size):
            issued, scores = radii.issued, np.clip(radii.issued + np.array(moves[k : k + size]) - 1.5, 0.0, 1.0)
            radii = radii.updated(scores, np.full(len(scores), issued))
        n = len(moves)
        assert 0.1 * n - 1 / step - 0.1 * size - 1e-9 <= radii.n_missed <= 0.1 * n + 1 / step + 0.9 * size + 1e-9
        assert np.isfinite(radii.issued)

    def test_level_at_zero_means_no_bound_and_tells_the_largest_score(self) -> None:
        radii = start(step=0.5).updated([7.0])
        rows = rows_without_features(2)
        assert radii.level < 0
        assert np.isinf(radii.at(rows)).all()
        assert radii.radius == 7.0
        assert all("the largest score of the last 30 rows is 7" in note for note in radii.notes(rows).values())

    @pytest.mark.parametrize("step", ["auto", 0.05])
    def test_exchangeable_rows_are_covered(self, step: Any) -> None:
        scores = np.random.default_rng(0).uniform(size=1100)
        radii = Online(step).calibrate(scores[:100], NONE, 0.1).updated(scores[100:])
        assert abs(radii.n_missed / 1000 - 0.1) < 0.02

    def test_shift_is_followed_where_a_fixed_radius_fails(self) -> None:
        rng = np.random.default_rng(0)
        before, after = rng.uniform(size=200), 3 * rng.uniform(size=800)
        radii = Online().calibrate(before, NONE, 0.1).updated(after)
        assert (after > conformal_radius(before, 0.1)).mean() > 0.6
        assert radii.n_missed / 800 < 0.13

    def test_error_counts_against_the_radius_that_was_issued(self) -> None:
        radii = start(step=0.05)
        late = radii.updated([2.0, 2.0], issued=[3.0, 1.0])
        assert late.n_missed == 1
        assert late.n_rows == 2
        assert late.level == pytest.approx(0.1 + 0.05 * 0.1 + 0.05 * (0.1 - 1))

    def test_each_row_that_was_issued_one_radius_is_a_step(self) -> None:
        radii = start(step=0.05).updated([2.0, 0.0, 0.0, 0.0], issued=[1.0] * 4)
        assert (radii.n_rows, radii.n_missed) == (4, 1)
        assert radii.level == pytest.approx(0.1 + 0.05 * (4 * 0.1 - 1))

    def test_promise_says_the_constants_that_are_proved(self) -> None:
        assert "at most 0.1 T + 2.9 are missed, and 0.9 more for each" in start(step=0.05).promise()
        assert "at most 0.1 T + 90.9 are missed" in start().promise()
        assert "at most 0.1 T + B / 0.05 + 0.9 are missed" in start(step=0.05, follow="radius").promise()

    def test_fed_at_once_or_one_by_one_is_the_same(self) -> None:
        scores = np.random.default_rng(0).exponential(size=60)
        at_once, radii = start().updated(scores), start()
        for score in scores:
            radii = radii.updated([score])
        assert (radii.levels == at_once.levels).all()
        assert radii.issued == at_once.issued

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"step": 0.0}, "step must be"),
            ({"step": "fast"}, "step must be"),
            ({"follow": "x"}, "follow must be"),
            ({"follow": "radius"}, "chooses among levels"),
            ({"window": 0}, "window must be an integer of at least 1"),
            ({"window": 5}, "needs at least 9 calibration samples, got 5"),
        ],
    )
    def test_wrong_settings_are_refused(self, given: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            start(**given)

    def test_scores_that_are_nan_are_refused(self) -> None:
        with pytest.raises(ValueError, match="without NaN"):
            start().updated([np.nan])
        with pytest.raises(ValueError, match="one radius for each of 2 scores"):
            start().updated([1.0, 2.0], issued=[1.0])


def streams(m: int, rows: int, rng: np.random.Generator, ties: bool = False) -> tuple[int, Any]:
    """Misses of an exchangeable stream of rows after a calibration split of m rows of its own."""
    scores = rng.integers(8, size=m + rows) if ties else rng.uniform(size=m + rows)
    return conformal_rank(m, 0.1), scores[m:] > conformal_radius(scores[:m], 0.1)


class TestAlarm:
    """Looked at after every row."""

    def test_wealth_is_a_martingale_on_exchangeable_rows(self) -> None:
        """The mean over both continuations, by their exact chances, is what it was."""
        alarm = Alarm.of(100, conformal_rank(100, 0.1)).updated([True, False, False, True] * 10)
        chance = (10 + 20) / (101 + 40)
        later = [alarm.updated([miss]) for miss in (True, False)]
        worth = [float(each.wealth.sum()) for each in later]
        assert chance * worth[0] + (1 - chance) * worth[1] == pytest.approx(float(alarm.wealth.sum()))

    def test_its_worth_is_that_of_one_bet_a_moment_and_share_of_misses(self) -> None:
        missed = np.random.default_rng(1).uniform(size=230) < 0.25
        alarm, worth = Alarm.of(100, conformal_rank(100, 0.1)), 1 / 6
        after = [alarm.updated(missed[:n]) for n in range(len(missed))]
        for moment in range(5):
            pays = []
            for n in range(50 * moment, len(missed)):
                chance, share = (10 + after[n].n_missed) / (101 + n), 10 / 101
                suspected = np.maximum(np.minimum(_MULTIPLES * share, (1 + share) / 2), chance)
                pays.append(suspected / chance if missed[n] else (1 - suspected) / (1 - chance))
            worth += float(np.prod(pays, axis=0).mean()) / ((moment + 1) * (moment + 2))
        last = alarm.updated(missed)
        assert float(last.wealth.sum()) + 1 / 6 == pytest.approx(worth)

    @pytest.mark.parametrize("ties", [False, True])
    def test_exchangeable_streams_raise_it_at_most_as_often_as_stated(self, ties: bool) -> None:
        rng, n_streams, rate = np.random.default_rng(0), 60, 0.05
        raised = 0
        for _ in range(n_streams):
            rank, missed = streams(100, 200, rng, ties)
            raised += Alarm.of(100, rank, rate).updated(missed).is_raised
        assert raised <= stats.binom(n_streams, rate).ppf(1 - FALSE_ALARM)

    def test_fall_of_coverage_raises_it_and_it_says_what_to_do(self) -> None:
        rng = np.random.default_rng(0)
        missed = np.concatenate([rng.uniform(size=300) < 0.1, rng.uniform(size=1000) < 0.2])
        alarm = Alarm.of(500, conformal_rank(500, 0.1)).updated(missed)
        assert alarm.raised_at is not None
        assert 300 < alarm.raised_at < 1000
        assert re.search(r"alarm at row \d+: \d+ of 1300 rows were not covered; .* Refresh the decider", str(alarm))

    def test_rows_fed_at_once_or_one_by_one_are_the_same(self) -> None:
        missed = np.random.default_rng(0).uniform(size=120) < 0.3
        at_once = one_by_one = Alarm.of(50, conformal_rank(50, 0.1))
        at_once = at_once.updated(missed)
        for miss in missed:
            one_by_one = one_by_one.updated([miss])
        assert one_by_one.highest == at_once.highest
        assert one_by_one.raised_at == at_once.raised_at

    def test_rate_must_be_a_probability(self) -> None:
        with pytest.raises(ValueError, match="rate must lie strictly between 0 and 1"):
            Alarm.of(100, 91, 1.0)
