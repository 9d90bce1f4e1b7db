"""Raw frames in, named frames out: what the command line does for files happens in a notebook as well."""

import inspect
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import polyhedge as ph
from polyhedge.predictors.columns import Column, ReadColumns, clock_of, is_dates
from polyhedge.predictors.recipes import choose_predictor, prepare
from polyhedge.rows import Rows
from shared import save_trusting

COSTS = {"overage": 1.0, "underage": 4.0, "n_outcomes": 2}


def bakery(n: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Days of a bakery: what was known in the morning, and what was asked for."""
    rng = np.random.default_rng(seed)
    day = pd.Timestamp("2023-01-02") + pd.to_timedelta(rng.permutation(n), unit="D")
    X = pd.DataFrame(
        {
            "day": day,
            "weather": rng.choice(["sun", "rain", "snow"], n, p=[0.6, 0.3, 0.1]),
            "holiday": rng.random(n) < 0.1,
            "shop": pd.Categorical(rng.choice(["1", "2"], n)),
            "temperature": np.where(rng.random(n) < 0.1, np.nan, rng.normal(12.0, 6.0, n)),
            "town": "Ulm",
        },
        index=pd.Index([f"d{k}" for k in range(n)], name="case"),
    )
    weekday = day.day_of_week
    level = 60 + 25 * (weekday >= 5) + 15 * (X["weather"] == "sun") - 20 * X["holiday"] + 10 * (X["shop"] == "2")
    noise = rng.normal(0.0, 6.0, (n, 2))
    Y = pd.DataFrame({"rolls": 2 * level + noise[:, 0], "bread": level + noise[:, 1]}, index=X.index)
    return X, Y


@pytest.fixture
def unselected(monkeypatch):
    """For tests that are not of the choice: it takes longer than all the rest of a fit."""
    monkeypatch.setattr("polyhedge.predictors.recipes.choose_predictor", lambda *rows, **settings: ("ridge", "given"))


@pytest.fixture(scope="module")
def baked():
    X, Y = bakery(320, 0)
    problem = ph.problems.newsvendor(**COSTS).labelled(decision_names=["bake rolls", "bake bread"])
    decider = ph.RobustDecider(problem, learner=ph.learners.OneSidedBox(), random_state=0)
    return decider.fit(X, Y), bakery(40, 1)


@pytest.mark.parametrize(
    ("as_given", "n"),
    [
        (lambda X: X.iloc[0].to_dict(), 1),
        (lambda X: X.head(3).to_dict("records"), 3),
        (lambda X: X.head(3).to_dict("list"), 3),
    ],
)
def test_dictionaries_by_the_names_of_columns_are_rows(baked, as_given, n):
    decider, (X, Y) = baked
    bounds = decider.decide(X.head(n)).cost_bound
    assert decider.decide(as_given(X)).cost_bound.tolist() == bounds.tolist()
    assert decider.centers(as_given(X)).tolist() == decider.centers(X.head(n)).tolist()
    plain = ph.RobustDecider(ph.problems.newsvendor(**COSTS), None, learner=ph.learners.OneSidedBox(), random_state=0)
    records = X.assign(day=1.0 * np.arange(40), a=1.0 * X["holiday"])[["day", "a"]].to_dict("records")
    assert list(plain.fit(records, Y.to_numpy()).feature_names_in_) == ["day", "a"]
    if n == 1:
        assert decider.region(as_given(X)).contains(decider.centers(X.head(1))).all()


class TakesFrames(BaseEstimator, RegressorMixin):
    """A model of one's own that looks columns up by name."""

    def fit(self, X, y):
        self.means_ = pd.DataFrame(np.asarray(y)).groupby(X["weather"].to_numpy()).mean()
        return self

    def predict(self, X):
        return self.means_.loc[X["weather"]].to_numpy()

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


@pytest.mark.parametrize(
    "predictor",
    [
        Ridge(),
        GradientBoostingRegressor(n_estimators=5),
        make_pipeline(StandardScaler(), Ridge()),
        GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}),
    ],
)
def test_a_regressor_of_ones_own_gets_the_frame_that_the_default_takes(predictor, tmp_path):
    X, Y = bakery(200, 0)
    decider = ph.RobustDecider(
        ph.problems.newsvendor(**COSTS), predictor, learner=ph.learners.OneSidedBox(), random_state=0
    )
    weights = None if isinstance(predictor, GridSearchCV) else np.ones(200)  # searches take none
    decider.fit(X.assign(day=X["day"].dt.strftime("%Y-%m-%d")), Y, sample_weight=weights)
    weekend = decider.centers(X.iloc[[0, 0]].assign(day=["2024-05-04", "2024-05-06"]))
    assert weekend[0, 0] > weekend[1, 0]
    assert 'columns prepared as with "auto"' in str(decider)
    assert repr(predictor).split("(")[0] in str(decider)
    trusted = save_trusting(decider, tmp_path / "own.polyhedge")
    loaded, (later, came) = ph.load(tmp_path / "own.polyhedge", trusted=trusted), bakery(120, 1)
    for twin in (loaded, loaded.refresh(later, came), decider.refresh(later, came)):
        assert np.isfinite(twin.decide(later.head(3)).cost_bound).all()
    with pytest.raises(ValueError, match="reads raw columns by the predictor that fit has made"):
        decider.set_params(predictor=TakesFrames()).refresh(later, came)


def test_a_regressor_that_takes_frames_gets_them_as_they_are():
    X, Y = bakery(200, 0)
    box = ph.learners.OneSidedBox()
    decider = ph.RobustDecider(ph.problems.newsvendor(**COSTS), TakesFrames(), learner=box, random_state=0)
    full = X.drop(columns="temperature")
    assert isinstance(decider.fit(full, Y).predictor_.model, TakesFrames)
    assert "prepared" not in str(decider)
    encode = ColumnTransformer([("kinds", OneHotEncoder(), ["weather", "no such column"])])
    with pytest.raises(ValueError, match="no such column"):
        decider.set_params(predictor=make_pipeline(encode, Ridge())).fit(full, Y)


def test_a_raw_frame_gives_named_decisions_with_bounds_that_hold(baked):
    decider, (X, Y) = baked
    frame = decider.decide(X).to_frame()
    pd.testing.assert_index_equal(frame.index, X.index)
    assert frame.columns.tolist()[:5] == ["bake rolls", "bake bread", "cost_bound", "worst_rolls", "worst_bread"]
    words = r"d0: bake rolls = .*, bake bread = .* costs at most .*, held in 9 of 10"
    assert re.fullmatch(words, str(decider.decide(X)[0]))
    assert "left out   Column 'town' was left out: it has the same value in every row." in str(decider)
    costs = decider.problem_.evaluate(frame[["bake rolls", "bake bread"]].to_numpy(), Y.to_numpy())
    # At level 0.9, fewer than 27 of 40 bounds hold with probability below 1e-5, calibration's own chance included.
    assert (costs <= frame["cost_bound"]).sum() >= 27


@pytest.mark.usefixtures("unselected")
def test_columns_are_understood_from_training_rows_alone():
    X, Y = bakery(60, 2)
    X = X[["weather", "temperature"]].assign(kind=["old"] * 15 + ["new"] * 15 + ["newest"] * 30)
    prepared = prepare(Rows(X, Y.to_numpy()), np.arange(30), ["rolls", "bread"], 0)
    assert prepared.schema.features[2] == Column("kind", "category", False, ("new", "old"))
    later = X.assign(temperature=X["temperature"].where(np.arange(60) < 30, 99.0))
    assert prepare(Rows(later, Y.to_numpy()), np.arange(30), ["rolls", "bread"], 0).notes == prepared.notes


@pytest.mark.needs("pyarrow")
def test_a_value_never_seen_is_noted_and_a_new_gap_leaves_its_row_undecided(baked, tmp_path):
    decider, (X, _) = baked
    odd = X.head(3).copy()
    odd.loc["d1", "weather"] = "hail"
    frame = decider.decide(odd).to_frame()
    assert frame["note"].tolist() == ["", "weather = 'hail' was never seen before", ""]
    odd.loc["d1", "weather"] = None
    with pytest.warns(RuntimeWarning, match="1 of 3 decisions: not decided.*weather is missing"):
        gap = decider.decide(odd).to_frame()
    assert gap["status"].tolist() == ["optimal", "not decided", "optimal"]
    pd.testing.assert_frame_equal(gap.drop(index="d1"), frame.drop(index="d1"))
    parts = ph.distributed.decide_rows(decider.model_, odd)  # what Dask's workers and Parquet files give
    np.testing.assert_allclose(parts["cost_bound"], gap["cost_bound"])
    assert parts.loc["d1", ["status", "note"]].tolist() == ["not decided", "weather is missing"]
    odd.to_parquet(tmp_path / "rows.parquet", index=False)
    ph.distributed.decide_parquet(decider, tmp_path / "rows.parquet", tmp_path / "out.parquet")
    assert pd.read_parquet(tmp_path / "out.parquet")["note"].tolist()[1] == "weather is missing"
    with pytest.warns(ph.CodedWarning, match="1 of 1 decisions: not decided.*weather is missing"):
        alone = decider.decide(odd.loc[["d1"]]).to_frame()
    pd.testing.assert_frame_equal(alone, gap.loc[["d1"]], check_dtype=False)
    with pytest.raises(ValueError, match=r"X has no column 'day'\. Its columns are: weather, holiday"):
        decider.decide(X.drop(columns="day"))


def bent(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows that trees understand and lines do not."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 5, size=(n, 3)).astype(float)
    Y = np.column_stack([np.where(X[:, 0] == X[:, 1], 9.0, 0.0), 5.0 * (X[:, 2] % 2)])
    return X, Y + rng.normal(size=(n, 2))


LINEAR = ph.problems.simplex_linear([0.0, 0.0])


@pytest.mark.selection
def test_a_choice_is_the_default_and_is_made_for_arrays_and_frames_of_numbers_alike(tmp_path):
    assert inspect.signature(ph.RobustDecider).parameters["predictor"].default == "auto"
    X, Y = bent(240)
    settings = {"learner": ph.learners.OneSidedBox(), "random_state": 0}
    decider = ph.RobustDecider(LINEAR, **settings).fit(X, Y)
    said = decider.settings_["chosen predictor"]
    assert re.match(r"(forest|boosting) \(share of .* smooth-ridge [\d.]+, ridge [\d.]+, forest .*, boosting", said)
    assert f"predictor  {said}" in decider.summary()
    bounds = decider.decide(X).cost_bound
    decider.save(tmp_path / "model.polyhedge")
    np.testing.assert_allclose(ph.load(tmp_path / "model.polyhedge").decide(X).cost_bound, bounds, rtol=1e-9)
    for columns in (["a", "b", "c"], [0, 1, 2]):
        frame = pd.DataFrame(X, columns=columns)
        named = ph.RobustDecider(LINEAR, **settings).fit(frame, Y)
        assert named.settings_["chosen predictor"] == said
        np.testing.assert_allclose(named.decide(frame).cost_bound, bounds, rtol=1e-9)
    smooth = ph.RobustDecider(LINEAR, None, **settings).fit(X, Y)
    assert "chosen predictor" not in smooth.settings_
    assert smooth.decide(X).cost_bound.mean() > bounds.mean()


@pytest.mark.selection
def test_the_smooth_ridge_wins_where_it_should_and_is_then_the_one_without_a_selection():
    X, Y = ph.data.make_synthetic(300, rng=np.random.default_rng(0))
    settings = {"learner": ph.learners.OneSidedBox(), "random_state": 0}
    chosen, given = (ph.RobustDecider(LINEAR, one, **settings).fit(X, Y) for one in ("auto", None))
    assert chosen.settings_["chosen predictor"].startswith("smooth-ridge (share of the variance")
    np.testing.assert_array_equal(chosen.decide(X).cost_bound, given.decide(X).cost_bound)


@pytest.mark.parametrize(("scale", "shift"), [(1e-7, 0.0), (2.54, 100.0)])
def test_other_units_change_nothing_of_the_choice(scale, shift):
    X, Y = bent(90)
    other = Rows(scale * X + shift, scale * Y + shift)
    assert choose_predictor(None, Rows(X, Y), 0) == choose_predictor(None, other, 0)


def test_columns_that_names_do_not_tell_apart_are_refused():
    X, Y = bent(100)
    with pytest.raises(ValueError, match=r"X has more than one column 'a'\. Give every column its own name"):
        ph.RobustDecider(LINEAR).fit(pd.DataFrame(X, columns=["a", "b", "a"]), Y)


@pytest.mark.usefixtures("unselected")
def test_density_ratios_see_the_kinds_of_raw_rows(tmp_path):
    def drawn(n: int, share: float, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        rng = np.random.default_rng(seed)
        kind = rng.choice(["calm", "wild"], n, p=[1 - share, share])
        day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(365, size=n), unit="D")
        Y = 50 + rng.normal(size=(n, 2)) * np.where(kind == "wild", 6.0, 1.0)[:, None]
        return pd.DataFrame({"kind": kind, "day": day}), pd.DataFrame(Y, columns=["rolls", "bread"])

    (X, Y), (target, came) = drawn(600, 0.2, 0), drawn(160, 0.9, 1)
    weighted = ph.calibration.Weighted(target=target)
    decider = ph.RobustDecider(ph.problems.newsvendor(**COSTS), learner=ph.learners.OneSidedBox(), random_state=0)
    decider.set_params(calibration=weighted).fit(X, Y).save(tmp_path / "m.polyhedge")
    twin = ph.load(tmp_path / "m.polyhedge")
    some = target.head(40)
    assert twin.decide(some).radii.tolist() == decider.decide(some).radii.tolist()
    held = decider.evaluate(target, came).coverage
    # One radius for all covers few wild rows, because most of the past was calm.
    marginal = decider.set_params(calibration=None).recalibrate(*drawn(300, 0.2, 2)).evaluate(target, came).coverage
    assert marginal < 0.8
    assert held > 0.84


def panel(n_stores: int = 4, n_days: int = 60) -> tuple[pd.DataFrame, pd.Series]:
    """Sales of stores, one store after the other, with the days as a file has them."""
    day = pd.Series(pd.date_range("2024-01-31", periods=n_days).strftime("%Y-%m-%d"))
    X = pd.DataFrame({"day": pd.concat([day] * n_stores, ignore_index=True)})
    X["store"] = np.repeat([f"store {k}" for k in range(n_stores)], n_days)
    return X, pd.Series(np.random.default_rng(0).uniform(10.0, 20.0, len(X)), name="sold")


@pytest.mark.usefixtures("unselected")
@pytest.mark.parametrize("form", ["%Y-%m-%d", "%Y-%m-%d 10:00", "%Y-%m-%dT%H:%M:%SZ"])
def test_iso_texts_are_dates_and_other_texts_are_kinds(form):
    X, Y = panel()
    X["day"] = pd.to_datetime(X["day"]).dt.strftime(form)
    X.loc[::50, "day"] = None
    box = ph.learners.OneSidedBox()
    decider = ph.RobustDecider(ph.problems.newsvendor(1.0, 4.0, 1), learner=box, random_state=0)
    assert list(decider.fit(X, Y).feature_names_in_) == ["day (weekday)", "day (month)", "store"]
    assert np.isfinite(decider.decide(X.head(3)).cost_bound).all()
    for kinds in (X["day"].astype("category"), np.where(X.index % 2, "2024-01-31", "soon")):
        assert list(decider.fit(X.assign(day=kinds), Y).feature_names_in_) == ["day", "store"]


@pytest.mark.usefixtures("unselected")
@pytest.mark.parametrize(
    ("arranged", "split", "told"),
    [
        (lambda X: X, None, "parts are random"),
        (lambda X: X[::-1], None, "parts are random"),
        (lambda X: X.sort_values("day"), None, "parts are random"),
        (lambda X: X.set_index(pd.to_datetime(X["day"])).drop(columns="day"), None, r"TimeSplit\(times=X.index\)"),
        (lambda X: X, "time", "not from the oldest to the newest"),
        (lambda X: X.sort_values("day"), "time", None),
        (lambda X: X, ph.data.TimeSplit("day"), None),
        (lambda X: X.sample(frac=1.0, random_state=0), None, None),
        (lambda X: X.drop(columns="day"), None, None),
    ],
)
def test_rows_in_the_order_of_time_are_told_where_the_split_is_not_in_time(arranged, split, told):
    X = arranged(panel()[0]).assign(a=np.random.default_rng(1).random(240))
    decider = ph.RobustDecider(ph.problems.newsvendor(1.0, 4.0, 1), learner=ph.learners.OneSidedBox(), random_state=0)
    if split is not None:
        decider.set_params(split=split)
    decider.fit(X, np.random.default_rng(0).uniform(10.0, 20.0, 240))
    said = [str(diagnostic) for diagnostic in decider.diagnostics_ if "rows are sorted by the dates in" in diagnostic]
    assert bool(said) == (told is not None)
    assert told is None or re.search(told, said[0])


@pytest.mark.parametrize("slip", ["", " ", "n/k", "2023-02-30"])
def test_a_slip_in_a_column_of_dates_is_a_missing_date(slip):
    days = pd.Series(pd.date_range("2023-03-01", periods=40).strftime("%Y-%m-%d"), dtype=object)
    days[7] = slip
    assert is_dates(days)
    assert np.isnat(clock_of(days)).tolist() == [row == 7 for row in range(40)]
    assert not is_dates(pd.Series([*days[:20], *["later"] * 20]))


def test_a_row_that_is_read_decides_as_its_frame_does():
    shop, products = ph.data.make_example("newsvendor"), ["bread", "salad", "soup"]
    problem = ph.problems.newsvendor(1.0, [3.0, 4.0, 2.0], 3, capacity=160.0)
    decider = ph.RobustDecider(problem, alpha=0.1, split="time", random_state=0)
    decider.fit(shop.history.drop(columns=products), shop.history[products])
    model = decider.model_
    rows = model.read(shop.new)
    assert isinstance(rows.features, ReadColumns)
    framed = model.place(replace(rows, features=rows.features.frame())).decide()
    np.testing.assert_array_equal(model.place(rows).decide().flat, framed.flat)
    alone = [decider.decide(shop.new[k : k + 1]).cost_bound[0] for k in range(3)]
    np.testing.assert_allclose(alone, framed.cost_bound[:3], rtol=1e-9)
    with pytest.raises(ValueError, match="X has no rows"):
        decider.decide(shop.new[:0])
