"""Data: splits are disjoint, the synthetic draws have the stated law, the shipped data is intact."""

from importlib import resources

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from scipy import sparse, stats

from polyhedge.data import (
    Split,
    load_energy_efficiency,
    make_synthetic,
    mixing_matrix,
    noise_scale,
    split_rows,
    synthetic_mean,
    take_rows,
)


class TestSplits:
    @given(
        n=st.integers(50, 400),  # every positive share is above one row
        weights=st.tuples(st.integers(0, 10), st.integers(1, 10), st.integers(1, 10)),
        seed=st.integers(0, 2**32 - 1),
    )
    def test_every_row_lands_in_exactly_one_part_of_nearly_its_share(self, n, weights, seed):
        shares = np.array(weights) / sum(weights)
        split = split_rows(n, shares, rng=np.random.default_rng(seed))
        parts = (split.train, split.learn, split.calibrate)
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))
        for part, share in zip(parts, shares, strict=True):
            assert abs(part.size - n * share) <= 1 + 1e-9

    @pytest.mark.parametrize("counts", [(1200, 300, 300), (320, 160, 144), (7, 5, 3)])
    def test_counts_given_as_shares_come_back_exactly(self, counts):
        n = sum(counts)
        split = split_rows(n, [count / n for count in counts], rng=np.random.default_rng(0))
        assert (split.train.size, split.learn.size, split.calibrate.size) == counts

    def test_train_may_be_empty(self):
        split = split_rows(10, (0, 0.5, 0.5), rng=np.random.default_rng(0))
        assert split.train.size == 0
        assert split.learn.size == split.calibrate.size == 5

    @pytest.mark.parametrize(
        ("shares", "message"),
        [
            ((0.5, 0.5), "must be 3 non-negative numbers"),
            ((0.5, 0.25, 0.3), "that sum to 1"),
            ((1.2, -0.4, 0.2), "non-negative numbers"),
            ((np.nan, 0.5, 0.5), "non-negative numbers"),
            ((0.5, 0.5, 0.0), "learn and calibrate positive"),
            ((0.5, 0.0, 0.5), "learn and calibrate positive"),
            ((0.98, 0.01, 0.01), r"learn share 0\.01 of n=20 rows is empty"),
        ],
    )
    def test_impossible_shares_are_refused(self, shares, message):
        with pytest.raises(ValueError, match=message):
            split_rows(20, shares, rng=np.random.default_rng(0))

    def test_a_bare_seed_is_refused(self):
        with pytest.raises(ValueError, match=r"Write np\.random\.default_rng\(seed\)"):
            split_rows(20, rng=0)

    @pytest.mark.parametrize("pair", [("train", "learn"), ("train", "calibrate"), ("learn", "calibrate")])
    def test_overlap_names_the_parts_and_the_number_of_rows(self, pair):
        parts = {"train": [0, 1, 2], "learn": [3, 4, 5], "calibrate": [6, 7, 8]}
        parts[pair[1]] = parts[pair[0]][1:] + parts[pair[1]]
        message = f"{pair[0]} and {pair[1]} share 2 row.s., .* the coverage guarantee needs disjoint splits"
        with pytest.raises(ValueError, match=message):
            Split(**parts)

    def test_masks_and_row_numbers_describe_the_same_split(self):
        labels = np.array([0, 2, 1, 0, 1, 2])
        split = Split(labels == 0, labels == 1, labels == 2)
        assert split.n_rows == 6
        for part, value in zip((split.train, split.learn, split.calibrate), range(3), strict=True):
            np.testing.assert_array_equal(part, np.flatnonzero(labels == value))
        assert Split(pd.Series(labels == 0), [2], [1]).train.tolist() == [0, 3]

    @pytest.mark.parametrize(
        ("parts", "n_rows", "message"),
        [
            (([0, 0], [1], [2]), None, r"train names 1 row\(s\) more than once"),
            (([0], [-1], [2]), None, "learn must be at least 0, got 1 row number"),
            (([0], [1], [2, 9]), 9, "calibrate must lie between 0 and 8, got 1 .* the first is 9"),
            (([0.0], [1], [2]), None, "train must hold row numbers or be a boolean mask, got dtype float64"),
            (([[0]], [1], [2]), None, r"train must have 1 dimension, got shape \(1, 1\)"),
            (([True, False], [1], [2]), 3, "train is a mask over 2 rows, but there are 3 rows"),
            (([True, False], [False, False, True], []), None, "learn is a mask over 3 rows, but .* 2 rows"),
        ],
    )
    def test_malformed_parts_are_refused(self, parts, n_rows, message):
        with pytest.raises(ValueError, match=message):
            Split(*parts, n_rows=n_rows)

    def test_a_split_can_neither_be_changed_nor_changed_through_its_inputs(self):
        train = np.array([0, 1])
        split = Split(train, [2], [3])
        train[0] = 3
        assert split.train.tolist() == [0, 1]
        with pytest.raises(ValueError, match="read-only"):
            split.learn[0] = 3
        with pytest.raises(AttributeError, match="cannot assign"):
            split.learn = np.array([3])

    def test_take_rows_keeps_the_kind_of_object(self):
        X = np.arange(12.0).reshape(6, 2)
        rows = np.array([4, 0])
        frame = pd.DataFrame(X, columns=["a", "b"], index=list("uvwxyz"))
        assert take_rows(frame, rows).index.tolist() == ["y", "u"]
        assert take_rows(frame["a"], rows).tolist() == [8.0, 0.0]
        np.testing.assert_array_equal(take_rows(X, rows), X[rows])
        np.testing.assert_array_equal(take_rows(X.tolist(), rows), X[rows])
        np.testing.assert_array_equal(take_rows(sparse.csr_matrix(X), rows).toarray(), X[rows])
        np.testing.assert_array_equal(take_rows(X, np.arange(6) == 4), X[[4]])


class TestSynthetic:
    N = 20_000

    def noise(self, **options):
        X, Y = make_synthetic(self.N, rng=np.random.default_rng(7), **options)
        return X, Y - synthetic_mean(X)

    def test_mean_for_two_outcomes_is_the_formula_of_the_paper(self):
        X = np.random.default_rng(0).standard_normal((50, 4))
        x1, x2, x3, x4 = X.T
        expected = [0.75 * x1 + 0.35 * np.sin(x2) - 0.20 * x3, -0.45 * x1 + 0.55 * x2**2 + 0.30 * x4]
        np.testing.assert_allclose(synthetic_mean(X), np.transpose(expected), atol=1e-14)

    @pytest.mark.parametrize("d", [2, 3, 4, 5, 10])
    def test_each_pair_of_outcomes_repeats_the_pattern_on_its_own_covariates(self, d):
        X, Y = make_synthetic(30, n_outcomes=d, rng=np.random.default_rng(0))
        assert X.shape == (30, 2 * d)
        assert Y.shape == (30, d)
        wrapped = np.hstack([X, X])
        for j in range(d):
            block = wrapped[:, 4 * (j // 2) : 4 * (j // 2) + 4]
            np.testing.assert_allclose(synthetic_mean(X)[:, j], synthetic_mean(block)[:, j % 2])

    @pytest.mark.parametrize("d", [2, 5])
    def test_gaussian_part_has_the_stated_root_covariance_and_scale(self, d):
        # Undoing scale and mixing must leave standard normals. False alarms: d in 10 000 seeds.
        X, noise = self.noise(n_outcomes=d, contamination=0.0)
        xi = np.linalg.solve(mixing_matrix(d), (noise / noise_scale(X)[:, None]).T)
        for row in xi:
            assert stats.kstest(row, stats.norm.cdf).pvalue > 1e-4
        correlation = np.corrcoef(xi) - np.eye(d)
        assert np.abs(correlation).max() < 5 / np.sqrt(self.N)

    def test_noise_level_and_correlation_are_those_implied_by_the_tables(self):
        # Relative standard error of a standard deviation: sqrt((kurtosis - 1) / 4N), kurtosis below 4 here;
        # the scale factor is 1.03 in root mean square.
        noise = self.noise(contamination=0.0)[1]
        level = noise.std(axis=0)
        np.testing.assert_allclose(level / 1.03, [0.272, 0.153], rtol=5 * np.sqrt(3 / (4 * self.N)))
        correlation = np.corrcoef(noise.T)[0, 1]
        assert abs(correlation - 0.751) < 5 / np.sqrt(self.N)

    def test_contamination_hits_six_percent_of_the_rows_with_scaled_student_draws(self):
        # The clean and the contaminated draws share their seed, so the difference is the contamination.
        # False alarms: about 3 in 10 000 seeds.
        added = self.noise()[1] - self.noise(contamination=0.0)[1]
        hit = np.any(np.abs(added) > 1e-9, axis=1)
        assert stats.binomtest(int(hit.sum()), self.N, 0.06).pvalue > 1e-4
        for column in added[hit].T:
            assert stats.kstest(column / 0.40, stats.t(df=3).cdf).pvalue > 1e-4

    def test_cross_terms_do_not_raise_the_noise_level_with_the_dimension(self):
        levels = [np.linalg.norm(mixing_matrix(d), axis=1).max() for d in (5, 10, 40)]
        np.testing.assert_allclose(levels, levels[0])
        assert np.all(np.linalg.eigvalsh(mixing_matrix(40)) > 0)


class TestEnergy:
    def test_shape_names_and_known_rows(self):
        data = load_energy_efficiency()
        assert data.X.shape == (768, 8)
        assert data.Y.shape == (768, 2)
        assert data.feature_names[0] == "relative_compactness"
        assert data.feature_names[-1] == "glazing_area_distribution"
        assert data.outcome_names == ("heating_load", "cooling_load")
        assert data.Y[30, 0] == 6.366
        assert data.X[0].tolist() == [0.98, 514.5, 294.0, 110.25, 7.0, 2.0, 0.0, 0.0]

    def test_attribution_lies_beside_the_data(self):
        text = resources.files("polyhedge.data").joinpath("energy_efficiency.md").read_text(encoding="utf-8")
        for needed in ("Tsanas", "Xifara", "10.24432/C51307", "CC BY 4.0"):
            assert needed in text
