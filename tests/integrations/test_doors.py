"""Doors to other people's models: MPS files, sets for PyROS, MLflow models. `make test-extras` opens them all."""

import pickle
import re

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest

import polyhedge as ph
from polyhedge.app.cli.options import read_problem
from polyhedge.robust import decide
from polyhedge.sets import Box
from polyhedge_study.baselines.union_of_balls import UnionOfBalls
from shared import run

# Two fuels, one of which comes in whole barrels, for a demand and under a limit.
FUEL = """NAME fuel
{sense}ROWS
 N cost
 G demand
 L store
 E blend
COLUMNS
 M 'MARKER' 'INTORG'
 barrels cost 5 demand 2
 M 'MARKER' 'INTEND'
 oil cost 3 demand 1
 oil store 1 blend 1
 gas cost 2 demand 1
 gas store 1 blend -2
RHS
 RHS cost -10
 RHS demand 6 store 5
BOUNDS
 UP BND barrels 4
 UP BND gas 3
ENDATA
"""


@pytest.fixture
def fuel(tmp_path):
    path = tmp_path / "fuel.mps"
    path.write_text(FUEL.format(sense=""))
    return path


def by_hand(sign: float = 1.0) -> ph.DecisionProblem:
    """The same model with uncertain costs of oil and barrels and an uncertain demand, written in CVXPY."""
    z, n = cp.Variable(2, nonneg=True), cp.Variable(1, integer=True)
    return ph.DecisionProblem(
        decision=[z, n],
        cost=lambda x, u: sign * (10 + u[0] * x[0][0] + 2 * x[0][1] + u[1] * x[1][0]),
        constraints=[n >= 0, n <= 4, z[1] <= 3, z[0] + z[1] <= 5, z[0] == 2 * z[1]],
        uncertain_constraints=lambda x, u: [2 * x[1][0] + x[0][0] + x[0][1] >= u[2]],
        n_outcomes=3,
    )


def test_a_model_in_a_file_decides_like_the_same_model_written_by_hand(fuel):
    problem = ph.problems.from_mps(fuel, uncertain=["oil", "barrels", "demand"])
    assert problem.decision_names == ("barrels", "oil", "gas")
    assert problem.outcome_names == ("oil", "barrels", "demand")
    assert (problem.name, problem.constraint_names) == ("fuel", ("demand",))
    centers = np.random.default_rng(0).uniform([1.0, 4.0, 3.0], [4.0, 8.0, 9.0], (12, 3))
    found, expected = (decide(one, Box([0.5, 1.0, 1.0]), 1.0, centers) for one in (problem, by_hand()))
    assert found.is_optimal.all()
    np.testing.assert_allclose(found.cost_bound, expected.cost_bound, atol=1e-6)
    np.testing.assert_allclose(found.z[:, 0], found.z[:, 0].round(), atol=1e-9)
    twin = pickle.loads(pickle.dumps(problem))
    np.testing.assert_array_equal(decide(twin, Box([0.5, 1.0, 1.0]), 1.0, centers).cost_bound, found.cost_bound)


def test_a_model_that_is_maximised_becomes_a_cost(tmp_path):
    path = tmp_path / "gain.mps"
    path.write_text(FUEL.format(sense="OBJSENSE\n MAX\n"))
    problem = ph.problems.from_mps(path, uncertain=["oil", "barrels"])
    found = decide(problem, Box([0.5, 1.0]), 1.0, np.array([[3.0, 5.0]]))
    # All four barrels and as much as the store holds, each worth the least of its range.
    assert found.cost_bound[0] == pytest.approx(-(10 + 4 * 4.0 + 2.5 * 10 / 3 + 2 * 5 / 3))


def test_a_decider_of_a_file_is_saved_and_loaded(fuel, tmp_path):
    problem = ph.problems.from_mps(fuel, uncertain=["oil", "gas"])
    Y = np.random.default_rng(0).uniform(1.0, 4.0, (120, 2))
    decider = ph.RobustDecider(problem, "precomputed", learner=ph.learners.OneSidedBox(), random_state=0).fit(Y, Y)
    decider.save(tmp_path / "model.polyhedge")
    loaded = ph.load(tmp_path / "model.polyhedge")
    np.testing.assert_array_equal(loaded.decide(Y[:9]).cost_bound, decider.decide(Y[:9]).cost_bound)
    assert loaded.decide(Y[:9]).to_frame().columns.tolist()[:3] == ["barrels", "oil", "gas"]


@pytest.mark.parametrize(
    ("uncertain", "said"),
    [
        (["coal"], "'coal' is neither a column nor a row. The columns are: barrels, oil, gas; the rows are"),
        (["blend"], "The right-hand side of row 'blend' cannot be uncertain: the row has two sides (0 and 0)"),
        (["oil", "oil"], "uncertain must name each column and row once, got oil, oil."),
    ],
)
def test_names_that_are_not_in_the_file_are_refused_with_those_that_are(fuel, uncertain, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        ph.problems.from_mps(fuel, uncertain=uncertain)


class TestOnTheCommandLine:
    """An MPS file as --problem."""

    @pytest.fixture
    def arguments(self, tmp_path):
        (tmp_path / "fuel.mps").write_text(re.sub(r" M .*\n", "", FUEL.format(sense="")))
        rng = np.random.default_rng(0)
        frame = pd.DataFrame({"winter": rng.normal(size=60)})
        frame["gas"], frame["oil"] = 2 + 0.3 * frame["winter"] + rng.uniform(-0.3, 0.3, 60), rng.uniform(2, 4, 60)
        frame.to_csv(tmp_path / "history.csv", index=False)
        data, problem, out = (tmp_path / name for name in ("history.csv", "fuel.mps", "m.polyhedge"))
        return ["fit", data, "--problem", problem, "--out", out, "--predictor", "ridge"]

    def test_it_is_fitted_with_its_own_names_and_decides_without_its_file(self, arguments, tmp_path):
        done = run(*arguments, "--uncertain", "oil,gas", "--alpha", "0.2")
        assert done.exit_code == 0, done.output
        assert "oil, gas" in done.stdout
        (tmp_path / "fuel.mps").unlink()
        done = run("decide", tmp_path / "m.polyhedge", tmp_path / "history.csv", "--out", tmp_path / "d.csv")
        assert done.exit_code == 0, done.output
        assert {"oil", "gas", "barrels"} <= {name.rpartition(".")[2] for name in pd.read_csv(tmp_path / "d.csv")}

    def test_a_name_that_is_a_column_and_a_row_is_refused(self, fuel):
        fuel.write_text(fuel.read_text().replace("store", "oil"))
        with pytest.raises(ValueError, match=r"'oil' is both a column and a row: rename one in the file"):
            read_problem(str(fuel), "oil")

    @pytest.mark.parametrize(
        ("more", "said"),
        [
            ([], "does not say what is uncertain in it. Name columns whose costs, and rows whose right-hand sides are"),
            (["--uncertain", "oil", "--problem", "p.toml"], "--uncertain is for MPS files, and 'p.toml' says itself"),
        ],
    )
    def test_what_is_missing_or_wrong_is_one_line(self, arguments, more, said):
        done = run(*arguments, *more)
        assert done.exit_code == 2
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_files_that_are_no_models_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file"):
        ph.problems.from_mps(tmp_path / "none.mps", uncertain=["x"])
    path = tmp_path / "noise.mps"
    path.write_text("this is no model\n")
    with pytest.raises(ValueError, match="is not a model that HiGHS can read"):
        ph.problems.from_mps(path, uncertain=["x"])


@pytest.mark.needs("pulp")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the way in which PuLP's users write models today
def test_a_file_of_pulp_is_read(tmp_path):
    import pulp

    model = pulp.LpProblem("diet", pulp.LpMinimize)
    bread, milk = pulp.LpVariable("bread", 0, 10), pulp.LpVariable("milk", 0, 10, cat="Integer")
    model += 2 * bread + 3 * milk
    model += bread + 2 * milk >= 7, "energy"
    path = tmp_path / "diet.mps"
    model.writeMPS(str(path))
    problem = ph.problems.from_mps(path, uncertain=["bread", "milk"])
    # Known costs: the optimum of the file itself, 3 milk and 1 bread.
    assert decide(problem, Box([1.0, 1.0]), 0.0, np.array([[2.0, 3.0]])).cost_bound[0] == pytest.approx(11.0)


def around(shape, known: bool) -> ph.Region:
    support = {"support_W": -np.eye(2), "support_h": np.zeros(2)} if known else {}
    return ph.Region(shape, 1.5, [1.0, 2.0], **support)


@pytest.mark.needs("pyomo")
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    "shape",
    [
        ph.Box([1.0, 0.5]),
        ph.Polyhedron([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [0.0, 0.0, 0.0]),
        ph.Ball(2),
        ph.Ellipsoid([[2.0, 0.5], [0.5, 1.0]]),
    ],
    ids=lambda shape: type(shape).__name__,
)
def test_a_set_for_pyros_holds_the_same_outcomes(shape, known):
    region = around(shape, known)
    points = np.random.default_rng(0).uniform([-3.0, -3.0], [5.0, 6.0], (300, 2))
    uncertain = region.to_pyros()
    parts = list(getattr(uncertain, "all_sets", [uncertain]))
    inside = np.array([all(part.point_in_set(point) for part in parts) for point in points])
    np.testing.assert_array_equal(inside, region.contains(points))
    assert 0 < inside.sum() < len(points)


@pytest.mark.needs("pyomo")
def test_sets_that_pyros_does_not_know_are_refused():
    union = UnionOfBalls(np.array([[0.0, 0.0], [2.0, 2.0]]))
    with pytest.raises(ValueError, match="PyROS has no set like UnionOfBalls"):
        around(union, known=False).to_pyros()
    with pytest.raises(ValueError, match="PyROS takes bounded sets"):
        around(ph.Polyhedron([[1.0, 0.0]], [0.0]), known=False).to_pyros()


@pytest.fixture(scope="module")
def named():
    X, Y = ph.data.make_synthetic(200, rng=np.random.default_rng(1))
    frame = pd.DataFrame(X, columns=[*"abcd"])
    problem = ph.problems.simplex_linear([0.0, 0.0], names=["steel", "oil"])
    return ph.RobustDecider(problem, learner=ph.learners.OneSidedBox(), random_state=0).fit(frame, Y), frame


@pytest.mark.needs("mlflow")
@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_mlflow_loads_a_decider_and_its_predictions_are_decisions(named, tmp_path):
    import mlflow

    from polyhedge.integrations import mlflow as mlflow_model

    decider, frame = named
    mlflow_model.save_model(decider, tmp_path / "model", pip_requirements=["polyhedge"])
    assert not list(tmp_path.rglob("*.pkl"))
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    pd.testing.assert_frame_equal(loaded.predict(frame[:7]), decider.decide(frame[:7]).to_frame())


@pytest.mark.needs("mlflow", "sqlalchemy")
@pytest.mark.filterwarnings("ignore")
def test_a_decider_is_logged_to_a_run_and_loaded_from_it(named, tmp_path):
    import mlflow

    from polyhedge.integrations import mlflow as mlflow_model

    decider, frame = named
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'runs.db'}")
    mlflow.create_experiment("test", artifact_location=(tmp_path / "artifacts").as_uri())
    mlflow.set_experiment("test")
    with mlflow.start_run():
        info = mlflow_model.log_model(decider, pip_requirements=["polyhedge"])
    found = mlflow.pyfunc.load_model(info.model_uri).predict(frame[:7])
    pd.testing.assert_frame_equal(found, decider.decide(frame[:7]).to_frame())


def test_a_model_file_beyond_its_limit_is_refused_before_it_is_read_and_the_limit_can_be_raised(tmp_path):
    text = FUEL.format(sense="").encode() + b"* " + b"x" * 100_000 + b"\n"
    path = tmp_path / "fuel.mps"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=rf"at most 50000 bytes, and has {len(text)}.*raise .*max_bytes="):
        ph.problems.from_mps(path, uncertain=["oil", "barrels", "demand"], max_bytes=50_000)
    assert ph.problems.from_mps(path, uncertain=["oil", "barrels", "demand"], max_bytes=200_000).n_outcomes == 3
    packed = path.rename(tmp_path / "fuel.mps.gz")
    with pytest.raises(ValueError, match=r"is packed\. Unpack it"):
        ph.problems.from_mps(packed, uncertain=["oil"])
