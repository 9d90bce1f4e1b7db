"""The user's own tables: reading them as they are written, choosing columns, splitting and predicting."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, reject, settings, strategies as st
from scipy import stats

from polyhedge import diagnostics as diagnostics
from polyhedge.app.reading import read_table, write_table
from polyhedge.app.rows import groups_of, times_of
from polyhedge.calibration import conformal_radius, grouped_radius, minimum_samples
from polyhedge.data import equal_rows, partition_rows
from polyhedge.data.examples import EXAMPLES, make_example
from polyhedge.evaluation import proportion
from polyhedge.predictors import PREDICTORS
from polyhedge.predictors.columns import (
    Column,
    Schema,
    Table,
    choose_columns,
    features_of,
    outcomes_of,
    text_of,
    values_of,
)
from polyhedge.predictors.recipes import Recipe, choose_predictor
from polyhedge.rows import Rows

ROWS = [("Oslo", "1.5", "10"), ("Roma", "2.5", "20"), ("Bern", "-3.25", "30")]


def written(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def table_of(**columns: object) -> Table:
    return Table(pd.DataFrame(columns), "history.csv")


# --- reading ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_separator_and_encoding_are_found_out(tmp_path: Path, separator: str, encoding: str) -> None:
    lines = [("città", "load", "n"), *ROWS, ("Zürich", "4.5", "40")]
    text = "".join(separator.join(line) + "\n" for line in lines)
    table = read_table(written(tmp_path / "t.csv", text, encoding))
    assert list(table.frame.columns) == ["città", "load", "n"]
    assert table.frame["città"].tolist() == ["Oslo", "Roma", "Bern", "Zürich"]
    np.testing.assert_array_equal(values_of(table.frame["load"])[0], [1.5, 2.5, -3.25, 4.5])
    assert any("Windows-1252" in note for note in table.notes) == (encoding == "cp1252")


def test_given_encoding_is_used_and_a_wrong_one_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", "città,n\nMünchen,1\n", "cp850")
    assert read_table(path, encoding="cp850").frame.iloc[0, 0] == "München"
    with pytest.raises(ValueError, match="cannot be read with the encoding 'utf-8'"):
        read_table(path, encoding="utf-8")
    with pytest.raises(ValueError, match="cannot be read with the encoding 'klingon'"):
        read_table(path, encoding="klingon")


def test_decimal_comma_is_found_out_and_thousands_are_not_mistaken_for_it(tmp_path: Path) -> None:
    table = read_table(written(tmp_path / "t.csv", "a;b;day\n1,5;1.234,5;31.12.2024\n-2;3;01.01.2025\n"))
    np.testing.assert_array_equal(values_of(table.frame["a"])[0], [1.5, -2.0])
    np.testing.assert_array_equal(values_of(table.frame["b"])[0], [1234.5, 3.0])
    assert table.frame["day"].tolist() == ["31.12.2024", "01.01.2025"]
    assert "decimal comma" in table.notes[0]
    unclear = read_table(written(tmp_path / "t.csv", "a;b\n1,234;1\n2,345;2\n"))
    with pytest.raises(ValueError, match=r"row 1 \('1,234'\).*Read decimal commas with --decimal ','"):
        outcomes_of(unclear, ["a"])
    given = read_table(tmp_path / "t.csv", decimal=",")
    np.testing.assert_array_equal(values_of(given.frame["a"])[0], [1.234, 2.345])


def test_quoted_values_keep_separators_and_line_breaks(tmp_path: Path) -> None:
    table = read_table(written(tmp_path / "t.csv", 'name,n\n"Oslo, north",1\n"two\nlines",2\n'))
    assert table.frame["name"].tolist() == ["Oslo, north", "two\nlines"]


def test_usual_and_given_words_for_missing_are_missing(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", "a,b\n1,NA\n,?\n n/a ,x\n3,none!\n")
    table = read_table(path, missing=["none!"])
    assert table.frame["a"].isna().tolist() == [False, True, True, False]
    assert table.frame["b"].isna().tolist() == [True, True, False, True]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty. It needs a first line with the names"),
        ("\n\n", "is empty"),
        ("1.5,2\n3,4\n", "The first line of .* holds numbers"),
        ("a,a\n1,2\n", "more than one column 'a'"),
        ("a,b\n1,2\n1,2,3\n", "cannot be read with the separator ','.*line 3"),
        ("a,b\n1,2,9\n1,2,3\n", "Every row needs as many values as the first line has names"),
        ("PK\x03\x04\x00\x00", "is no text file. Save it as CSV"),
    ],
)
def test_file_that_cannot_be_read_says_what_to_do(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_table(written(tmp_path / "t.csv", text))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.text(min_size=1, max_size=8), st.floats(allow_nan=False, allow_infinity=False)), min_size=1),
    st.sampled_from(["csv", "parquet"] if find_spec("pyarrow") else ["csv"]),
)
def test_written_tables_read_back_in_their_order(rows: list[tuple[str, float]], kind: str) -> None:
    import tempfile

    # Controls are no text; what stands for a missing value, or is stripped, cannot come back.
    names = [f"x{''.join(c for c in name if c.isprintable() and not c.isspace())}" for name, _ in rows]
    frame = pd.DataFrame({"name": names, "value": [value for _, value in rows]})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t.{kind}"
        write_table(frame, path)
        back = read_table(path, separator=",", encoding="utf-8", decimal=".") if kind == "csv" else read_table(path)
        assert [p.name for p in Path(folder).iterdir()] == [path.name]
    assert text_of(back.frame["name"]).tolist() == names
    np.testing.assert_array_equal(values_of(back.frame["value"])[0], frame["value"])


# --- columns ----------------------------------------------------------------------------------------------


def test_text_in_a_number_column_is_an_error_with_row_numbers() -> None:
    table = table_of(a=["1", "2", "abc", "4", "12 kW"], y=["1", "2", "3", "4", "inf"])
    with pytest.raises(
        ValueError, match=r"Column 'a' of history.csv .* 2 of 5 rows .* row 3 \('abc'\), row 5 \('12 kW'\)"
    ):
        choose_columns(table, ["y"], features=["a"])
    with pytest.raises(ValueError, match=r"row 5 \('inf'\)"):
        outcomes_of(table, ["y"])
    units = table_of(a=[f"{i}.5 kW" for i in range(60)], y=list(range(60)))
    with pytest.raises(ValueError, match=r"row 1 \('0.5 kW'\).*Correct them \(no units\), write dates"):
        choose_columns(units, ["y"])
    schema, _ = choose_columns(table, ["y"], features=["a"], categorical=["a"])
    assert schema.features[0].levels == ("1", "12 kW", "2", "4", "abc")


def test_useless_columns_are_left_out_and_named() -> None:
    n = 200
    table = table_of(
        constant=["7"] * n,
        empty=[None] * n,
        customer=[f"B{i}" for i in range(n)],
        kind=["a", "b"] * (n // 2),
        size=[str(i) for i in range(n)],
        y=[str(i) for i in range(n)],
        day=pd.date_range("2024-01-01", periods=n),
    )
    schema, notes = choose_columns(table, ["y"])
    assert [(column.name, column.kind) for column in schema.features[:2]] == [("kind", "category"), ("size", "number")]
    assert schema.feature_names[2:] == ("day (weekday)", "day (month)")
    assert [note.split("'")[1] for note in notes] == ["constant", "empty", "customer"]
    assert "same value in every row" in notes[0]
    named, notes = choose_columns(table, ["y"], features=["customer", "constant", "size"])
    assert named.feature_names == ("customer", "size")
    with pytest.raises(ValueError, match="no feature left"):
        choose_columns(table, ["y"], features=["constant"])
    with pytest.raises(ValueError, match="Column 'y' cannot be an outcome and a feature"):
        choose_columns(table, ["y"], features=["y"])
    with pytest.raises(ValueError, match="no column 'z'"):
        choose_columns(table, ["z"])
    with pytest.raises(ValueError, match="named twice"):
        choose_columns(table, ["y", "y"])


def test_new_rows_say_why_they_cannot_be_used_and_what_is_odd() -> None:
    schema = Schema(
        (
            Column("a", "number", may_be_missing=False, low=0.0, high=10.0),
            Column("b", "number", may_be_missing=True, low=0.0, high=10.0),
            Column("c", "category", levels=("x", "y")),
        ),
        ("out",),
    )
    table = table_of(a=["1", None, "many", "99"], b=[None, "1", "1", "1"], c=["x", "y", "x", "new"])
    X, reasons, notes = features_of(table, schema)
    assert reasons.tolist() == ["", "a is missing", "a is not a number: 'many'", ""]
    assert notes.tolist() == ["", "", "", "a = 99 is far outside 0 to 10; c = 'new' was never seen before"]
    assert X["c"].tolist() == ["x", "y", "x", "new"]
    with pytest.raises(ValueError, match="no column 'b', 'c'"):
        features_of(table_of(a=["1"]), schema)


def test_a_history_needs_rows() -> None:
    with pytest.raises(ValueError, match="has a header and no rows"):
        choose_columns(table_of(a=[], y=[]), ["y"])


def test_times_are_read_as_numbers_or_dates() -> None:
    for days in (["2024-01-03", "2024-01-01"], ["7", "2"], ["1.2.2024", "31.12.2023 23:00"]):
        assert times_of(table_of(t=days), "t").argsort().tolist() == [1, 0]
    assert np.isnan(times_of(table_of(t=["2024-01-03", None]), "t")).tolist() == [False, True]
    stamps = pd.to_datetime(["2024-01-03T10:00+02:00", "2024-01-03T09:00+00:00"], utc=True)
    assert times_of(table_of(t=stamps), "t").argsort().tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"numbers, or dates written as 2024-12-31, .* for example"):
        times_of(table_of(t=["yesterday", "2024-01-01"]), "t")


def test_groups_and_copies_are_numbered_by_their_values() -> None:
    table = table_of(g=["a", "b", "a", None, None], h=["1", "1", "1", None, None])
    assert groups_of(table, ["g"]).tolist() == [0, 1, 0, 2, 3]
    assert groups_of(table, ["g", "h"]).tolist() == [0, 1, 0, 2, 3]
    assert equal_rows(table.frame)[0].tolist() == [0, 1, 0, 2, 2]


# --- splits -----------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**31), st.integers(40, 160), st.booleans(), st.booleans())
def test_parts_hold_every_row_once_groups_whole_and_times_in_order(
    seed: int, n: int, with_groups: bool, with_times: bool
) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, n // 2, n) if with_groups else None
    times = rng.integers(0, n, n) if with_times else None
    try:
        split = partition_rows(n, rng=rng, groups=groups, times=times)
    except ValueError as error:  # groups that share times may leave a few large blocks
        assert with_groups and with_times and "that stay together cannot be split" in str(error)  # noqa: PT017, PT018
        reject()
    parts = [split.train, split.learn, split.calibrate, split.held_out]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    if groups is not None:
        labels = [set(groups[part]) for part in parts]
        assert sum(map(len, labels)) == len(set(groups))
    if times is not None and groups is None:
        assert all(times[a].max() < times[b].min() for a, b in pairwise(parts))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31), st.lists(st.integers(1, 300), min_size=20, max_size=60), st.booleans())
def test_which_part_a_group_is_in_does_not_depend_on_the_sizes_of_groups(
    seed: int, sizes: list[int], in_time: bool
) -> None:
    parts_of_groups = []
    for repeated in (sizes, [1] * len(sizes)):
        groups = np.repeat(np.arange(len(sizes)), repeated)
        times = groups if in_time else None
        split = partition_rows(len(groups), rng=np.random.default_rng(seed), groups=groups, times=times)
        parts_of_groups.append(
            [np.unique(groups[part]).tolist() for part in (split.train, split.learn, split.calibrate, split.held_out)]
        )
    assert parts_of_groups[0] == parts_of_groups[1]


# --- calibration by groups --------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(4, 60), st.sampled_from([0.05, 0.1, 0.2, 0.25, 1 / 3]))
def test_groups_of_one_give_the_conformal_radius(seed: int, n: int, alpha: float) -> None:
    scores = np.random.default_rng(seed).normal(size=n)
    if n < minimum_samples(alpha):
        with pytest.raises(ValueError, match=f"needs at least {minimum_samples(alpha)} calibration groups, got {n}"):
            grouped_radius(scores, np.arange(n), alpha)
    else:
        assert grouped_radius(scores, np.arange(n), alpha) == conformal_radius(scores, alpha)


def test_copies_do_not_change_the_grouped_radius() -> None:
    rng = np.random.default_rng(1)
    scores, times = rng.normal(size=40), rng.integers(1, 6, 40)
    copied, labels = np.repeat(scores, times), np.repeat(np.arange(40), times)
    assert grouped_radius(copied, labels, 0.1) == conformal_radius(scores, 0.1)
    with pytest.raises(ValueError, match="one label for each score"):
        grouped_radius(scores, labels, 0.1)


def test_grouped_radius_covers_new_groups_where_the_plain_one_does_not() -> None:
    # Groups of 20 rows that differ by a common shift: 2 000 draws of 7 calibration groups and a new row.
    rng = np.random.default_rng(0)
    n_groups, size, alpha, n_draws = 7, 20, 0.2, 2_000
    labels = np.repeat(np.arange(n_groups), size)
    hits = np.zeros((n_draws, 2), dtype=bool)
    for i in range(n_draws):
        scores = rng.normal(size=n_groups)[labels] + 0.1 * rng.normal(size=len(labels))
        new = rng.normal() + 0.1 * rng.normal()
        hits[i] = new <= conformal_radius(scores, alpha), new <= grouped_radius(scores, labels, alpha)
    # Exact binomial tests, false alarm 1e-3 each.
    plain, grouped = hits.sum(axis=0)
    assert stats.binomtest(int(plain), n_draws, 1 - alpha, alternative="less").pvalue < 1e-3
    assert stats.binomtest(int(grouped), n_draws, 1 - alpha, alternative="less").pvalue > 1e-3


# --- predictors -------------------------------------------------------------------------------------------


def history(n: int = 160, seed: int = 0) -> tuple[Table, Schema]:
    rng = np.random.default_rng(seed)
    a, kind = rng.normal(size=n), rng.integers(0, 3, n)
    frame = pd.DataFrame(
        {
            "a": np.where(rng.random(n) < 0.1, np.nan, a),
            "kind": np.array(["x", "y", "z"])[kind],
            "y": 2 * a + kind + 0.1 * rng.normal(size=n),
            "w": np.abs(a) + 0.1 * rng.normal(size=n),
        }
    )
    table = Table(frame, "history.csv")
    return table, choose_columns(table, ["y", "w"])[0]


@pytest.mark.parametrize("name", PREDICTORS)
@pytest.mark.parametrize("outcomes", [("y",), ("y", "w")])
def test_predictor_takes_gaps_and_unseen_kinds(name: str, outcomes: tuple[str, ...]) -> None:
    from polyhedge.predictors.regressor import as_predictor

    table, schema = history()
    schema = Schema(schema.features, outcomes)
    X = features_of(table, schema)[0].frame()
    Y = outcomes_of(table, outcomes)
    predictor = as_predictor(Recipe(name, schema, 0), len(outcomes)).fit(X, Y)
    new = X.head(3).assign(kind=["never seen", "x", "y"], a=[np.nan, 0.0, 1.0])
    assert predictor.predict(new).shape == (3, len(outcomes))
    assert ((Y - predictor.predict(X)) ** 2).mean() < 0.5 * Y.var(axis=0).mean()


def test_best_predictor_is_chosen_by_cross_validation() -> None:
    rng = np.random.default_rng(0)
    a = rng.uniform(-2, 2, 240)
    schema = Schema((Column("a", "number"),), ("y",))
    straight, bent = 3 * a + 0.1 * rng.normal(size=240), np.sign(np.sin(4 * a)) + 0.1 * rng.normal(size=240)
    X = pd.DataFrame({"a": a})
    assert choose_predictor(schema, Rows(X, straight[:, None]), 0)[0] == "ridge"
    assert choose_predictor(schema, Rows(X, bent[:, None]), 0)[0] != "ridge"
    groups = np.arange(240) // 60
    assert "too few" in choose_predictor(schema, Rows(X, straight[:, None], groups=groups), 0)[1]
    with pytest.raises(ValueError, match="one of smooth-ridge, ridge, forest, boosting, linear, got 'lasso'"):
        Recipe("lasso", schema)


# --- diagnostics -----------------------------------------------------------------------------------------------


def test_drift_alarms_are_as_rare_as_promised_and_real_drift_is_found() -> None:
    rng = np.random.default_rng(0)
    n_tables, alarms = 400, 0
    for _ in range(n_tables):
        parts = {name: rng.standard_t(3, (40, 2)) for name in ("learning", "calibration", "held-out part")}
        alarms += bool(diagnostics.drift_diagnostic(parts, ["a", "b"]))
    # Exact binomial test against the promised rate; false alarm 1e-3.
    assert stats.binomtest(alarms, n_tables, diagnostics.FALSE_ALARMS, alternative="greater").pvalue > 1e-3
    parts["held-out part"] += [0.0, 5.0]
    (found,) = diagnostics.drift_diagnostic(parts, ["a", "b"])
    assert "residuals of b differ between the calibration and the held-out part" in found
    halves = {"first": np.linspace(0, 1, 30)[:, None], "second half of the file": np.linspace(1, 2, 30)[:, None]}
    (found,) = diagnostics.drift_diagnostic(halves, ["a"], in_time=False)
    assert "give --time-column" in found


def test_ties_and_few_rows_are_found() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=100)
    assert diagnostics.ties_diagnostic(scores, float(np.sort(scores)[90])) == []
    tied = np.where(np.arange(100) < 40, 1.0, scores)
    assert "40% of the calibration scores" in diagnostics.ties_diagnostic(tied, 1.0)[0]
    assert "the sets are larger" in diagnostics.ties_diagnostic(tied, 1.0)[0]
    assert "bounds are higher" in diagnostics.ties_diagnostic(tied, 1.0, "cost")[0]
    assert diagnostics.few_rows_diagnostic(500, 0.1) == []
    assert "with 20 calibration groups" in diagnostics.few_rows_diagnostic(20, 0.1, "groups")[0]
    hits = np.arange(100) < 80
    assert diagnostics.coverage_diagnostic(proportion(hits), 30, 0.1) == []
    assert "further below the promised 0.9" in diagnostics.coverage_diagnostic(proportion(hits), 300, 0.1)[0]


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2, 0.5])
def test_more_rows_never_bring_the_warning_of_few_rows_back(alpha: float) -> None:
    is_told = [bool(diagnostics.few_rows_diagnostic(n, alpha)) for n in range(minimum_samples(alpha), 400)]
    assert is_told == sorted(is_told, reverse=True)
    assert {False, True} == set(is_told)


def test_coverage_notably_above_the_promise_is_found_and_seldom_by_chance() -> None:
    (told,) = diagnostics.coverage_diagnostic(proportion(np.arange(600) < 572), 500, 0.1)
    assert told.code is diagnostics.Code.COVERAGE
    assert "above the promised 0.9: a model that misses at least 0.08 of rows" in told
    assert diagnostics.coverage_diagnostic(proportion(np.arange(600) < 540), 500, 0.1) == []
    # The exact chance with a model that misses four fifths of what it may.
    is_told = np.array(
        [bool(diagnostics.coverage_diagnostic(proportion(np.arange(600) < k), 500, 0.1)) for k in range(540, 601)]
    )
    assert stats.binom.pmf(np.arange(540, 601)[is_told], 600, 0.92).sum() <= diagnostics.FALSE_ALARMS


def test_coverage_since_calibration_may_be_looked_at_after_every_row() -> None:
    assert "1.000 was observed, above the promised 0.9" in diagnostics.coverage_since_diagnostic(200, 0, 0.1)[0]
    assert diagnostics.coverage_since_diagnostic(600, 60, 0.1) == []
    misses = (np.random.default_rng(0).random((60, 120)) < 0.08).cumsum(axis=1)
    raised = sum(
        any(diagnostics.coverage_since_diagnostic(n + 1, int(k), 0.1) for n, k in enumerate(path)) for path in misses
    )
    assert raised <= stats.binom.ppf(0.999, len(misses), diagnostics.FALSE_ALARMS)


def test_expected_cost_far_from_the_realised_one_is_found_and_seldom_by_chance() -> None:
    rng = np.random.default_rng(0)
    expected, realised = rng.normal(10, 1, (2, 300))
    (told,) = diagnostics.expected_cost_diagnostic(0.71 * expected, realised)
    assert told.code is diagnostics.Code.EXPECTED_COST
    assert "more than the 7.0" in told
    assert "less than the" in diagnostics.expected_cost_diagnostic(1.4 * expected, realised)[0]
    assert diagnostics.expected_cost_diagnostic(np.full(300, np.nan), realised) == []
    # Near-copies prove no more than one of them.
    assert diagnostics.expected_cost_diagnostic(0.71 * expected, realised, np.zeros(300)) == []
    n_told = sum(bool(diagnostics.expected_cost_diagnostic(*rng.normal(0, 1, (2, 40)))) for _ in range(1000))
    assert n_told <= stats.binom.ppf(0.999, 1000, diagnostics.FALSE_ALARMS)


# --- examples ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_tables_fit_each_other_and_never_change(name: str) -> None:
    tables, again = make_example(name), make_example(name)
    pd.testing.assert_frame_equal(tables.history, again.history)
    assert list(tables.fresh.columns) == list(tables.history.columns)
    assert list(tables.new.columns) == [c for c in tables.history.columns if c not in tables.outcomes]
    with pytest.raises(ValueError, match="one of energy, newsvendor, got 'wine'"):
        make_example("wine")


def test_truth_values_are_numbers_in_every_kind_of_file():
    words = pd.Series(["True", "false", None, "TRUE "])
    flags = pd.Series([True, False, None, True], dtype="boolean")
    for column in (words, flags, words.astype("string")):
        values, is_text = values_of(column)
        np.testing.assert_array_equal(values, [1.0, 0.0, np.nan, 1.0])
        assert not is_text.any()


def test_truth_values_among_other_words_are_labels():
    frame = pd.DataFrame({"sunny": ["true", "false", "unknown"] * 20, "open": ["True", "False"] * 30, "y": range(60)})
    schema, _ = choose_columns(Table(frame, "t.csv"), ["y"])
    kinds = {column.name: column.kind for column in schema.features}
    assert kinds == {"sunny": "category", "open": "number"}
