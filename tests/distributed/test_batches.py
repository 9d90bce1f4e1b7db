"""Decisions out of core: the same numbers as in memory, in the same order, whole files or none."""

from __future__ import annotations

import importlib.util
import os
import pickle
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
from polyhedge.distributed.parquet import ParquetRun
from polyhedge.distributed.row_table import decide_rows, require

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
dask = pytest.importorskip("dask")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")
dumps = pytest.importorskip("distributed.protocol.pickle").dumps

N_ROWS = 1000
NAMES = [f"x{j}" for j in range(4)]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    # In this process: worker processes take minutes to start on a crowded machine, and one that is starved of memory is
    # paused, for which `gather` waits without end. Processes are tested with Parquet files.
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            memory_limit=0,
            dashboard_address=None,
            # Not the folder that all clusters of a machine share.
            local_directory=str(tmp_path_factory.mktemp("dask")),
        ) as cluster,
        distributed.Client(cluster, timeout=60) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        yield client


def computed(client: Any, lazy: Any) -> Any:
    """The result of lazy work, or an error after two minutes."""
    return client.compute(lazy).result(timeout=120)


@pytest.fixture(scope="module")
def data() -> tuple[Any, np.ndarray]:
    X, Y = ph.data.make_synthetic(N_ROWS, rng=np.random.default_rng(0))
    return pd.DataFrame(X, columns=NAMES), Y


@pytest.fixture(scope="module")
def decider(data: tuple[Any, np.ndarray]) -> ph.RobustDecider:
    z = cp.Variable(2, nonneg=True, name="share")
    # A cost that is written in place: it must reach the workers too.
    problem = ph.DecisionProblem(decision=z, cost=lambda z, u: u @ z, constraints=[cp.sum(z) == 1], n_outcomes=2)
    return ph.RobustDecider(problem, learner=ph.learners.OneSidedBox(), random_state=0).fit(*data)


def with_gaps(rows: Any) -> Any:
    rows = rows.copy()
    rows.loc[rows.index[[3, 400, 999]], "x1"] = np.nan
    rows.loc[rows.index[17], ["x0", "x2"]] = [np.inf, np.nan]
    return rows


def assert_same_decisions(found: Any, decider: ph.RobustDecider, rows: Any) -> None:
    fine = np.isfinite(rows[NAMES].to_numpy()).all(axis=1)
    expected = decider.decide(rows.loc[fine, NAMES])
    np.testing.assert_array_equal(found["status"], np.where(fine, "optimal", "not decided"))
    found = found.loc[fine]
    # Matrix products round differently for blocks of another size. What is not bought may cost anything.
    bought = np.where(expected.z > 1e-9, 1.0, 0.0)
    for names, values, matter in (
        (["share_1", "share_2"], expected.z, 1.0),
        (["cost_bound"], expected.cost_bound[:, None], 1.0),
        (["worst_u_1", "worst_u_2"], expected.worst_outcome, bought),
    ):
        np.testing.assert_allclose(matter * found[names], matter * values, rtol=1e-12, atol=1e-12)


# --- rows -------------------------------------------------------------------------------------------------


def test_rows_that_cannot_be_decided_keep_their_place_with_a_reason(decider: ph.RobustDecider, data: Any) -> None:
    rows = with_gaps(data[0]).iloc[::-1]
    found = decide_rows(decider.model_, rows)
    pd.testing.assert_index_equal(found.index, rows.index)
    assert_same_decisions(found, decider, rows)
    assert found.loc[400, "note"] == "missing: x1"
    assert found.loc[17, "note"] == "not finite: x0, x2"
    assert found["note"].notna().sum() == 4
    assert found.loc[400, ["share_1", "cost_bound", "worst_u_1"]].isna().all()


def planned(data: Any, **settings: Any) -> ph.RobustDecider:
    problem = ph.problems.simplex_linear([0.0, 0.0])
    X, Y = data
    return ph.RobustDecider(problem, None, guarantee="cost", random_state=0, **settings).fit(X[:300], Y[:300])


@pytest.mark.parametrize("kind", ["set", "policy", "learner"])
def test_all_tables_of_decisions_have_the_same_columns(
    kind: str, decider: ph.RobustDecider, data: Any, tmp_path: Path
) -> None:
    if kind != "set":
        decider = planned(data, learner=ph.learners.OneSidedBox() if kind == "learner" else None)
    rows = data[0].iloc[:20]
    frame = decider.decide(rows).to_frame()
    told = ["worst_u_1", "worst_u_2"] if kind == "set" else ["expected_cost"]
    assert frame.columns.tolist()[3:] == [*told, "status", "note"]
    rows.to_parquet(tmp_path / "new.parquet")
    ph.distributed.decide_parquet(decider, tmp_path / "new.parquet", tmp_path / "decisions.parquet")
    lazy = decider.decide(dd.from_pandas(rows, npartitions=2))
    assert lazy.columns.tolist() == frame.columns.tolist()
    for found in (decide_rows(decider.model_, rows), pd.read_parquet(tmp_path / "decisions.parquet"), lazy.compute()):
        assert found.columns.tolist() == frame.columns.tolist()
        np.testing.assert_allclose(found[told].astype(float), frame[told], rtol=1e-9, atol=1e-9)
    assert frame[told].notna().all(axis=None)


def test_a_predictor_fitted_on_an_array_takes_the_columns_in_their_order(decider: ph.RobustDecider, data: Any) -> None:
    X = data[0].to_numpy()
    unnamed = ph.RobustDecider(decider.problem, learner=ph.learners.OneSidedBox(), random_state=0).fit(X, data[1])
    found = decide_rows(unnamed.model_, data[0])
    assert_same_decisions(found, decider, data[0])


def test_an_unfitted_decider_is_refused() -> None:
    decider = ph.RobustDecider(ph.problems.simplex_linear([0.0, 0.0]))
    with pytest.raises(ValueError, match="not fitted yet"):
        ph.distributed.decide_parquet(decider, "from.parquet", "to.parquet")


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pyarrow" else find(name))
    with pytest.raises(ImportError, match=re.escape("This needs pyarrow. Get it with: pip install 'polyhedge[dask]'")):
        require("dask", ["dask", "pyarrow"])


# --- Dask -------------------------------------------------------------------------------------------------


def test_a_dask_frame_gives_a_lazy_dask_frame_with_the_numbers_of_memory(
    client: Any, decider: ph.RobustDecider, data: Any
) -> None:
    rows = with_gaps(data[0])
    frame = dd.from_pandas(rows, npartitions=7)
    lazy = decider.decide(frame)
    assert isinstance(lazy, dd.DataFrame)
    assert lazy.npartitions == 7
    found = computed(client, lazy)
    pd.testing.assert_index_equal(found.index, rows.index)
    assert_same_decisions(found, decider, rows)
    assert lazy.dtypes.to_dict() == found.dtypes.to_dict()


def test_the_index_and_wrong_columns_are_known_before_any_work(decider: ph.RobustDecider, data: Any) -> None:
    days = data[0].set_index(pd.date_range("2024-01-01", periods=N_ROWS, name="day"))
    lazy = decider.decide(dd.from_pandas(days, npartitions=3))
    assert lazy.index.name == "day"
    assert lazy.index.dtype == days.index.dtype
    assert lazy.known_divisions
    with pytest.raises(ValueError, match=r"The table must have the column\(s\) .*missing: x2"):
        decider.decide(dd.from_pandas(days.drop(columns="x2"), npartitions=3))


def test_empty_partitions_are_kept(client: Any, decider: ph.RobustDecider, data: Any) -> None:
    frame = dd.from_pandas(data[0].assign(position=np.arange(N_ROWS)), npartitions=4)
    found = decider.decide(frame[frame["position"] >= 700])
    assert_same_decisions(computed(client, found), decider, data[0].loc[700:])
    assert found.npartitions == 4


def test_one_task_carries_the_model_to_the_workers(data: Any, tmp_path: Path) -> None:
    log = tmp_path / "loads"
    decider = ph.RobustDecider(
        ph.problems.simplex_linear([0.0, 0.0]), Counted(log), learner=ph.learners.OneSidedBox(), random_state=0
    ).fit(*data)
    graph = dict(decider.decide(dd.from_pandas(data[0], npartitions=20)).optimize().__dask_graph__())
    log.unlink(missing_ok=True)
    for task in graph.values():
        pickle.loads(dumps(task))
    assert len(graph) >= 20
    assert len(log.read_text().split()) == 1


class Counted:
    """A predictor that notes in which process it arrives."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def __call__(self, X: Any) -> np.ndarray:
        return X[["x0", "x1"]].to_numpy()

    def __reduce__(self) -> Any:
        return _arrive, (self.log,)


def _arrive(log: Path) -> Counted:
    with log.open("a") as stream:
        stream.write(f"{os.getpid()}\n")
    return Counted(log)


def test_distributed_calibration_gives_the_radius_of_memory(client: Any, decider: ph.RobustDecider) -> None:
    X, Y = ph.data.make_synthetic(5000, rng=np.random.default_rng(1))
    rows = pd.DataFrame(X, columns=NAMES)
    expected = decider.recalibrate(rows, Y).radius_
    table = rows.assign(a=Y[:, 0], b=Y[:, 1])
    before = decider.calibrations_[-1]
    decider.model_ = replace(decider.model_, radii=replace(decider.model_.radii, radius=1e6))
    same = decider.recalibrate(dd.from_pandas(table, npartitions=6), ["a", "b"])
    assert same is decider
    assert decider.radius_ == expected
    assert decider.n_calibrate_ == 5000
    assert decider.calibrations_[-1].radius == expected
    assert len(decider.calibrations_[-1].digest) == len(before.digest)


def test_calibration_refuses_what_the_guarantee_does_not_cover(client: Any, decider: ph.RobustDecider) -> None:
    X, Y = ph.data.make_synthetic(100, rng=np.random.default_rng(1))
    table = pd.DataFrame(X, columns=NAMES).assign(a=Y[:, 0], b=Y[:, 1])
    frame = dd.from_pandas(table, npartitions=2)
    with pytest.raises(ValueError, match=r"Y must name 2 outcome column\(s\) of the Dask DataFrame, got a, c"):
        decider.recalibrate(frame, ["a", "c"])
    with pytest.raises(ValueError, match="labels cannot be given for a Dask DataFrame"):
        decider.recalibrate(frame, ["a", "b"], labels="a")
    with pytest.raises(ValueError, match="needs at least 9 calibration samples, got 8"):
        decider.recalibrate(dd.from_pandas(table.iloc[:8], npartitions=2), ["a", "b"])
    table.loc[50, "a"] = np.nan
    with pytest.raises(ValueError, match="Y must be finite"):
        decider.recalibrate(dd.from_pandas(table, npartitions=2), ["a", "b"])


# --- Parquet ----------------------------------------------------------------------------------------------


# A single block starts a single process: each takes seconds to import the library.
@pytest.mark.parametrize(
    ("workers", "block_rows"), [(1, 128), (2, N_ROWS), pytest.param(2, 128, marks=pytest.mark.slow)]
)
def test_a_parquet_file_gives_a_parquet_file_with_the_numbers_of_memory(
    decider: ph.RobustDecider, data: Any, tmp_path: Path, workers: int, block_rows: int
) -> None:
    rows = with_gaps(data[0]).assign(key=[f"row {i}" for i in range(N_ROWS)])
    rows.to_parquet(tmp_path / "new.parquet", row_group_size=2 * block_rows)
    seen: list[tuple[int, int]] = []
    run = ph.distributed.decide_parquet(
        decider,
        tmp_path / "new.parquet",
        tmp_path / "out" / "decisions.parquet",
        keep=["key"],
        block_rows=block_rows,
        workers=workers,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert run == ParquetRun(tmp_path / "out" / "decisions.parquet", 1, N_ROWS, N_ROWS - 4)
    found = pd.read_parquet(run.target)
    assert found["key"].tolist() == rows["key"].tolist()
    assert_same_decisions(found, decider, rows)
    assert seen[-1] == (N_ROWS, N_ROWS)
    assert len(seen) >= N_ROWS / block_rows
    assert os.listdir(run.target.parent) == ["decisions.parquet"]


def test_a_folder_gives_a_folder_with_the_same_files(decider: ph.RobustDecider, data: Any, tmp_path: Path) -> None:
    rows, source, target = data[0], tmp_path / "new", tmp_path / "decisions"
    for name, part in {"a.parquet": rows[:600], "sub/b.parquet": rows[600:]}.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        part.to_parquet(source / name)
    run = ph.distributed.decide_parquet(decider, source, target)
    assert (run.files, run.rows) == (2, N_ROWS)
    assert_same_decisions(pd.read_parquet(target / "sub" / "b.parquet"), decider, rows[600:])
    with pytest.raises(FileExistsError, match=r"exists already\. Remove it"):
        ph.distributed.decide_parquet(decider, source, target)


def test_wrong_files_and_columns_are_named_before_any_work(
    decider: ph.RobustDecider, data: Any, tmp_path: Path
) -> None:
    source, target = tmp_path / "new.parquet", tmp_path / "decisions.parquet"
    with pytest.raises(FileNotFoundError, match="no Parquet file or folder"):
        ph.distributed.decide_parquet(decider, source, target)
    source.write_text("x0,x1\n1,2\n")
    with pytest.raises(ValueError, match="is not a Parquet file"):
        ph.distributed.decide_parquet(decider, source, target)
    data[0].assign(status=1.0).to_parquet(source)
    with pytest.raises(ValueError, match=r"has no column store\. It has x0, x1, x2, x3, status"):
        ph.distributed.decide_parquet(decider, source, target, keep=["store"])
    with pytest.raises(ValueError, match="keep must not name a column of the results, got status"):
        ph.distributed.decide_parquet(decider, source, target, keep=["status"])
    with pytest.raises(ValueError, match="source and target must differ"):
        ph.distributed.decide_parquet(decider, source, source)
    with pytest.raises(ValueError, match="workers must be an integer of at least 1"):
        ph.distributed.decide_parquet(decider, source, target, workers=0)
    assert os.listdir(tmp_path) == ["new.parquet"]


def test_a_run_that_fails_leaves_nothing_behind_and_the_old_result_alone(data: Any, tmp_path: Path) -> None:
    rows, Y = data
    data[0].to_parquet(tmp_path / "new.parquet")
    (tmp_path / "old.parquet").write_bytes(b"old")
    calls = []

    def breaks(X: Any) -> np.ndarray:
        calls.append(len(X))
        if len(calls) > 4:
            raise RuntimeError("out of luck")
        return X[["x0", "x1"]].to_numpy()

    decider = ph.RobustDecider(
        ph.problems.simplex_linear([0.0, 0.0]), breaks, learner=ph.learners.OneSidedBox(), random_state=0
    ).fit(rows, Y)
    with pytest.raises(RuntimeError, match="out of luck"):
        ph.distributed.decide_parquet(decider, tmp_path / "new.parquet", tmp_path / "old.parquet", block_rows=100)
    assert (tmp_path / "old.parquet").read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["new.parquet", "old.parquet"]


@pytest.mark.slow
def test_ten_million_contexts_are_decided_below_two_gibibytes(tmp_path: Path) -> None:
    code = textwrap.dedent("""
        import resource, sys
        from pathlib import Path
        import numpy as np, pyarrow as pa, pyarrow.parquet as pq
        import polyhedge as ph

        folder = Path(sys.argv[1])
        X, Y = ph.data.make_synthetic(2000, rng=np.random.default_rng(0))
        decider = ph.RobustDecider(ph.problems.simplex_linear([-0.08, 0.0]), random_state=0).fit(X, Y)
        rng = np.random.default_rng(1)
        schema = pa.schema([(f"x{j}", pa.float64()) for j in range(4)])
        with pq.ParquetWriter(folder / "new.parquet", schema) as writer:
            for _ in range(40):
                block = rng.normal(size=(250_000, 4))
                writer.write_table(pa.table(list(block.T), schema=schema))
        run = ph.distributed.decide_parquet(decider, folder / "new.parquet", folder / "decisions.parquet")
        some = pq.ParquetFile(folder / "decisions.parquet").read_row_group(0).to_pandas()[:1000]
        rows = pq.ParquetFile(folder / "new.parquet").read_row_group(0).to_pandas()[:1000]
        assert np.array_equal(some["cost_bound"], decider.decide(rows.to_numpy()).cost_bound)
        print(run.decided, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    """)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    decided, kibibytes = map(int, done.stdout.split())
    assert decided == 10_000_000
    assert kibibytes < 2 * 1024 * 1024
