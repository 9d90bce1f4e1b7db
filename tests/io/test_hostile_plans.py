"""Policies, forests and calibrators in model files: what no fit can have made is refused, and costs no time or
memory."""

from __future__ import annotations

import io
import json
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import fuzz_seeds as seeds
import polyhedge as ph
from polyhedge.calibration import ByCategory, CategoryRadii, Online, OnlineRadii, Recent, Rows, ThisModel, Weighted
from polyhedge.calibration.this_model import this_model_minimum, this_model_rank
from polyhedge.calibration.weighted_rank import WeightedScores
from polyhedge.io.archive import pack, unpack
from polyhedge.io.encode import encode
from polyhedge.planning import policy_from


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("policies")
    seeds.save(where, "shop", seeds.without_selection(seeds.shop()))
    seeds.save(where, "set", seeds.planned(seeds.LINEAR, learner=seeds.BOX))
    return where


def rewritten(folder: Path, name: str, *place: object, value: object) -> Path:
    """A proper file with another value at one place of its description; arrays become members of their own."""
    members = unpack(io.BytesIO((folder / f"{name}.polyhedge").read_bytes()))
    document = json.loads(members["model.json"])
    owner = document
    for key in place[:-1]:
        owner = owner[key]
    text, arrays = encode(value)
    renamed = {member.replace("arrays/", "arrays/new_"): content for member, content in arrays.items()}
    owner[place[-1]] = json.loads(text.replace(b"arrays/", b"arrays/new_"))
    path = folder / "rewritten.polyhedge"
    path.write_bytes(pack({**members, **renamed, "model.json": json.dumps(document).encode()}))
    return path


SPREAD, CUTS, RULES = (
    ("policy", "distributions", 0, "spread"),
    ("policy", "planners", 1, "cuts"),
    ("policy", "planners"),
)
ENTRY = ("policy", "report", "entries", 0)
RULE = {"distribution": None, "risk": 0.0, "weight": 1e-9, "cuts": None, "starts": np.zeros((0, 1))}
REFUSED = {
    "a million trees": ((*SPREAD, "roots"), np.zeros(10**6, dtype=int), "may have 64 trees, got 1000000"),
    "children that are not there": ((*SPREAD, "left"), np.full(3, 10**9), "arrays of one length"),
    "a depth that is no count": ((*SPREAD, "depth"), 3.0, "depth must be an integer of at least 0"),
    "a huge depth": ((*SPREAD, "depth"), 10**9, "a small depth"),
    "one column a million times": ((*SPREAD, "columns"), np.zeros(4, dtype=int), "each of its columns once"),
    "fills of two dimensions": ((*SPREAD, "fill"), np.zeros((6, 6)), "one value that fills its gaps"),
    "residuals without an outcome": (
        ("policy", "distributions", 0, "points"),
        np.zeros((5, 1)),
        "residuals of 2 outcomes",
    ),
    "whole residuals": (
        ("policy", "distributions", 0, "points"),
        np.zeros((5, 2), dtype=int),
        "at most 3000 residuals",
    ),
    "too many residuals": (("policy", "distributions", 0, "points"), np.zeros((3001, 2)), "at most 3000 residuals"),
    "a distribution of another name": (("policy", "distributions", 0, "name"), "mine", "a known name"),
    "a forest that its law does not know": (("policy", "distributions", 0, "name"), "uniform", "as its name says"),
    "cuts of another size": ((*CUTS, "A"), np.zeros((2, 9)), "fit the decisions and outcomes"),
    "more terms than the cost has": ((*CUTS, "term"), None, "one term of the cost"),
    "whole slopes": ((*CUTS, "B"), None, "Cuts must be numbers"),
    "starts of another size": ((*RULES, 1, "starts"), np.zeros((2, 9)), "must be rows of 3 numbers"),
    "no cuts": (CUTS, None, "A rule must have cuts"),
    "a tail of nothing": ((*RULES, 1, "risk"), 1.0, r"must lie in \[0, 1\)"),
    "a hundred rules": (RULES, [RULE] * 100, "at most 2 distributions, and 20 rules"),
    "a level that is no number": (("policy", "level"), float("nan"), "level of a planned cost must lie"),
    "a level beyond all": (("policy", "level"), 1.5, "level of a planned cost must lie"),
    "a bound in words": ((*ENTRY, "bound"), "much", "could not convert string to float"),
    "no bound": ((*ENTRY, "bound"), None, "must be a string or a real number"),
    "shares beyond all": ((*ENTRY, "share"), 7.0, "must add up to 1"),
    "nothing scored": (("policy", "report", "n_scored"), 0, "n_scored must be an integer of at least 1"),
    "no selection": (("policy", "report", "entries"), [], "1 to 100 entries, got 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_that_no_fit_can_have_made_is_refused(name, folder):
    place, value, message = REFUSED[name]
    if value is None and place[-1] in ("term", "B"):
        cuts = ph.load(folder / "shop.polyhedge").model_.family.policy.planners[1].cuts
        value = np.arange(len(cuts)) if place[-1] == "term" else np.zeros(cuts.B.shape, dtype=int)
    path = rewritten(folder, "shop", *place, value=value)
    with pytest.raises(ph.ModelFileError, match=message):
        ph.load(path)


@pytest.mark.parametrize("radius", [float("nan"), float("-inf"), -1e9])
def test_a_set_that_plans_at_a_radius_where_it_is_empty_is_refused(radius, folder):
    path = rewritten(folder, "set", "policy", "radius", value=radius)
    with pytest.raises(ph.ModelFileError, match=r"is below the score of every residual|cannot be computed"):
        ph.load(path)


def test_a_forest_whose_nodes_lead_in_a_circle_still_ends(folder):
    forest = ph.load(folder / "shop.polyhedge").model_.family.policy.distribution.spread
    path = rewritten(folder, "shop", *SPREAD, "left", value=np.zeros(len(forest.left), dtype=int))
    assert len(ph.load(path).decide(seeds.X[:3])) == 3


def test_a_plan_of_whole_decisions_is_not_a_mean_of_two(folder):
    state = ph.load(folder / "shop.polyhedge").model_.family.policy.state()
    with pytest.raises(ValueError, match="a mean of integers need not be an integer"):
        policy_from(seeds.shop(whole=True), state)


def test_no_share_of_unlucky_models_takes_long_to_rank():
    """Calls too close for floats are settled in whole numbers, which for many rows would take hours."""
    began = time.process_time()
    assert this_model_minimum(1e-9, 0.05) == pytest.approx(np.log(0.05) / np.log1p(-1e-9), rel=1e-8)
    near = float(stats.binom.sf(90_500, 100_000, 0.9))
    assert this_model_rank(100_000, 0.1, near) in (90_501, 90_502)
    state = ThisModel().calibrate(np.arange(300.0), Rows(None, 300), 0.1).state()
    with pytest.raises(ValueError, match=r"needs at least 2995732\d+ calibration samples, got 300"):
        type(ThisModel().calibrate(np.arange(300.0), Rows(None, 300), 0.1)).from_state({**state, "alpha": 1e-9})
    assert time.process_time() - began < 1


def test_the_fewest_rows_for_this_very_model_are_the_same_by_both_ways_of_counting():
    for delta in (0.05, 0.3):
        for alpha in (0.0012, 0.002):
            n = this_model_minimum(alpha, delta)
            assert (1 - alpha) ** n <= delta * (1 + 1e-9)
            assert (1 - alpha) ** (n - 1) > delta * (1 - 1e-9) or n == np.ceil(1 / alpha) - 1


def test_weights_that_cannot_be_added_exactly_in_a_little_memory_are_refused():
    many = 4_000_000
    with pytest.raises(ValueError, match=r"take too much memory to be added exactly.*fewer rows"):
        WeightedScores(np.zeros(many), np.full(many, 0.1)).radii([1.0], 0.1)


def test_radii_of_categories_are_one_number_each():
    X = np.repeat([[0.0], [1.0]], 20, axis=0)
    radii = ByCategory(0).calibrate(np.arange(40.0), Rows(X, 40), 0.1)
    with pytest.raises(ValueError, match=r"one radius and one number of rows for each category"):
        type(radii).from_state({**radii.state(), "radii": np.zeros((2, 1))})


def test_recent_rows_that_weigh_too_little_for_a_radius_are_refused():
    radii = Recent(50).calibrate(np.arange(200.0), Rows(None, 200), 0.1)
    assert type(radii).from_state(radii.state()) == radii
    with pytest.raises(ValueError, match=r"200 rows with half_life=2 have no finite radius"):
        type(radii).from_state({**radii.state(), "half_life": 2.0})


def test_weights_of_all_sizes_are_added_without_an_error():
    rng = np.random.default_rng(0)
    for size in (1.0, 10.0, 200.0):
        weights = np.exp(size * rng.normal(size=30))
        radii = Weighted(0).calibrate(np.arange(30.0), Rows(weights[:, None], 30), 0.3)
        exact = [float(radii.at(Rows(np.array([[w]]), 1))[0]) for w in weights[:5]]
        for weight, radius in zip(weights[:5], exact, strict=True):
            total = np.sum(weights) + weight
            below = np.sum(weights[: int(radius)]) if np.isfinite(radius) else np.sum(weights)
            assert below < 0.7 * total * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_the_radius_of_all_rows_that_calibration_gives_fits_those_of_its_categories(seed):
    rng = np.random.default_rng(seed)
    labels = rng.choice(rng.integers(2, 7), size=int(rng.integers(12, 90)))
    scores = np.round(rng.normal(size=len(labels)) + rng.normal(size=7)[labels], int(rng.integers(0, 4)))
    alpha = float(rng.choice([0.1, 0.25, 0.5]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            radii = ByCategory(0, "marginal").calibrate(scores, Rows(labels[:, None], len(labels)), alpha)
        except ValueError:
            return  # too few rows in each of them
    assert CategoryRadii.from_state(radii.state()).other == radii.other
    with pytest.raises(ValueError, match="of all rows does not fit those of the categories"):
        CategoryRadii.from_state(
            {**radii.state(), "counts": [len(labels)], "radii": radii.radii[:1], "other": -1e9} | {"categories": ["a"]}
        )
    with pytest.raises(ValueError, match="must be finite"):
        CategoryRadii.from_state({**radii.state(), "other": -np.inf})


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("settings", [("auto", None, "level"), (0.3, 15, "level"), (0.05, None, "radius")])
def test_counts_of_online_radii_add_up_whatever_came(settings, seed):
    rng = np.random.default_rng(seed)
    radii = Online(*settings).calibrate(rng.normal(size=40), Rows(None, 40), 0.2)
    scores = rng.normal(size=80) + rng.choice([-3.0, 0.0, 4.0])
    issued = np.where(rng.uniform(size=80) < 0.2, np.inf, rng.normal(size=80))
    later = radii.updated(np.where(rng.uniform(size=80) < 0.1, np.inf, scores), issued if seed % 2 else None)
    state = later.state()
    twin = OnlineRadii.from_state(state)
    assert (twin.n_rows, twin.n_missed, twin.radius) == (80, later.n_missed, later.radius)
    with pytest.raises(ValueError, match="do not add up"):
        OnlineRadii.from_state({**state, "n_missed": 81})
    with pytest.raises(ValueError, match="do not add up"):
        OnlineRadii.from_state({**state, "n_rows": 0})
    if settings[0] != "auto":
        with pytest.raises(ValueError, match="The level is not where the misses have moved it"):
            OnlineRadii.from_state({**state, "levels": state["levels"] + 0.01})
