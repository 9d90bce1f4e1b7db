"""Model files: the same decisions after loading, and nothing but one documented error from bad files."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import subprocess
import sys
import warnings
from dataclasses import fields
from pathlib import Path

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVR

import polyhedge as ph
from polyhedge.io.archive import MAX_BYTES, pack, unpack
from polyhedge_study.baselines.union_of_balls import UnionOfBalls
from polyhedge_study.feature_ridge import FeatureRidge
from shared import Given, codes, save_trusting

HERE = Path(__file__).parents[1]
X, Y = ph.data.make_synthetic(160, rng=np.random.default_rng(0))
FRAME = pd.DataFrame(X, columns=list("abcd")).assign(kind=np.where(X[:, 0] > 0, "warm", "cold"))
P = np.array([[2.0, 0.3], [0.3, 1.0]])
LINEAR = ph.problems.simplex_linear([-0.08, 0.0])


BOX = Given(ph.Box([1.0, 1.3]).as_polyhedron())


def fitted(problem=LINEAR, predictor="precomputed", learner=BOX, X=X, Y=Y):
    X = Y * 0.8 if isinstance(predictor, str) and predictor == "precomputed" else X
    return ph.RobustDecider(problem, predictor, learner=learner, guarantee="outcome", random_state=0).fit(X, Y)


def assert_same(decider, twin, X, Y):
    """Decisions, evaluation and region agree to the last bit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        first, second = decider.decide(X), twin.decide(X)
    for field in fields(first):
        one, other = getattr(first, field.name), getattr(second, field.name)
        if field.name == "layout" or one is None:
            assert one == other
        elif field.name == "labels":
            assert (one.decisions, one.outcomes) == (other.decisions, other.outcomes)
        elif field.name in ("status", "detail"):
            assert list(one) == list(other)
        elif one is None:
            assert other is None
        else:  # sums over trees are added up in another order
            np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-12, err_msg=field.name)
    n = min(len(X), 4)
    assert decider.evaluate(X[:n], Y[:n]).coverage == twin.evaluate(X[:n], Y[:n]).coverage
    row = X.iloc[0] if hasattr(X, "iloc") else X[0]
    np.testing.assert_allclose(decider.region(row).center, twin.region(row).center, rtol=1e-12)
    assert decider.region(row).volume() == pytest.approx(twin.region(row).volume())


SETS = {
    "polyhedron": ph.Polyhedron([[1.0, 0.1], [0.2, 1.0], [-1.0, -1.0]], [0.1, -0.2, -3.0]),
    "box": ph.Box([1.0, 1 / 3], [0.1, 0.2]),
    "l_1 ball": ph.Ball(2, norm=1, center=[0.1, 0.2]),
    "l_2 ball": ph.Ball(2),
    "l_inf ball": ph.Ball(2, norm=np.inf),
    "ellipsoid": ph.Ellipsoid([[2.0, 1 / 3], [1 / 3, 1.0]], [0.1, 0.2]),
    "union of balls": UnionOfBalls([[0.0, 0.1], [1 / 3, 0.2], [-1.0, 1.0]]),
}


@pytest.mark.parametrize("name", SETS)
def test_every_shape_of_set_decides_the_same_after_loading(name, path):
    decider = fitted(ph.problems.simplex_newsvendor(0.3, 0.7, 2), learner=Given(SETS[name]))
    decider.save(path)
    twin = ph.load(path)
    assert type(twin.set_) is type(SETS[name])
    assert_same(decider, twin, Y[:8] * 0.8, Y)


def written(cost, decision=None, constraints=(), **settings):
    z = cp.Variable(2, nonneg=True) if decision is None else decision
    rows = constraints(z) if callable(constraints) else [cp.sum(z) == 1]
    return ph.DecisionProblem(decision=z, cost=cost, constraints=rows, n_outcomes=2, **settings)


PROBLEMS = {
    "linear": lambda: LINEAR,
    "quadratic": lambda: ph.problems.simplex_quadratic([0.0, 0.1], 0.1),
    "newsvendor": lambda: ph.problems.newsvendor(0.3, [0.7, 0.5], 2, capacity=3.0, nonnegative_demand=False),
    "whole units": lambda: ph.problems.newsvendor(0.3, 0.7, 2, capacity=3.0, integer=True, nonnegative_demand=False),
    "portfolio": lambda: ph.problems.portfolio(P),
    "quadratic form": lambda: written(lambda z, u: u @ z + cp.quad_form(z, P)),
    "matrix decision": lambda: written(
        lambda z, u: cp.sum(z @ u) + cp.norm(z[0], 2) + cp.max(cp.abs(z[:, 1] - u)),
        cp.Variable((2, 2), nonneg=True, name="flow"),
        lambda z: [cp.sum(z, axis=1) == 1, cp.norm(z[0], 2) <= 0.9],
    ),
    "bounds": lambda: written(
        lambda z, u: cp.maximum(u[0] - z[0], 2 * (z[0] - u[0])) + cp.square(z[1]) + u[1] * z[1],
        cp.Variable(2, bounds=[np.array([-np.inf, 0.0]), 2.0]),
        lambda z: [],
    ),
    "some whole units": lambda: written(
        lambda z, u: cp.norm1(z - u), cp.Variable(2, integer=[[0]], bounds=[0, 5]), lambda z: []
    ),
    "boolean": lambda: written(lambda z, u: u @ z, cp.Variable(2, boolean=True)),
    "uncertain constraints": lambda: written(
        lambda z, u: cp.sum(z) + cp.exp(z[0]),
        constraints=lambda z: [z <= 40],
        uncertain_constraints=lambda z, u: [z >= u, cp.square(z[0]) - 100 <= u[1]],
    ),
    "concave in u": lambda: written(lambda z, u: cp.sum_squares(z) - cp.square(u[0]) + u @ z),
    "convex in u": lambda: written(lambda z, u: cp.quad_form(z - u, P) + cp.quad_form(u, P)),
    "sparse constants": lambda: written(lambda z, u: u @ z + cp.sum_squares(cp.Constant(sp.csc_array(P)) @ z)),
    "log and power": lambda: written(lambda z, u: u @ z - cp.sum(cp.log(1 + z)) + cp.sum(cp.power(z, 1.5))),
    "geometric mean": lambda: written(lambda z, u: u @ z - cp.geo_mean(1 + z) + cp.log_sum_exp(z) + cp.huber(z[0])),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_kind_of_problem_decides_the_same_after_loading(name, path):
    decider = fitted(PROBLEMS[name]())
    decider.save(path)
    assert_same(decider, ph.load(path), Y[:6] * 0.8, Y)


PREDICTORS = {
    "default": (None, X),
    **{name: (name, X) for name in ph.predictors.PREDICTORS},
    "raw columns": ("auto", FRAME),
}
COLUMNS = make_column_transformer(
    (make_pipeline(SimpleImputer(), StandardScaler()), list("abcd")), (OneHotEncoder(handle_unknown="ignore"), ["kind"])
)
OWN = {
    "paper": (FeatureRidge(), X),
    "forest on a data frame": (make_pipeline(COLUMNS, RandomForestRegressor(5)), FRAME),
    "search": (GridSearchCV(SVR(), {"C": [0.1, 1.0]}), X),
    "raw columns": (Ridge(), FRAME),
    "frozen": (FrozenEstimator(LinearRegression().fit(X[:50], Y[:50])), X),
}


@pytest.mark.parametrize("name", PREDICTORS)
def test_every_predictor_that_fit_makes_decides_the_same_after_loading(name, path):
    predictor, rows = PREDICTORS[name]
    decider = fitted(predictor=predictor, X=rows)
    decider.save(path)
    twin = ph.load(path)
    assert_same(decider, twin, rows[:70], Y)
    assert np.array_equal(twin.split_.calibrate, decider.split_.calibrate)
    assert (twin.n_learn_, twin.n_calibrate_) == (decider.n_learn_, decider.n_calibrate_)
    assert list(getattr(twin, "feature_names_in_", [])) == list(getattr(decider, "feature_names_in_", []))
    assert np.isfinite(twin.refresh(rows[:120], Y[:120]).decide(rows[:3]).cost_bound).all()


@pytest.mark.parametrize("name", OWN)
def test_types_of_ones_own_must_be_named_when_saving_and_when_loading(name, path):
    predictor, rows = OWN[name]
    decider = fitted(predictor=predictor, X=rows)
    trusted = save_trusting(decider, path)
    with pytest.raises(ph.ModelFileError, match="which may run code"):
        ph.load(path)
    assert_same(decider, ph.load(path, trusted=trusted), rows[:70], Y)


def test_a_function_as_predictor_is_not_stored(path):
    decider = fitted(predictor=lambda rows: rows[:, :2])
    with pytest.raises(ValueError, match=r"functions are not stored"):
        decider.save(path)


def test_recalibration_keeps_the_old_radii_through_saving_and_loading(path):
    decider = fitted()
    decider.save(path)
    twin = ph.load(path).recalibrate(Y[:50] * 0.7, Y[:50])
    twin.save(path)
    trail = ph.load(path).calibrations_
    assert trail[0] == decider.calibrations_[0]
    assert [c.n for c in trail] == [decider.n_calibrate_, 50]
    assert trail[1].radius == twin.radius_ != decider.radius_
    assert trail[0].digest != trail[1].digest
    assert decider.calibrations_[0].radius == decider.radius_


def test_the_digest_of_the_data_depends_on_every_row_and_on_the_split():
    changed = Y.copy()
    changed[-1, -1] += 1e-9
    digests = {fitted().data_digest_, fitted(Y=changed).data_digest_}
    digests.add(ph.RobustDecider(LINEAR, "precomputed", learner=BOX, random_state=1).fit(Y * 0.8, Y).data_digest_)
    assert len(digests) == 3
    assert fitted().data_digest_ in digests


def test_details_come_back_and_stay_with_a_model_that_is_saved_again(path):
    details = {"columns": ["heating", "cooling"], "share": 0.1, "nested": {"n": [1, None, True]}}
    fitted().save(path, details)
    twin = ph.load(path)
    assert twin.details_ == details
    twin.save(path)
    assert ph.load(path).details_ == details


def test_details_that_cannot_be_stored_are_an_error_and_leave_the_old_file(path):
    fitted().save(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"numbers, texts and objects of registered classes, got a object in Record"):
        fitted().save(path, {"a": object()})
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_the_documented_example_runs(tmp_path, monkeypatch):
    text = (HERE.parent / "docs" / "model-file.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names = {"ph": ph, "decider": fitted(), "X_fresh": Y[:50] * 0.7, "Y_fresh": Y[:50]}
    exec(text.split("```python")[1].split("```")[0], names)
    assert len(names["twin"].calibrations_) == 2
    assert names["twin"].details_ == {"columns": ["heating", "cooling"]}


def test_inspecting_tells_what_is_inside_without_making_the_predictor(path, monkeypatch):
    decider = fitted(predictor="forest")
    decider.save(path, {"columns": ["a"]})
    monkeypatch.setattr("skops.io.loads", lambda *_, **__: pytest.fail("the predictor was made"))
    info = ph.inspect_model(path)
    assert (info.problem_name, info.decision_names, info.outcome_names) == (
        "simplex linear",
        ("z_1", "z_2"),
        ("u_1", "u_2"),
    )
    assert (info.alpha, info.radius, info.n_calibrate) == (0.1, decider.radius_, decider.n_calibrate_)
    assert info.predictor_types == ("forest",)
    assert info.problem_is_inside
    assert (info.n_train, info.n_learn, info.n_calibrate_split) == (80, 40, 40)
    assert info.details == {"columns": ["a"]}
    assert info.packages["numpy"] == np.__version__
    assert info.data_digest == decider.data_digest_
    assert "trained: forest" in str(info)


def test_inspecting_prints_no_control_characters(path):
    fitted(LINEAR.labelled(name="plan \x1b[2J\n")).save(path)
    assert r"plan \x1b[2J\n" in str(ph.inspect_model(path))


def test_sets_of_unknown_shape_are_an_error(path):
    class Odd(ph.Box):
        pass

    with pytest.raises(ValueError, match=r"got a Odd in LearnedSet\.shape\. Make it a frozen dataclass"):
        fitted(learner=Given(Odd([1.0, 1.0]))).save(path)


WRITTEN = """
import cvxpy as cp, polyhedge as ph
z = cp.Variable(2, nonneg=True)
problem = ph.DecisionProblem(
    decision=z,
    cost=lambda z, u: u @ z + cp.lambda_sum_largest(cp.diag(z), 1),
    constraints=[cp.sum(z) == 1],
    n_outcomes=2,
)
"""


def test_a_problem_that_cannot_travel_is_asked_for_and_recognised_by_its_digest(path, tmp_path):
    source = tmp_path / "mine.py"
    source.write_text(WRITTEN)
    reference = f"{source}:problem"
    decider = fitted(ph.problems.from_reference(reference))
    decider.save(path)
    assert not ph.inspect_model(path).problem_is_inside
    with pytest.raises(ph.ModelFileError, match=r"mine.py:problem and not in the file.*from_reference"):
        ph.load(path)
    assert_same(decider, ph.load(path, problem=ph.problems.from_reference(reference)), Y[:3] * 0.8, Y)
    source.write_text(WRITTEN + "# changed\n")
    with pytest.raises(ph.ModelFileError, match=r"not the one the model was fitted with"):
        ph.load(path, problem=ph.problems.from_reference(reference))
    with pytest.raises(ph.ModelFileError, match=r"not the one the model was fitted with"):
        ph.load(path, problem=LINEAR)


def test_a_problem_from_a_python_file_travels_where_it_can(path, tmp_path):
    source = tmp_path / "mine.py"
    source.write_text(WRITTEN.replace("cp.lambda_sum_largest(cp.diag(z), 1)", "cp.max(z)"))
    decider = fitted(ph.problems.from_reference(f"{source}:problem"))
    decider.save(path)
    source.unlink()
    twin = ph.load(path)
    assert_same(decider, twin, Y[:3] * 0.8, Y)
    assert twin.problem.source == decider.problem.source
    assert ph.load(path, problem=decider.problem).problem is decider.problem
    with pytest.raises(ph.ModelFileError, match=r"The file holds its own problem: leave problem out"):
        ph.load(path, problem=LINEAR)


def members_of(path):
    with path.open("rb") as stream:
        return unpack(stream)


def rewritten(path, change):
    """The file with one document changed and a digest that matches again."""
    members = members_of(path)
    document = json.loads(members["model.json"])
    change(document, members)
    members["model.json"] = json.dumps(document).encode()
    path.write_bytes(pack(members))


def set_item(*keys, value):
    def change(document, members):
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return change


def set_field(kind, name, value):
    """Change a field of the first object of a class."""

    def change(document, members):
        next(state for known, state in document["objects"] if known == kind)[name] = value

    return change


def nan_array(document, members):
    name = next(name for name in members if name.endswith(".npy"))
    members[name] = members[name][:-8] + np.array([np.nan]).tobytes()


def half_array(document, members):
    name = next(name for name in members if name.endswith(".npy"))
    members[name] = members[name][:-8]


REFUSED = {
    "another format version": (set_item("version", value=3), "format version 3, this polyhedge reads version 5. Fit"),
    "another format": (set_item("format", value="x"), "not a polyhedge model file"),
    "NaN in an array": (nan_array, "NaN or infinite entries"),
    "a short array": (half_array, "its size is another"),
    "an unknown class": (set_item("objects", 0, 0, value="os.system"), "no imported module registers"),
    "an object of another kind": (set_field("learned set", "shape", {"$object": 0}), "must be Shape"),
    "an array that is not there": (set_field("polyhedron", "b", {"$array": "arrays/999.npy"}), "is missing"),
    "a field that is not there": (set_field("polyhedron", "c", 1), "no field 'c'"),
    "an infinite radius": (set_field("marginal radius", "radius", float("inf")), "must be a finite number"),
    "another radius": (set_field("marginal radius", "radius", 99.0), "newest entry of the audit trail"),
    "no calibration": (set_field("model", "trail", []), "was calibrated"),
    "alpha of 2": (set_field("calibration", "alpha", 2.0), "alpha must lie strictly between"),
    "an unknown atom": (
        set_item("problem", "stored", "cost", value=[{"atom": "eval", "args": [], "data": []}]),
        "problem cannot be made",
    ),
    "more outcomes than the set": (
        set_item("problem", "stored", "outcome_names", value=["a", "b", "c"]),
        "The problem cannot be made",
    ),
    "an unknown predictor": (set_field("predictor", "kind", "magic"), "predictor.kind must be"),
    "a predictor that is missing": (set_field("predictor", "kind", "trained"), "predictor is missing"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_edited_files_with_a_matching_digest_are_refused_with_a_reason(name, path):
    change, message = REFUSED[name]
    fitted().save(path)
    rewritten(path, change)
    with pytest.raises(ph.ModelFileError, match=message):
        ph.load(path)


LIFE = {
    "a raised alarm without wealth": (set_field("alarm", "raised_at", 3), "is raised if its wealth has reached"),
    "rows that the alarm has not seen": (set_field("alarm", "n_missed", 7), "must have seen the rows"),
    "moments that were not": (set_field("alarm", "n_moments", 10**6), "must count misses, moments"),
    "an alarm of another calibration": (set_field("alarm", "rank", 1), "must belong to the model"),
    "no alarm": (set_field("monitoring", "alarm", None), "must belong to the model"),
    "another promise": (set_field("monitoring", "promised", 0.5), "must belong to the model"),
    "a radius for no row": (set_field("monitoring", "missed", {"$array": "arrays/0.npy"}), "is missing|must be"),
    "keys that are no texts": (set_field("monitoring state", "keys", [1]), "must be str"),
    "an unknown split": (set_field("continuation", "split", "magic"), "split must be 'time'"),
    "shares without an end": (set_field("time split", "shares", [0.5, 0.5, float("inf")]), "finite shares"),
    "a gap of nothing": (set_field("time split", "gap", {}), "gap must be a number of at least 0 with a unit"),
    "starts that are no times": (set_field("time split", "starts", [[], []]), "must be two times|must be texts"),
    "times of rows": (set_field("time split", "times", [1, 2]), "must not hold the times"),
    "a negative seed": (set_field("continuation", "seed", -1), "The seed must be"),
    "no state": (set_item("life", value=None), "what its decider goes on with"),
}


@pytest.fixture(scope="module")
def monitored(tmp_path_factory):
    """The file of a decider that has seen outcomes."""
    path = tmp_path_factory.mktemp("life") / "model.polyhedge"
    split = ph.data.TimeSplit(times=np.arange(160.0), gap=2)
    decider = ph.RobustDecider(LINEAR, "precomputed", learner=BOX, split=split, random_state=0).fit(Y * 0.8, Y)
    decider.update(Y[:60] * 0.7, Y[:60])
    decider.save(path)
    return path


@pytest.mark.parametrize("name", LIFE)
def test_a_monitoring_state_that_no_decider_can_have_is_refused(name, path, monitored):
    change, message = LIFE[name]
    path.write_bytes(monitored.read_bytes())
    rewritten(path, change)
    with pytest.raises(ph.ModelFileError, match=message):
        ph.load(path)


def test_edited_files_without_a_matching_digest_are_refused(path):
    fitted().save(path, {"promise": 0.9})
    members = members_of(path)
    digest = fuzz.digest_of(members)
    members["model.json"] = members["model.json"].replace(b'"promise":0.9', b'"promise":0.8')
    path.write_bytes(fuzz.zipped({**members, "digest.txt": digest.encode()}))
    for read in (ph.load, ph.inspect_model):
        with pytest.raises(ph.ModelFileError, match=r"digest does not match its content: it was edited"):
            read(path)


@pytest.mark.parametrize("content", [b"", b"PK", b"not a model", b"PK\x05\x06" + bytes(18)])
def test_other_files_are_refused(content, path):
    path.write_bytes(content)
    with pytest.raises(ph.ModelFileError, match=r"not a whole polyhedge model file|digest"):
        ph.load(path)


def test_files_beyond_the_permitted_size_are_refused_until_it_is_raised(path):
    fitted().save(path)
    size = sum(len(member) for member in members_of(path).values())
    with pytest.raises(ph.ModelFileError, match=r"larger than .* bytes"):
        ph.load(path, max_bytes=size // 2)
    assert ph.load(path, max_bytes=100 * size).radius_ == fitted().radius_


def packed_zeros(share):
    """An archive of zeros, of this share of the permitted size."""
    n = int(share * MAX_BYTES)
    return pack({"arrays/0.npy": fuzz.npy(f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({n},), }}", bytes(n))})


def test_a_small_file_that_unpacks_to_much_is_refused_before_anything_is_unpacked(path, monkeypatch):
    path.write_bytes(packed_zeros(0.26))
    monkeypatch.setattr("zipfile.ZipFile.open", lambda *_, **__: pytest.fail("a member was unpacked"))
    message = r"unpacks to \d+, more than 100 times.*pass a larger max_bytes"
    for read in (ph.load, ph.inspect_model):
        with pytest.raises(ph.ModelFileError, match=message) as told:
            read(path)
    needed = int(str(told.value).split("max_bytes: ")[1].split()[0])
    monkeypatch.undo()
    with pytest.raises(ph.ModelFileError, match=r"not proper JSON"):  # the size is no matter any more
        ph.load(path, max_bytes=needed)
    path.write_bytes(packed_zeros(0.24))
    with pytest.raises(ph.ModelFileError, match=r"not proper JSON"):
        ph.load(path)


def test_a_model_that_load_would_refuse_for_its_size_says_so_when_it_is_saved(path, monkeypatch):
    monkeypatch.setattr("polyhedge.io.model.MAX_BYTES", 1000)
    with pytest.warns(RuntimeWarning, match=r"The model is large: load it with max_bytes=\d+") as caught:
        fitted().save(path)
    (said,) = (str(one.message) for one in caught if "max_bytes=" in str(one.message))
    assert "Large file" in codes(caught)
    needed = int(said.split("max_bytes=")[1].split(",")[0])
    assert ph.load(path, max_bytes=needed).radius_ == fitted().radius_
    with pytest.raises(ph.ModelFileError, match=r"pass a larger max_bytes"):
        ph.load(path, max_bytes=needed // 2)


TREES = {
    "a child that does not exist": ("child", 10**6, "child of one node"),
    "a negative child": ("child", -1, "by their numbers"),
    "a feature that does not exist": ("feature", 10**6, "Trees ask for 1000001 columns"),
}


@pytest.mark.parametrize("name", TREES)
def test_trees_that_lead_astray_are_refused(name, path):
    field, value, message = TREES[name]
    fitted(predictor="forest").save(path)

    def change(document, members):
        array = next(state for known, state in document["objects"] if known == "trees")[field]["$array"]
        nodes = np.load(io.BytesIO(members[array]))
        nodes[0] = value
        members[array] = fuzz.saved(nodes)

    rewritten(path, change)
    with pytest.raises(ph.ModelFileError, match=message):
        ph.load(path)


def run_fuzzer(folder, n, seed):
    command = [sys.executable, "-W", "ignore", HERE / "fuzz_model_files.py", folder, str(n), str(seed)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **ONE_THREAD})


ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Threads that wait for each other count as work."""


def test_thirty_mutated_files_raise_nothing_but_the_documented_error(tmp_path):
    done = run_fuzzer(tmp_path, 30, 0)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_twenty_thousand_mutated_files_raise_nothing_but_the_documented_error(seed, tmp_path):
    done = run_fuzzer(tmp_path, 5000, seed + 1)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def _fuzz():
    spec = importlib.util.spec_from_file_location("fuzz_model_files", HERE / "fuzz_model_files.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fuzz = _fuzz()
