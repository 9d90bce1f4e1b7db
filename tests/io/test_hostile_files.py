"""Model files made to do harm: each is refused with the documented error before anything of it is used."""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from dataclasses import replace
from functools import cache, partial
from math import comb
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import skops.io
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeRegressor
from sklearn.tree._tree import Tree
from typer.testing import CliRunner

import polyhedge as ph
from polyhedge.app.cli import app
from polyhedge.io.archive import pack, unpack
from polyhedge.io.claims import check_claims
from polyhedge.io.encode import parse_json
from polyhedge.io.make import from_record, to_record
from polyhedge.io.predictor import PLAIN
from polyhedge.io.records import Objects, pack_record
from polyhedge.problems.pieces import SumOfMaxima, maximum_of

X, Y = ph.data.make_synthetic(120, rng=np.random.default_rng(0))
LINEAR = ph.problems.simplex_linear([-0.08, 0.0])


class _Box:
    """A learner that takes no time."""

    needs = ph.learners.Needs()

    def learn(self, samples, random_state=None):
        return ph.learners.LearnResult(ph.Box([1.0, 1.3]).as_polyhedron(), np.nan, ph.Status.OPTIMAL, 0.0)


def fitted(predictor=None):
    return ph.RobustDecider(LINEAR, predictor, learner=_Box(), random_state=0).fit(X, Y)


@cache
def whole_file():
    """A proper file of the default predictor."""
    with TemporaryDirectory() as folder:
        fitted().save(Path(folder) / "whole")
        return (Path(folder) / "whole").read_bytes()


def with_predictor(path, members):
    """A proper file whose predictor is replaced: what an author who knows the format can write."""
    whole = unpack(io.BytesIO(whole_file()))
    own = {name: member for name, member in whole.items() if not name.startswith("predictor")}
    document = json.loads(own["model.json"])
    document["schema"] = 3 if PLAIN in members else 2
    own["model.json"] = json.dumps(document).encode()
    path.write_bytes(pack({**own, **members}))


def in_skops_form(estimator, change=lambda schema: None):
    """How files of the formats 1 and 2 hold an estimator."""
    with zipfile.ZipFile(io.BytesIO(skops.io.dumps(estimator))) as archive:
        members = {f"predictor/{name}": archive.read(name) for name in archive.namelist()}
    schema = json.loads(members["predictor/schema.json"])
    change(schema)
    return {**members, "predictor/schema.json": json.dumps(schema).encode()}


def in_plain_form(estimator, change=lambda values, members: None):
    values, members = pack_record(to_record(estimator))
    change(values, members)
    return {**members, PLAIN: json.dumps(values).encode()}


def boosting(**attributes):
    model = MultiOutputRegressor(GradientBoostingRegressor(n_estimators=2, max_depth=2)).fit(X, Y)
    for each in model.estimators_:
        vars(each).update(attributes)
    return model


def short_start():
    """A start of boosting that gives fewer rows than compiled code then writes to."""
    first = FunctionTransformer(partial(np.matmul, np.ones((1, 3))))
    return make_pipeline(first, LinearRegression().fit(X, Y[:, 0]))


def bad_tree(**arguments):
    """A tree whose numbers are none that scikit-learn would have made."""
    state = {"max_depth": 0, "node_count": 1, "nodes": leaf(), "values": np.zeros((1, 1, 0))}
    n_features, n_classes, n_outputs = 4, np.array([0]), 1
    state.update({key: value for key, value in arguments.items() if key in state})
    tree = Tree(arguments.get("n_features", n_features), arguments.get("n_classes", n_classes), n_outputs)
    tree.__setstate__(state)
    return tree


def leaf():
    nodes = DecisionTreeRegressor(max_depth=1).fit(X, Y[:, 0]).tree_.__getstate__()["nodes"][:1].copy()
    nodes["left_child"] = nodes["right_child"] = -1
    return nodes


def with_tree(tree):
    model = MultiOutputRegressor(DecisionTreeRegressor(max_depth=1)).fit(X, Y)
    for each in model.estimators_:
        each.tree_ = tree
    return model


def one_hot(change):
    kinds = (X[:, :1] > 0).astype(float)
    model = make_pipeline(OneHotEncoder(sparse_output=False), Ridge()).fit(kinds, Y)
    change(model[0])
    return model


def set_in_last(name, value):
    def change(encoder):
        setattr(encoder, name, value)

    return change


OBJECTS = {
    "boosting that starts with too few rows": lambda: boosting(init_=short_start()),
    "boosting that starts from a model": lambda: boosting(init_=LinearRegression().fit(X, Y[:, 0])),
    "boosting that starts with two outputs": lambda: boosting(init_=LinearRegression().fit(X, Y)),
    "boosting with two trees a stage": lambda: boosting(
        estimators_=np.array([[DecisionTreeRegressor(max_depth=1).fit(X, Y[:, 0])] * 2], dtype=object)
    ),
    "boosting on fewer features than its trees": lambda: boosting(n_features_in_=3),
    "a tree without classes": lambda: with_tree(bad_tree()),
    "a tree with two classes": lambda: with_tree(bad_tree(n_classes=np.array([2]), values=np.zeros((1, 1, 2)))),
    "a tree of other features": lambda: with_tree(
        bad_tree(n_classes=np.array([1]), values=np.zeros((1, 1, 1)), n_features=10**6)
    ),
    "categories in disorder": lambda: one_hot(set_in_last("categories_", [np.array([1.0, 0.0])])),
    "categories in disorder as objects": lambda: one_hot(
        set_in_last("categories_", [np.array([1.0, 0.0], dtype=object)])
    ),
    "fewer columns than categories": lambda: one_hot(set_in_last("_n_features_outs", [1])),
    "a function of NumPy with settings": lambda: make_pipeline(
        FunctionTransformer(np.tanh, kw_args={"out": np.zeros(1)}).fit(X), Ridge().fit(X, Y)
    ),
    "a product of NumPy": lambda: make_pipeline(FunctionTransformer(np.matmul).fit(X), Ridge().fit(X, Y)),
}


@pytest.mark.parametrize("form", ["skops", "plain"])
@pytest.mark.parametrize("name", OBJECTS)
def test_predictors_that_would_lead_compiled_code_astray_are_refused(name, form, path):
    made = OBJECTS[name]()
    if form == "plain" and name in ("boosting that starts with too few rows", "a product of NumPy"):
        with pytest.raises(ValueError, match=r"functools.partial|matmul"):
            in_plain_form(made)
        return
    with_predictor(path, in_skops_form(made) if form == "skops" else in_plain_form(made))
    with pytest.raises(ph.ModelFileError, match=r"The predictor cannot be (made|read)"):
        ph.load(path)


def nodes_of(schema, name):
    """All nodes of one class in a description."""
    found, todo = [], [schema]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            found += [item] if item.get("__class__") == name else []
            todo.extend(item.values())
        elif isinstance(item, list):
            todo.extend(item)
    return found


def test_numbers_that_refer_to_other_parts_do_not_replace_what_is_checked(path):
    """skops takes a second part of the same `__id__` for the first, whatever it says itself."""
    harmless = RandomForestRegressor(3, max_depth=2, random_state=0).fit(X, Y)

    def reuse(schema):
        trees = nodes_of(schema, "Tree")
        for tree in trees:
            tree["__id__"] = trees[0]["__id__"]

    with_predictor(path, in_skops_form(harmless, reuse))
    twin = ph.load(path)
    assert np.array_equal(twin.predictor_.predict(X), harmless.predict(X))


def test_a_part_that_only_refers_to_another_is_refused(path):
    def refer(schema):
        first, second, *_ = nodes_of(schema, "Tree")
        number = first["__id__"]
        second.clear()
        second.update({"__class__": "Tree", "__module__": "sklearn.tree._tree", "__loader__": "CachedNode"})
        second["__id__"] = number

    with_predictor(path, in_skops_form(RandomForestRegressor(2, max_depth=1).fit(X, Y), refer))
    with pytest.raises(ph.ModelFileError, match=r"sklearn.tree._tree.Tree"):
        ph.load(path)


def test_a_file_imports_no_module_that_it_names(path, monkeypatch):
    model = make_pipeline(FunctionTransformer(np.log1p).fit(X), Ridge().fit(X, Y))

    def rename(schema):
        for node in nodes_of(schema, "log1p"):
            node["__module__"] = "numpy.f2py.__main__"
        for node in nodes_of(schema, "Ridge"):
            node["__module__"] = "sklearn.linear_model.this"

    for trusted in ([], ["numpy.log1p"], ["sklearn.linear_model._ridge.Ridge"]):
        with_predictor(path, in_skops_form(model, rename))
        for name in ("numpy.f2py.__main__", "numpy.f2py", "this"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        with pytest.raises(ph.ModelFileError, match=r"numpy.f2py.__main__.log1p"):
            ph.load(path, trusted=trusted)
        assert "numpy.f2py" not in sys.modules
    out = path.with_name("decisions.csv")
    done = CliRunner().invoke(app, ["decide", str(path), str(path), "--out", str(out)])
    assert done.exit_code == 2
    assert "numpy.f2py.__main__.log1p" in done.output
    assert not out.exists()


def test_no_part_of_numpy_is_looked_up_that_is_not_on_the_list(path, monkeypatch):
    model = make_pipeline(FunctionTransformer(np.log1p).fit(X), Ridge().fit(X, Y))

    def rename(schema):
        for node in nodes_of(schema, "log1p"):
            node.update({"__module__": "numpy", "__class__": "matlib"})

    with_predictor(path, in_skops_form(model, rename))
    monkeypatch.delitem(sys.modules, "numpy.matlib", raising=False)
    with pytest.raises(ph.ModelFileError, match=r"numpy.matlib"):
        ph.load(path)
    assert "numpy.matlib" not in sys.modules


def test_a_trusted_type_that_ends_the_program_is_an_error_and_no_end(path):
    def leave(schema):
        for node in nodes_of(schema, "log1p"):
            node.update({"__module__": "numpy.f2py.__main__", "__class__": "main"})

    with_predictor(path, in_skops_form(make_pipeline(FunctionTransformer(np.log1p).fit(X), Ridge().fit(X, Y)), leave))
    with pytest.raises(ph.ModelFileError, match=r"The predictor cannot be made"):
        ph.load(path, trusted=["numpy.f2py.__main__.main"])


def test_a_few_kilobytes_of_nested_references_are_refused_at_once(path):
    """Each level refers twice to the one before: 2 to the power of 40 parts in seven kilobytes."""
    empty = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode", "content": [], "__id__": 0}

    def again(number):
        return {"__class__": "list", "__module__": "builtins", "__loader__": "CachedNode", "__id__": number}

    levels = [empty]
    for k in range(1, 40):
        levels.append({**empty, "content": [again(k - 1), again(k - 1)], "__id__": k})

    def nest(schema):
        schema["content"]["content"]["steps"] = {**empty, "content": levels, "__id__": 99}

    with_predictor(path, in_skops_form(make_pipeline(StandardScaler(), Ridge()).fit(X, Y), nest))
    with pytest.raises(ph.ModelFileError, match=r"The predictor cannot be made"):
        ph.load(path)


def test_products_of_columns_without_end_are_refused(path):
    """All products of three of a thousand columns: a row would have a hundred million of them."""
    first = PolynomialFeatures(10).fit(X)
    second = PolynomialFeatures(3).fit(np.zeros((1, 2)))
    n = comb(first.n_output_features_ + 3, 3)
    vars(second).update({"n_features_in_": first.n_output_features_, "n_output_features_": n, "_n_out_full": n})
    with_predictor(path, in_plain_form(make_pipeline(first, second, Ridge().fit(X, Y))))
    with pytest.raises(ph.ModelFileError, match=r"a row may have 100000 columns"):
        ph.load(path)


def test_an_array_that_is_named_twice_is_refused(path):
    """Otherwise a file of one array could ask for any number of copies of it."""

    def twice(values, members):
        values["state"]["intercept_"] = values["state"]["coef_"]

    with_predictor(path, in_plain_form(Ridge().fit(X, Y), twice))
    with pytest.raises(ph.ModelFileError, match=r"is missing, or used twice"):
        ph.load(path)


def test_truth_values_that_are_no_truth_values_are_refused(path):
    frame = np.column_stack([X, (X[:, 0] > 0).astype(float)])
    model = MultiOutputRegressor(HistGradientBoostingRegressor(max_iter=2, categorical_features=[4])).fit(frame, Y)

    def spoil(values, members):
        for name, member in members.items():
            if b"'|b1'" in member[:128]:
                members[name] = member[:-1] + b"\x07"

    with_predictor(path, in_plain_form(model, spoil))
    with pytest.raises(ph.ModelFileError, match=r"neither 0 nor 1"):
        ph.load(path)


@pytest.mark.parametrize("loader", ["FunctionNode", "PartialNode", "MethodNode", "TypeNode", "ObjectNode"])
def test_nothing_is_called_that_a_file_names(loader, path):
    def call(schema):
        node = {"__class__": "system", "__module__": "os", "__loader__": loader, "__id__": 1}
        content = {"func": node, "args": node, "kwds": node, "obj": node}
        schema["content"]["content"]["alpha"] = {**node, "content": content}

    with_predictor(path, in_skops_form(Ridge().fit(X, Y), call))
    with pytest.raises(ph.ModelFileError, match=r"os.system"):
        ph.load(path)


def test_what_trusted_names_must_be_in_the_file_to_open_the_way_past_the_checks(path):
    with_predictor(path, in_skops_form(boosting(init_=LinearRegression().fit(X, Y[:, 0]))))
    with pytest.raises(ph.ModelFileError, match=r"boosting must start from zero or from a constant.*trusted="):
        ph.load(path, trusted=["sklearn.svm._classes.SVR"])


def test_a_predictor_beyond_the_checks_can_be_saved_and_loaded_by_those_who_trust_it(path):
    decider = fitted(GradientBoostingRegressor(n_estimators=2, init=LinearRegression()))
    with pytest.raises(ValueError, match=r"trusted="):
        decider.save(path)
    names = ["sklearn.multioutput.MultiOutputRegressor"]
    with pytest.raises(ValueError, match=r"holds .*HalfSquaredError.*trusted=") as caught:
        decider.save(path, trusted=names)
    names += eval(str(caught.value).split("trusted=")[1].split(" when")[0])
    decider.save(path, trusted=names)
    assert np.array_equal(ph.load(path, trusted=names).predictor_.predict(X), decider.predictor_.predict(X))


def rewritten(path, change):
    """A proper file whose description is changed, with a digest that matches again."""
    members = unpack(io.BytesIO(whole_file()))
    document = json.loads(members["model.json"])
    change(document, members)
    members["model.json"] = json.dumps(document).encode()
    path.write_bytes(pack(members))


def array_of(document, members, *keys):
    """The array at a place of the description, and how to put another in its place."""
    for key in keys:
        document = document[key]
    name = document["$array"]
    array = np.load(io.BytesIO(members[name]))

    def put(changed):
        stream = io.BytesIO()
        np.save(stream, changed)
        members[name] = stream.getvalue()

    return array, put


def changed_array(*keys, change):
    def edit(document, members):
        array, put = array_of(document, members, *keys)
        put(change(array))

    return edit


def changed(*keys, value):
    def edit(document, members):
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return edit


def sparse_constant(shape):
    """A constant of a formula that is almost empty and has this shape."""

    def edit(document, members):
        empty = {}
        for k, dtype in enumerate(("<i8", "<i8", "<f8")):
            stream = io.BytesIO()
            np.save(stream, np.zeros(0, dtype=dtype))
            members[f"arrays/more{k}.npy"] = stream.getvalue()
            empty[k] = {"$array": f"arrays/more{k}.npy"}
        constant = {"constant": {"sparse": [empty[0], empty[1], empty[2]], "shape": list(shape), "format": "csc"}}
        document["problem"]["stored"]["cost"] = {"atom": "Sum", "args": [constant], "data": [None, False]}

    return edit


def both(*changes):
    """Several changes at once."""

    def change(document, members):
        for one in changes:
            one(document, members)

    return change


STORED = ("problem", "stored")
CLAIMS = {
    "a level that no rank of so few rows reaches": (
        changed("calibrations", 0, 4, value={"$float": (1e-9).hex()}),
        r"claims what its calibration rows cannot give: alpha=1e-09 needs at least 999999999 calibration samples",
    ),
    "a level of zero": (
        changed("calibrations", 0, 4, value={"$float": "0x0p+0"}),
        "alpha must lie strictly between 0 and 1",
    ),
    "a level that is no number": (
        changed("calibrations", 0, 4, value={"$float": "nan"}),
        "alpha must lie strictly between 0 and 1",
    ),
    "fewer rows than the level needs": (changed("calibrations", 0, 1, value=3), "needs at least 9 calibration samples"),
    "a radius below every score": (
        both(
            changed("calibrations", 0, 2, value={"$float": (-9.0).hex()}),
            changed("radii", "radius", value={"$float": (-9.0).hex()}),
        ),
        "below the score of every residual",
    ),
    "a radius without end": (changed("calibrations", 0, 2, value={"$float": "inf"}), "radius must be a finite number"),
    "more calibration rows than rows": (
        both(changed("calibrations", 0, 1, value=10**6), changed("radii", "n", value=10**6)),
        "of 120 rows",
    ),
    "more calibration rows than have not trained": (
        both(changed("calibrations", 0, 1, value=110), changed("radii", "n", value=110)),
        "from 110 rows, and 60 have not trained",
    ),
    "more calibration rows than rows that nobody counted": (
        both(
            changed("calibrations", 0, 1, value=10**6),
            changed("radii", "n", value=10**6),
            changed("n_rows", value=None),
        ),
        "from 1000000 rows, and 60 have not trained",
    ),
    "a radius beside the audit trail": (changed("radii", "n", value=50), "not those of the newest entry"),
    "radii of no known kind": (changed("radii", "kind", value="wishful"), "kind 'wishful' are not known"),
    "a family of no known kind": (changed("family", value="hope"), "'hope' is not a known kind of region family"),
    "a proven bound above what was reached": (
        changed("learning", "numbers", value=[{"$float": (x).hex()} for x in (1.0, 0.1, 2.0)]),
        "no set costs less than 2, and that its own costs 1",
    ),
    "no problem at all": (lambda document, members: document.pop("problem"), "KeyError: 'problem'"),
    "a feature twice": (changed("feature_names", value=["a", "a"]), "Two features have the same name"),
    "an outcome twice": (changed(*STORED, "outcome_names", value=["a", "a"]), "outcome_names must be distinct"),
    "a digest of another kind": (changed("data_digest", value="0" * 63), "64 hexadecimal digits"),
    "a huge empty constant": (sparse_constant([10**9, 1]), "A part of a formula may have 1000000 entries"),
    "a wide empty constant": (sparse_constant([1, 10**8]), "A part of a formula may have 1000000 entries"),
    "an empty constant of huge rows and columns": (sparse_constant([10**15, 10**15]), "may have 1000000 entries"),
    "an array at two places": (
        lambda document, members: document["set"].__setitem__("b", document["set"]["W"]),
        "is missing, or used twice",
    ),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_impossible_claims_are_refused_with_the_reason(name, path):
    change, message = CLAIMS[name]
    rewritten(path, change)
    with pytest.raises(ph.ModelFileError, match=message):
        ph.load(path)


@pytest.mark.parametrize("lowest", ["radii", "other"])
def test_no_radius_of_a_category_may_be_below_every_score(lowest, path):
    rows = np.column_stack([X, np.arange(len(X)) % 2])
    calibration = ph.calibration.ByCategory(4, "marginal")
    decider = ph.RobustDecider(LINEAR, learner=_Box(), alpha=0.3, calibration=calibration, random_state=0).fit(rows, Y)
    decider.save(path)
    radii = decider.model_.radii
    low = np.where(radii.radii == radii.radii.min(), -50.0, radii.radii)
    edited = replace(radii, radii=low) if lowest == "radii" else replace(radii, radii=low, other=-50.0)
    with pytest.raises(ph.ModelFileError, match="The radius -50 is below the score of every residual"):
        check_claims(replace(decider.model_, radii=edited))
    assert ph.load(path).radius_ == decider.radius_


def test_a_level_that_no_rank_reaches_is_not_even_shown(path):
    rewritten(path, changed("calibrations", 0, 4, value={"$float": (1e-9).hex()}))
    with pytest.raises(ph.ModelFileError, match=r"claims what its calibration rows cannot give"):
        ph.inspect_model(path)


def test_json_of_more_lists_than_memory_is_refused_before_it_is_read():
    with pytest.raises(ph.ModelFileError, match=r"has more than 400000 lists"):
        parse_json(b"[" + b"[]," * 400_001 + b"1]", "model.json")


def test_a_spread_that_looks_beyond_the_columns_says_so_when_it_is_used(path, monkeypatch):
    decider = fitted()
    sizes = np.abs(Y).mean(axis=1)
    spread = ph.learners.Spread.fit(X, decider.predictor_.predict(X), sizes, min_leaf=40, seed=0)
    family = replace(decider.model_.family, spread=replace(spread, columns=np.array([0, 1, 2, 99])))
    decider.model_ = replace(decider.model_, family=family)
    monkeypatch.setattr("polyhedge.io.model._check_twin", lambda *_: None)  # others do not read back what they wrote
    decider.save(path)
    with pytest.raises(ValueError, match=r"predicted from column 99, but X has 4 columns"):
        ph.load(path).decide(X[:2])


def test_corners_that_would_not_fit_into_memory_are_not_counted_one_by_one(monkeypatch):
    """Two hundred facets can have sixty million vertices in eight dimensions: the volume is then estimated."""
    W = np.random.default_rng(0).normal(size=(200, 8))
    shape = ph.Polyhedron(W / np.linalg.norm(W, axis=1, keepdims=True), -np.ones(200))
    monkeypatch.setattr("polyhedge.sets.halfspaces.ConvexHull", lambda _: pytest.fail("corners were counted"))
    volume = shape.volume(0.0, n_samples=200)
    assert volume.standard_error > 0
    with pytest.raises(ValueError, match=r"may have more than 5000000 vertices.*fewer facets"):
        shape.vertices(0.0)


def test_few_groups_of_a_large_problem_do_not_grow_into_a_list_of_gigabytes():
    """Twelve maxima of two are 4096 pieces; of 300 decisions and outcomes each, they would take three gigabytes."""
    group = np.zeros((2, 301, 301))
    for k in range(12):
        group[1, k, k] = 1.0
    total = SumOfMaxima(np.zeros((301, 301)), tuple(np.roll(group, k, axis=1) for k in range(12)))
    assert total.n_pieces == 4096
    assert total.pieces() is None
    assert maximum_of([total]) is None


def test_a_problem_of_more_products_than_fit_into_memory_is_refused(path):
    rewritten(path, changed(*STORED, "outcome_names", value=[f"u{k}" for k in range(2_000_000)]))
    with pytest.raises(ph.ModelFileError, match=r"2 decisions, 0 auxiliary variables and 2000000 outcomes is larger"):
        ph.load(path, max_bytes=10**9)


def test_texts_that_would_all_take_the_room_of_the_longest_are_refused():
    with pytest.raises(ph.ModelFileError, match=r"may have 10000000 letters"):
        Objects(["x" * 10**6, *["y"] * 1000], (1001,), is_text=True).array(["x" * 10**6, *["y"] * 1000])


def test_a_file_does_not_choose_how_many_processes_and_threads_its_predictor_starts():
    columns = ColumnTransformer([("a", StandardScaler(), [0, 1])], n_jobs=7)
    model = make_pipeline(columns, RandomForestRegressor(2, max_depth=1, n_jobs=1)).fit(X, Y)
    model[1].n_jobs = 10**6
    twin = from_record(to_record(model))
    assert twin[0].n_jobs is None
    assert twin[1].n_jobs == os.cpu_count()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_what_has_no_end_is_refused_without_being_read(path):
    os.mkfifo(path)
    for endless in (path, Path("/dev/zero")):
        for look in (ph.load, ph.inspect_model):
            with pytest.raises(ph.ModelFileError, match=r"is a pipe or a device\. Copy what it holds to a file"):
                look(endless)
    with Path("/dev/zero").open("rb") as stream, pytest.raises(ph.ModelFileError, match="not a whole polyhedge model"):
        unpack(stream)
