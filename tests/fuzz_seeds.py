"""Whole models of all kinds for the fuzzer to start from, each with rows to decide for beside it."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import cvxpy as cp
import numpy as np
import pandas as pd
import skops.io
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import polyhedge as ph
from polyhedge.calibration import ByCategory, Online, Recent, ThisModel, Weighted
from polyhedge.io.archive import pack, unpack
from polyhedge.planning import DevelopmentRows, PolicyReport, ScenarioPolicy
from polyhedge.planning.costs import PlanningProblem
from polyhedge.planning.policies import Rule, fit_planner
from polyhedge.planning.report import Entry
from polyhedge.planning.residual_distributions import fit_distribution
from polyhedge.planning.risk import Risk
from polyhedge.predictors.raw_columns import Column, Schema
from polyhedge.predictors.selection import make_predictor
from polyhedge.regions import CostGuard

X, Y = ph.data.make_synthetic(160, rng=np.random.default_rng(0))
FEW = 60
LINEAR = ph.problems.simplex_linear([-0.08, 0.0])
SCHEMA = Schema((Column("a", "number", True), Column("b", "number"), Column("kind", "category")), ("y1", "y2"))
FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": [f"k{i % 34}" for i in range(160)]})


RAW = FRAME.assign(
    a=FRAME["a"].where(np.arange(160) % 7 > 0),
    kind=[f"k{i % 4}" for i in range(160)],
    day=pd.date_range("2024-01-01", periods=160, freq="7h"),
    is_open=np.arange(160) % 3 > 0,
)


class Given:
    """A learner that returns a set it was given."""

    def __init__(self, shape: object) -> None:
        self.shape = shape

    needs = ph.learners.Needs()

    def learn(self, samples, random_state=None):
        return ph.learners.LearnResult(self.shape, np.nan, ph.Status.OPTIMAL, 0.0, detail="given")


BOX = Given(ph.Box([1.0, 1.3]).as_polyhedron())


def constrained() -> ph.DecisionProblem:
    """Everything that a problem can have: two variables, whole units, uncertain constraints, a known support."""
    z, y = cp.Variable(2, nonneg=True, name="z"), cp.Variable(integer=True, name="y")
    return ph.DecisionProblem(
        decision={"z": z, "y": y},
        cost=lambda v, u: cp.sum(v["z"]) + cp.square(v["z"][0]) + cp.maximum(u @ v["z"], 0.1 * v["y"]),
        constraints=[z <= 40, y >= 0, y <= 3, cp.norm(z, 2) <= 50],
        n_outcomes=2,
        uncertain_constraints=lambda v, u: [v["z"] >= u, 0.01 * cp.square(v["z"][1]) - 100 <= u[1]],
        outcome_support=lambda u: [u >= -50, u <= 50],
    )


def curved() -> ph.DecisionProblem:
    z = cp.Variable(2, nonneg=True)
    P = np.array([[2.0, 0.3], [0.3, 1.0]])
    return ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum_squares(z) - cp.square(u[0]) + u @ z + cp.quad_form(z, P),
        constraints=[cp.sum(z) == 1],
        n_outcomes=2,
    )


def apart() -> ph.DecisionProblem:
    """A newsvendor whose cost is separable."""
    return ph.problems.newsvendor(1.0, 3.0, 2, capacity=5.0, nonnegative_demand=False)


def shop(*, whole: bool = False) -> ph.DecisionProblem:
    """A newsvendor that two rows couple, so that its policies need a program a row."""
    z = cp.Variable(2, integer=whole)
    return ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(cp.pos(z - u) + 3 * cp.pos(u - z)),
        constraints=[z >= 0, z <= 4, cp.sum(z) <= 5, z[0] <= 3 + z[1]],
        n_outcomes=2,
    )


def charge() -> ph.DecisionProblem:
    """A cost of one piece over decisions that do not lie on a segment."""
    z = cp.Variable(2, nonneg=True)
    return ph.DecisionProblem(
        decision=z, cost=lambda z, u: u @ z, constraints=[z <= 1, cp.sum(z) >= 0.5, cp.sum(z) <= 1.5], n_outcomes=2
    )


def stocked() -> ph.DecisionProblem:
    """A newsvendor whose stock and price are told with each call."""
    z, stock, price = (
        cp.Variable(2, nonneg=True),
        cp.Parameter(2, name="stock", nonneg=True),
        cp.Parameter(name="price"),
    )
    return ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: price * cp.sum(z) + cp.max(cp.hstack([3 * (u - z - stock), z + stock - u])),
        constraints=[z + stock <= 5],
        n_outcomes=2,
    )


STATE = {"stock": [0.1, 0.3], "price": 0.5}


def covering() -> ph.DecisionProblem:
    """Amounts whose uncertain contents must suffice: planned along a path."""
    return ph.DecisionProblem(
        decision=cp.Variable(2, nonneg=True),
        cost=lambda z, u: 2 * cp.sum(z) + 0.3 * (u @ z),
        constraints=[],
        uncertain_constraints=lambda z, u: [u @ z >= -3, z[0] + u[1] >= -2, z <= 9],
        n_outcomes=2,
    )


def write_seeds(folder: Path, *, selections: bool = False) -> None:
    """One file a kind of predictor, set, plan, calibrator and problem; with `selections` those too that need
    seconds."""
    write_sets(folder)
    write_plans(folder)
    write_stateful(folder)
    if selections:
        write_selections(folder)
    write_calibrators(folder)


def write_plans(folder: Path) -> None:
    """A guard of each way to plan, and a raw frame."""
    save(folder, "plan_line", planned(LINEAR))
    shops = {"shop": shop(), "whole": shop(whole=True), "apart": apart()}
    for name, problem in {**shops, "charge": charge(), "curved": curved()}.items():
        save(folder, f"policy_{name}", without_selection(problem))
    save(folder, "plan_set", planned(LINEAR, learner=BOX))
    save(folder, "raw", ph.RobustDecider(LINEAR, "auto", learner=BOX, random_state=0).fit(RAW[:90], Y[:90]), RAW)


def write_stateful(folder: Path) -> None:
    """A problem with parameters, decided by a set and by its guard."""
    for guarantee in ("outcome", "cost"):
        write_stocked(folder, f"state_{guarantee}", guarantee=guarantee, learner=BOX)


def write_selections(folder: Path) -> None:
    """Policies that a selection chose: with parameters, and along a path."""
    write_stocked(folder, "state_law", guarantee="cost")
    save(folder, "path", planned(covering()))


def write_stocked(folder: Path, name: str, **settings: object) -> None:
    decider = ph.RobustDecider(stocked(), Ridge(), alpha=0.3, random_state=0, **settings)
    save(folder, name, decider.fit(X[:FEW], Y[:FEW], parameters=STATE), parameters=STATE)


def write_calibrators(folder: Path) -> None:
    """Radii of each kind, of sets and of guards."""
    kinds = np.column_stack([X, np.arange(160) % 2, 1.0 + np.arange(160) % 3])
    by_column = {"by_category": ByCategory(4, "marginal"), "weighted": Weighted(5)}
    for name, calibrator in by_column.items():
        save(folder, name, planned(LINEAR, kinds, calibration=calibrator, learner=BOX), kinds)
    ratio = Weighted(density_ratio="logistic", target=X + 0.1)
    others = {
        "ratio": ratio,
        "recent": Recent(40),
        "this_model": ThisModel(),
        "tracking": Online(0.05, follow="radius"),
    }
    for name, calibrator in others.items():
        save(folder, name, fitted(predictor=Ridge(), calibration=calibrator, split="time"))
    online = fitted(predictor=Ridge(), calibration=Online(window=60))
    online.update(X[:20], Y[:20])
    save(folder, "online", online)
    in_time = fitted(predictor=Ridge(), split=ph.data.TimeSplit(0, gap=0.001))
    in_time.refresh(X[:80] + 1, Y[:80]).update(X[:20], Y[:20] * 9)
    save(folder, "in_time", in_time)


def planned(problem: ph.DecisionProblem, X: object = X, **settings: object) -> ph.RobustDecider:
    """Few rows, so that a selection takes little time."""
    decider = ph.RobustDecider(problem, Ridge(), guarantee="cost", alpha=0.3, random_state=0, **settings)
    return decider.fit(X[:FEW], Y[:FEW])


def without_selection(problem: ph.DecisionProblem) -> ph.RobustDecider:
    """Two rules, or one of whole decisions, with forests for their distribution, at the price of no selection."""
    decider = planned(LINEAR, learner=BOX)
    predictor, record = decider.predictor_, decider.model_.record
    centers, values, seen = predictor.predict(X[:FEW]), np.zeros((FEW, 0)), PlanningProblem(problem)
    distribution = fit_distribution("scaled", DevelopmentRows(X[:FEW], centers, Y[:FEW], values, np.arange(FEW) % 3), 0)
    rules = [Rule("scaled", Risk(0.5))] if seen.is_integer else [Rule(), Rule("scaled")]
    planners = tuple(
        fit_planner(seen, rule, distribution if rule.distribution else None, X[:20], centers[:20], values[:20])
        for rule in rules
    )
    weights = (1 / len(rules),) * len(rules)
    report = PolicyReport(tuple(Entry(str(r), 3.0, 2.0, w) for r, w in zip(rules, weights, strict=True)), 0.3, 0.5, FEW)
    policy = ScenarioPolicy(problem, planners, weights, distribution, 0.5, report)
    family = CostGuard(problem, predictor, policy)
    decider.model_ = replace(decider.model_, family=family, record=replace(record, learn_result=None))
    # Each row is planned for: these are enough for a radius at alpha = 0.3.
    return decider.recalibrate(X[FEW : FEW + 15], Y[FEW : FEW + 15])


def write_sets(folder: Path) -> None:
    """One file a kind of predictor, set and problem."""
    news = ph.problems.newsvendor(0.3, [0.7, 0.5], 2, capacity=3.0, nonnegative_demand=False)
    save(folder, "balls", fitted(news, learner=Given(ph.Ball(2, norm=1))))
    save(folder, "constrained", fitted(constrained()))
    save(folder, "curved", fitted(curved(), learner=Given(ph.Ellipsoid([[2.0, 0.3], [0.3, 1.0]], [0.1, 0.2]))))
    save(folder, "union", fitted(news, learner=Given(ph.sets.UnionOfBalls([[0.0, 0.1], [0.3, 0.2], [-1.0, 1.0]]))))
    scaled = fitted(predictor=None)
    sizes = np.abs(Y).mean(axis=1)
    spread = ph.learners.Spread.fit(X, scaled.predictor_.predict(X), sizes, min_leaf=40, seed=0)
    scaled.model_ = replace(scaled.model_, family=replace(scaled.model_.family, spread=spread))
    save(folder, "spread", scaled)
    forest = fitted(predictor=RandomForestRegressor(3, max_depth=3))
    save(folder, "forest", forest)
    save(folder, "boosting", fitted(predictor=GradientBoostingRegressor(n_estimators=3, max_depth=2)))
    kinds = np.column_stack([X, np.arange(160) % 5])
    hist = HistGradientBoostingRegressor(max_iter=3, max_depth=3, categorical_features=[4])
    save(folder, "hist", fitted(predictor=hist, X=kinds), kinds)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), PolynomialFeatures(2), PCA(5), Ridge()), {"ridge__alpha": [1]}
    )
    save(folder, "search", fitted(predictor=search))
    save(folder, "network", fitted(predictor=MLPRegressor(hidden_layer_sizes=(3,), max_iter=5000, tol=1e-2)))
    gappy = FRAME.assign(a=FRAME["a"].where(np.arange(160) % 7 > 0))
    for name in ("ridge", "boosting"):
        save(folder, f"table_{name}", fitted(predictor=make_predictor(name, SCHEMA, random_state=0), X=gappy), FRAME)
    older(folder, "forest", forest.predictor_.model)
    older(folder, "hist", None)


def fitted(problem=LINEAR, predictor="precomputed", learner=BOX, X=X, **settings):
    X = Y * 0.8 if isinstance(predictor, str) else X
    return ph.RobustDecider(problem, predictor, learner=learner, random_state=0, **settings).fit(X, Y)


def save(folder: Path, name: str, decider: ph.RobustDecider, rows: object = X, parameters: object = None) -> None:
    decider.save(folder / f"{name}.polyhedge", {"n": [1]})
    rows = Y * 0.8 if decider.predictor == "precomputed" else rows
    few = rows.iloc[:3] if hasattr(rows, "iloc") else rows[:3]
    columns = list(few.columns) if hasattr(few, "columns") else None
    dates = [] if columns is None else list(few.select_dtypes("datetime").columns)
    values = few.astype(dict.fromkeys(dates, str)).to_numpy().tolist() if columns else few.tolist()
    beside = {"columns": columns, "dates": dates, "rows": values, "outcomes": Y[:3].tolist()}
    beside["parameters"] = parameters
    (folder / f"{name}.json").write_text(json.dumps(beside))


def older(folder: Path, name: str, model: object) -> None:
    """The same model as the format version 2 holds it."""
    with (folder / f"{name}.polyhedge").open("rb") as stream:
        members = unpack(stream)
    model = ph.load(folder / f"{name}.polyhedge").predictor_.model if model is None else model
    with zipfile.ZipFile(io.BytesIO(skops.io.dumps(model))) as archive:
        schema = {f"predictor/{each}": archive.read(each) for each in archive.namelist()}
    own = {each: member for each, member in members.items() if not each.startswith("predictor")}
    document = json.loads(own["model.json"])
    document["schema"] = 2
    document["alpha"] = document["calibrations"][0].pop()
    own["model.json"] = json.dumps(document).encode()
    (folder / f"older_{name}.polyhedge").write_bytes(pack({**own, **schema}))
    (folder / f"older_{name}.json").write_text((folder / f"{name}.json").read_text())
