"""Calibrators with labels of rows, with groups of near-copies, and with both guarantees; what cannot be says why."""

from __future__ import annotations

import re
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import polyhedge as ph
from polyhedge.calibration import (
    ByCategory,
    Calibrator,
    Marginal,
    Online,
    Recent,
    ThisModel,
    Weighted,
    conformal_radius,
    grouped_radius,
)
from polyhedge.fitting import prepared_calibrator
from polyhedge.model import promise_of
from polyhedge.rows import Rows
from shared import codes

PROBLEM = ph.problems.simplex_linear([0.0, 0.1])
N = 240
RNG = np.random.default_rng(0)
LABELS = RNG.choice(np.array(["a", "b"]), size=N)
WEIGHTS = RNG.choice([1.0, 4.0], size=N)
Y = RNG.normal(size=(N, 2)) * np.where(LABELS == "a", 1.0, 3.0)[:, None]
X = np.zeros((N, 2))
GUARANTEES = pytest.mark.parametrize("guarantee", ["outcome", "cost"])


@cache
def _fitted(kind: str, guarantee: str) -> ph.RobustDecider:
    calibration = ByCategory(LABELS) if kind == "labels" else Weighted(WEIGHTS)
    settings: Any = {"calibration": calibration, "guarantee": guarantee, "learner": ph.learners.OneSidedBox()}
    return ph.RobustDecider(PROBLEM, "precomputed", random_state=0, **settings).fit(X, Y)


def fitted(kind: str, guarantee: str = "outcome") -> ph.RobustDecider:
    return copy(_fitted(kind, guarantee))


class TestRowLabels:
    """Labels and weights that are no column of X."""

    @GUARANTEES
    def test_each_label_has_the_radius_of_its_own_calibration_rows(self, guarantee: str) -> None:
        decider = fitted("labels", guarantee)
        own = decider.split_.calibrate
        scores, labels = decider.model_.scores(decider.model_.read(X[own], Y[own])), LABELS[own]
        found = decider.decide(X[:2], labels=["b", "a"])
        assert found.radii is not None
        assert found.radii == pytest.approx([conformal_radius(scores[labels == name], 0.1) for name in "ba"], abs=1e-8)
        assert "in each of 2 categories with probability at least 0.9" in decider.promise_

    @GUARANTEES
    def test_weights_beside_x_are_those_of_a_column(self, guarantee: str) -> None:
        decider = fitted("weights", guarantee)
        own = decider.split_.calibrate
        scores, column = decider.model_.scores(decider.model_.read(X[own], Y[own])), WEIGHTS[own][:, None]
        by_column = Weighted(0).calibrate(scores, Rows(column), 0.1)
        new = np.array([1.0, 4.0, 1e9])
        with pytest.warns(RuntimeWarning, match=r"1 of 3 decisions: .* The calibration rows are too unlike this row"):
            found = decider.decide(X[:3], labels=new)
        assert found.radii is not None
        assert found.radii == pytest.approx(by_column.at(Rows(new[:, None])), abs=1e-8)

    @pytest.mark.parametrize(("kind", "labels"), [("labels", LABELS[:40]), ("weights", WEIGHTS[:40])])
    def test_all_that_a_decider_does_takes_them_and_a_file_keeps_that(
        self, kind: str, labels: Any, tmp_path: Path
    ) -> None:
        decider, rows = fitted(kind), (X[:40], Y[:40] + 0.1)
        decider.save(tmp_path / "m.polyhedge")
        twin = ph.load(tmp_path / "m.polyhedge")
        bounds = decider.decide(rows[0], labels=labels).cost_bound
        assert (twin.decide(rows[0], labels=labels).cost_bound == bounds).all()
        assert twin.promise_ == decider.promise_
        inside = decider.measure(*rows, labels=labels).inside
        assert decider.evaluate(*rows, labels=labels).coverage == inside.mean()
        assert decider.region(X[0], labels=labels[:1]).radius == decider.decide(X[:1], labels=labels[:1]).radii
        assert decider.update(*rows, labels=labels).coverage == inside.mean()
        log = ph.OutcomeLog(tmp_path / "log.db", twin)
        assert twin.update(*rows, labels=labels, keys=range(40), log=log).coverage == inside.mean()
        for renew in (decider.recalibrate, decider.refresh):
            renew(X, Y * 2, labels=LABELS if kind == "labels" else WEIGHTS)
            assert (decider.decide(rows[0], labels=labels).cost_bound != bounds).all()

    @pytest.mark.needs("pyarrow")
    def test_tables_name_the_column_that_holds_them(self, tmp_path: Path) -> None:
        decider = fitted("labels")
        frame = pd.DataFrame(X, columns=["u_1", "u_2"]).assign(who=LABELS)
        expected = decider.decide(X, labels=LABELS).cost_bound
        frame.loc[3, "u_1"] = np.nan
        found = ph.distributed.decide_rows(decider.model_, frame, labels="who")["cost_bound"].to_numpy()
        assert np.isnan(found[3])
        assert np.delete(found, 3).tolist() == np.delete(expected, 3).tolist()
        frame.to_parquet(tmp_path / "new.parquet")
        ph.distributed.decide_parquet(decider, tmp_path / "new.parquet", tmp_path / "out.parquet", labels="who")
        assert np.array_equal(pd.read_parquet(tmp_path / "out.parquet")["cost_bound"], found, equal_nan=True)
        with pytest.raises(ValueError, match="labels must name the column that holds them, one of u_1, u_2, who, got"):
            ph.distributed.decide_rows(decider.model_, frame)

    @pytest.mark.needs("dask")
    def test_dask_frames_name_the_column_that_holds_them(self) -> None:
        import dask.dataframe as dd

        decider = fitted("labels")
        frame = pd.DataFrame(X, columns=["u_1", "u_2"]).assign(who=LABELS)
        found = decider.decide(dd.from_pandas(frame, npartitions=2), labels="who").compute()
        assert found["cost_bound"].tolist() == decider.decide(X, labels=LABELS).cost_bound.tolist()

    def test_rows_of_another_index_are_refused(self) -> None:
        frame, labels = pd.DataFrame({"x": np.arange(240.0)}), pd.Series(LABELS, index=np.arange(240)[::-1])
        decider = ph.RobustDecider(PROBLEM, learner=ph.learners.OneSidedBox(), calibration=ByCategory(labels))
        with pytest.raises(ValueError, match="X and calibration must hold the same rows in the same order"):
            decider.fit(frame, Y)
        decider.calibration = ByCategory(labels.to_numpy())
        with pytest.raises(ValueError, match="X and labels must hold the same rows in the same order"):
            decider.fit(frame, Y).decide(frame, labels=labels)


GROUPS = np.repeat(np.arange(N // 4), 4)


@GUARANTEES
@pytest.mark.parametrize(
    ("calibration", "reason"),
    [
        (Marginal(), None),
        (ByCategory(np.where(GROUPS % 2, "a", "b")), None),
        (ThisModel(), "counts rows one by one"),
        (Weighted(WEIGHTS), "counts rows one by one"),
        (Recent(60), "counts rows one by one"),
        (Online(), "counts rows one by one"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_near_copies_are_counted_once_or_refused_with_the_reason(
    calibration: Calibrator, reason: str | None, guarantee: str
) -> None:
    settings: Any = {"calibration": calibration, "guarantee": guarantee, "learner": ph.learners.OneSidedBox()}
    decider = ph.RobustDecider(PROBLEM, "precomputed", alpha=0.2, split="time", **settings)
    if reason is not None:
        with pytest.raises(ValueError, match=reason):
            decider.fit(X, Y, groups=GROUPS)
        return
    decider.fit(X, Y, groups=GROUPS)
    own = decider.split_.calibrate
    scores, kinds = decider.model_.scores(decider.model_.read(X[own], Y[own])), GROUPS[own] % 2
    one = np.ones(len(own), dtype=bool) if calibration == Marginal() else kinds == 1
    given: Any = {} if calibration == Marginal() else {"labels": ["a"]}
    expected = grouped_radius(scores[one], GROUPS[own][one], 0.2)
    assert decider.decide(X[:1], **given).radii == pytest.approx(expected, abs=1e-8)
    assert "a row of a new group" in decider.promise_
    with pytest.raises(ValueError, match="calibrated with groups of near-copies"):
        decider.refresh(X, Y, **({} if calibration == Marginal() else {"labels": LABELS}))


def test_categories_are_merged_by_how_many_groups_they_have() -> None:
    """Forty rows of a category that are near-copies of one another are one piece of evidence."""
    groups = np.concatenate([np.repeat(0, 40), np.arange(1, 161)])
    labels = np.concatenate([np.repeat("copied", 40), np.repeat(["a", "b"], 80)])
    split = ph.data.Split(np.arange(200), np.zeros(0, dtype=int), np.arange(200, 300), n_rows=300)
    groups, labels = np.concatenate([groups, 1000 + np.arange(100)]), np.concatenate([labels, np.repeat("a", 100)])
    merged = {}
    for by, by_groups in (("rows", None), ("groups", groups)):
        rows = Rows(pd.DataFrame({"kind": labels}), groups=by_groups)
        parts = rows.take(split.train), rows.take(split.calibrate)
        merged[by] = prepared_calibrator(ByCategory("kind"), *parts, 0.1).merged
    assert merged == {"rows": (), "groups": ("copied", "a")}


class TestWords:
    """An error says what must hold, what came and what to do."""

    def test_rows_weighed_by_their_age_without_an_order_of_time_are_warned_of(self) -> None:
        learner = ph.learners.OneSidedBox()
        decider = ph.RobustDecider(PROBLEM, "precomputed", learner=learner, calibration=Recent(60), random_state=0)
        with pytest.warns(
            RuntimeWarning, match=r"Recent\(half_life=60\) weighs calibration rows by their age, but a random"
        ) as caught:
            decider.fit(X, Y)
        assert "No times" in codes(caught)
        decider.fit(X, Y, learn=np.arange(120), calibrate=np.arange(120, 240))

    def test_categories_merged_by_hand_are_the_same_however_they_are_written(self) -> None:
        past = np.repeat([[1.0], [2.0], [3.0]], 30, axis=0)
        assert ByCategory(0, merged=(1, 2)).prepared(Rows(past), 90, 0.1).merged == ("1", "2")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="none of 7, 8 is among its values: 1, 2, 3"):
            ByCategory(0, merged=("7", "8")).prepared(Rows(past), 90, 0.1)

    def test_an_unseen_category_is_told_with_what_its_rows_get(self) -> None:
        X = np.repeat([[0.0], [1.0]], 20, axis=0)
        for otherwise, gets in (("refuse", "it has no bound"), ("marginal", "its bound is that of all rows together")):
            radii = ByCategory(0, otherwise).calibrate(np.arange(40.0), Rows(X), 0.1)
            (note,) = radii.notes(Rows(np.array([[0.0], [9.0]]))).values()
            assert re.search(rf"category '9' of 0 had too few calibration rows, or none.*{gets}", note)

    def test_promises_for_other_rows_do_not_claim_what_a_marginal_one_does(self) -> None:
        online = ph.RobustDecider(
            PROBLEM, "precomputed", learner=ph.learners.OneSidedBox(), calibration=Online(), split="time"
        ).fit(X, Y)
        for decider in (online, fitted("labels"), fitted("weights")):
            words = " ".join(promise_of(decider.model_))
            assert decider.model_.radii.promise() in words
            assert "% of cases like those" not in words
            assert "one assumption" not in words
        assert "void if the world has changed" not in " ".join(promise_of(online.model_))

    def test_before_any_outcome_there_is_no_coverage_of_none(self) -> None:
        from polyhedge.monitoring.monitor import Monitoring

        assert str(Monitoring.of(fitted("labels").model_)) == "no outcome is known yet (promised 0.9)"
