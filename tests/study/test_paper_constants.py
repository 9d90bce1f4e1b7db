"""The study's tasks, splits and trainings have the constants that the paper prints, and those of our readings."""

from __future__ import annotations

import inspect
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from polyhedge.data import load_energy_efficiency
from polyhedge.learners import Samples
from polyhedge_study import make_task, synthetic_task
from polyhedge_study.baselines.pcp import N_ANCHORS, N_DROPPED
from polyhedge_study.baselines.picnn_network import Contacts, initial_parameters, make_step
from polyhedge_study.commands import reproduce
from polyhedge_study.learners.miqcp import MIQCP
from polyhedge_study.methods import METHODS
from polyhedge_study.paper import paper_table1
from polyhedge_study.scaling_methods import ScalingSettings
from polyhedge_study.sensitivity import SensitivitySettings
from polyhedge_study.study import StudySettings
from polyhedge_study.theory_runs import TheorySettings

PARTS = ("train", "learn", "calibrate", "test")


def cost(task: str, z: list[float], u: list[float]) -> float:
    return float(make_task(task, 0).problem.evaluate(np.array([z]), np.array([u]))[0])


def sizes(task: str) -> tuple[int, ...]:
    return tuple(len(make_task(task, 0).rows(part)[1]) for part in PARTS)


def default(command: str, option: str) -> object:
    return inspect.signature(getattr(reproduce, command)).parameters[option].default


def learned(learner: Any) -> Any:
    residuals = np.random.default_rng(0).normal(size=(40, 2))
    samples = Samples(residuals, 0 * residuals, make_task("linear", 0).problem, 0.1)
    return learner.learn(samples, random_state=0).set


def learner(key: str) -> Any:
    return METHODS[key].run.keywords["learner"]


def facets_of_pinball() -> int:
    """The number that gives the same set; far facets that only keep it bounded come on top."""
    short = replace(learner("pinball"), n_steps=2, n_starts=1)
    return next(k for k in range(3, 9) if np.array_equal(learned(replace(short, n_facets=k)).W, learned(short).W))


def widths() -> tuple[int, ...]:
    shapes = {name: value.shape for name, value in initial_parameters(4, 2, np.random.default_rng(0)).items()}
    assert shapes["A1"] == (64, 2)  # the first hidden layer reads the residual
    return shapes["C2"]


# What the paper prints, in its words, and where the study has it.
PRINTED = {
    "linear, quadratic, energy: c = (-0.08, 0)": (
        [-0.08, 0.0] * 2,
        lambda: [cost(task, z, [0.0, 0.0]) for task in ("linear", "energy") for z in ([1.0, 0.0], [0.0, 1.0])],
    ),
    "linear: (c + u)'z": (0.25 * (3.0 - 0.08) + 0.75 * 5.0, lambda: cost("linear", [0.25, 0.75], [3.0, 5.0])),
    "quadratic: beta = 0.08, (z_1 - z_2)^2": (
        [-0.08 + 0.08, 0.08, -0.04, 0.25 * 2.92 + 0.75 * 5.0 + 0.08 * 0.5**2],
        lambda: [
            cost("quadratic", z, u)
            for z, u in (
                ([1.0, 0.0], [0.0, 0.0]),
                ([0.0, 1.0], [0.0, 0.0]),
                ([0.5, 0.5], [0.0, 0.0]),
                ([0.25, 0.75], [3.0, 5.0]),
            )
        ],
    ),
    "newsvendor: c_o = 0.3 for each unit too many": (0.3, lambda: cost("newsvendor", [1.0, 0.0], [0.0, 0.0])),
    "newsvendor: c_u = 0.7 for each unit too few": (0.7 * 3, lambda: cost("newsvendor", [0.0, 1.0], [2.0, 2.0])),
    "synthetic: 1200, 300, 300 and 1000 samples": (
        [(1200, 300, 300, 1000)] * 3,
        lambda: [sizes(task) for task in ("linear", "quadratic", "newsvendor")],
    ),
    "synthetic, in the tables": ((1200, 300, 300, 1000), lambda: StudySettings().sizes),
    "energy: 320, 160, 144 and 144 of 768": ((320, 160, 144, 144), lambda: sizes("energy")),
    "Bonferroni, boxes, balls and PCP calibrate on the pool of 600": (
        {"pooled"},
        lambda: {METHODS[key].calibrated_on for key in ("bonferroni", "l-inf", "l-2", "pcp")},
    ),
    "alpha = 0.10": (
        {0.1},
        lambda: {
            default("tables", "alpha"),
            *(s().alpha for s in (StudySettings, ScalingSettings, SensitivitySettings, TheorySettings)),
        },
    ),
    "five seeds": ({5}, lambda: {default("tables", "seeds"), default("scaling", "seeds"), ScalingSettings().seeds}),
    "K = 4 half-planes for all polyhedral sets": (
        {4},
        lambda: {
            MIQCP().n_facets,
            facets_of_pinball(),
            *(len(learned(learner(key)).b) for key in ("grid", "polyhedron", "min-size")),
        },
    ),
    "F-CROMS (10) and (20)": (
        [10, 20],
        lambda: [METHODS[f"f-croms-{n}"].run.keywords["n_candidates"] for n in (10, 20)],
    ),
    "Table 1: n and the relative tolerance": (
        (tuple(row.n for row in paper_table1()), 1e-4),
        lambda: (ScalingSettings().sizes, ScalingSettings().tolerance),
    ),
    "Table 1: the same other splits": (
        (1200, 300, 1000),
        lambda: tuple(getattr(ScalingSettings(), f"n_{part}") for part in ("train", "calibrate", "test")),
    ),
    "PICNN: two hidden layers of width 64": ((64, 64), widths),
    "reading: PCP keeps 20 of 22 draws": ((20, 2), lambda: (N_ANCHORS, N_DROPPED)),
}


@pytest.mark.parametrize("what", PRINTED)
def test_constant_is_the_printed_one(what):
    printed, here = PRINTED[what]
    found = here()
    if isinstance(printed, (set, tuple)) or (isinstance(printed, list) and isinstance(printed[0], tuple)):
        assert found == printed
    else:
        assert found == pytest.approx(printed, abs=1e-12)


@pytest.mark.parametrize("task", ["linear", "energy"])
def test_parts_are_disjoint_and_together_all_rows(task):
    drawn = make_task(task, 3)
    rows = np.concatenate([drawn.split.train, drawn.split.learn, drawn.split.calibrate, drawn.test])
    assert np.array_equal(np.sort(rows), np.arange(len(drawn.Y)))


@pytest.mark.parametrize(("task", "stream"), [("linear", 0), ("quadratic", 0), ("newsvendor", 1)])
def test_synthetic_rows_follow_the_printed_model_and_our_reading_of_its_noise(task, stream):
    drawn, rng = synthetic_task(7, task), np.random.default_rng([stream, 7])
    n = len(drawn.Y)
    X = rng.standard_normal((n, 4))
    x1, x2, x3, x4 = X.T
    mean = np.column_stack([0.75 * x1 + 0.35 * np.sin(x2) - 0.20 * x3, -0.45 * x1 + 0.55 * x2**2 + 0.30 * x4])
    scale = 0.80 + 0.45 / (1 + np.exp(-x1))
    # Readings: the root covariance, one contaminated row in 6 %, the size and the law of what is added to it.
    gaussian = scale[:, None] * (rng.standard_normal((n, 2)) @ np.array([[0.26, 0.08], [0.08, 0.13]]))
    contaminated = rng.random((n, 1)) < 0.06
    heavy = 0.40 * rng.standard_t(3.0, (n, 2))
    assert np.array_equal(drawn.X, X)
    np.testing.assert_allclose(drawn.Y, mean + gaussian + contaminated * heavy, atol=1e-12)


def test_energy_is_z_scored_with_the_training_rows():
    drawn, data = make_task("energy", 1), load_energy_efficiency()
    for found, raw in ((drawn.X, data.X), (drawn.Y, data.Y)):
        train = raw[drawn.split.train]
        assert found == pytest.approx((raw - train.mean(axis=0)) / train.std(axis=0), abs=1e-12)


@pytest.mark.parametrize(("task", "n_features"), [("linear", 9), ("newsvendor", 9), ("energy", 13)])
def test_predictor_is_the_printed_ridge_on_the_printed_features(task, n_features):
    drawn = make_task(task, 0)
    X, Y = drawn.rows("train")
    phi = np.column_stack([np.ones(len(X)), X, X[:, 0] ** 2, X[:, 1] ** 2, np.sin(X[:, 0]), np.sin(X[:, 1])])
    B = np.linalg.solve(phi.T @ phi + 1e-3 * np.eye(n_features), phi.T @ Y)
    np.testing.assert_allclose(drawn.predictor.fit(X, Y).coef_.T, B, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("key", "passes"), [("picnn", 200), ("picnn-steps", 0)])
def test_a_picnn_sees_every_learning_row_in_each_of_200_epochs_and_the_short_row_has_200_steps(
    key, passes, monkeypatch
):
    module, seen, rates = import_module("polyhedge_study.baselines.picnn"), [], []

    def look(envelopes, nets, residuals, centers, outcomes, rows, *rest):
        seen.append(rows)
        no = np.zeros((1, 64))
        return 0.0, Contacts(np.zeros(1, dtype=int), residuals[:1], np.zeros(1), no, no)

    def stay(rate):
        rates.append(rate)
        return lambda parameters: None, lambda parameters, state, *rest: (parameters, state)

    monkeypatch.setattr(module, "objective", look)
    monkeypatch.setattr(module, "make_step", stay)
    METHODS[key].run(synthetic_task(0, "linear", sizes=(60, 40, 40, 3)), 0.1, 0)
    assert rates == [1e-2]
    assert {len(rows) for rows in seen} == ({32, 8} if passes else {32})
    if passes:
        each = np.concatenate(seen).reshape(passes, 40)
        assert (np.sort(each, axis=1) == np.arange(40)).all()
    else:
        assert len(seen) == 200


@pytest.mark.needs("jax", "optax")
def test_a_picnn_is_trained_by_adam_whose_first_step_has_the_length_of_its_rate():
    parameters, ones = initial_parameters(3, 2, np.random.default_rng(0)), np.ones((1, 64))
    begin, step = make_step(1e-2)
    contact = Contacts(np.zeros(1, dtype=int), np.ones((1, 2)), np.ones(1), ones, ones)
    moved, _ = step(parameters, begin(parameters), np.ones((1, 3)), contact, 1.0)
    length = np.abs(np.asarray(moved["A1"]) - parameters["A1"])
    assert length[length > 0] == pytest.approx(1e-2, rel=1e-3)
    assert (length > 0).any()
