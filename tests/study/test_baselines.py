"""The baselines of the study: exact where they are closed forms, valid where they promise coverage."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import stats

from polyhedge.calibration import conformal_rank, coverage_law
from polyhedge.estimator import RobustDecider
from polyhedge.learners import PcaBox
from polyhedge.problems import simplex_linear, simplex_newsvendor, simplex_quadratic
from polyhedge.robust import decide
from polyhedge.sets import Ball, Polyhedron
from polyhedge_study import synthetic_task
from polyhedge_study.baselines import (
    bonferroni_box,
    conformal_ellipsoid,
    conformal_l_2,
    conformal_l_inf,
    f_croms,
    nominal,
    oracle,
    pcp,
    picnn,
    sample_average,
)
from polyhedge_study.baselines.f_croms import full_conformal_radii, select
from polyhedge_study.baselines.fitted import fit_predictor
from polyhedge_study.baselines.frames import random_frames, worst_case_costs
from polyhedge_study.baselines.pcp import N_ANCHORS, N_DROPPED, draw_anchors
from polyhedge_study.baselines.picnn import mean_volume, objective, train
from polyhedge_study.baselines.picnn_loss import AlongLines, AlongSegment, planar_envelopes
from polyhedge_study.baselines.picnn_network import contact_arrays, gradient, initial_parameters, networks
from polyhedge_study.baselines.picnn_programs import ByPrograms
from polyhedge_study.baselines.references import _average_by_cuts, decide_on_average
from polyhedge_study.baselines.union_of_frames import UnionOfFrames
from polyhedge_study.hull_volume import hull_volume, hull_volume_of_shape
from polyhedge_study.measure import least_mean, measure_set
from polyhedge_study.nets.net_decisions import guarded_sets

ALPHA = 0.1
SMALL = (200, 60, 60, 40)
POOLED = {
    "Bonferroni box": bonferroni_box,
    "l_inf": conformal_l_inf,
    "l_2": conformal_l_2,
    "PCP": pcp,
    "PCP plain": partial(pcp, variant="plain"),
    "PCP redraw": partial(pcp, variant="redraw"),
}
CONFORMAL = POOLED | {
    "ellipsoid": conformal_ellipsoid,
    "F-CROMS (10)": partial(f_croms, n_candidates=10),
    "F-CROMS exact": partial(f_croms, n_candidates=10, exact=True),
}
QUICK_PICNN = {loss: partial(picnn, loss=loss, n_epochs=3, full_passes=False) for loss in ("worst-case", "realised")}
REFERENCES = {"nominal": nominal, "sample average": sample_average, "oracle": oracle}


# --- ties ----------------------------------------------------------------------------------------------------


def mean_costs(problem, Z, center, residuals):
    """Mean cost over the residuals of each row of Z."""
    return np.array([problem.evaluate(np.tile(z, (len(residuals), 1)), center + residuals).mean() for z in Z])


def worst_case(problem, shape, radius, center, z):
    """The largest of the pieces, each at the outcome that is worst for it."""
    pieces = problem.structure.pieces
    V = pieces.directions(np.atleast_2d(z))[0]
    return float((np.asarray(shape.support(V, radius)) + V @ center + pieces.p @ np.asarray(z) + pieces.c).max())


def test_ties_of_every_set_are_broken_by_the_least_mean_cost_among_decisions_of_the_least_bound():
    task = synthetic_task(0, "newsvendor", sizes=SMALL)
    fitted, problem, shape, radius = fit_predictor(task), task.problem, Ball(2), 0.5
    centers, residuals = fitted.centers("test"), fitted.residuals("learn")
    found = decide(problem, shape, radius, centers)
    chosen = least_mean(problem, found, centers, lambda V: shape.support(V, radius), residuals)
    s, n_tied = np.linspace(0, 1, 501), 0
    Z = np.column_stack([s, 1 - s])
    for center, bound, z in zip(centers, found.cost_bound, chosen.flat, strict=True):
        tied = Z[[worst_case(problem, shape, radius, center, each) <= bound + 1e-9 for each in Z]]
        n_tied += len(tied) > 5
        assert worst_case(problem, shape, radius, center, z) <= bound + 1e-8
        least = mean_costs(problem, tied, center, residuals).min(initial=np.inf)
        assert mean_costs(problem, [z], center, residuals)[0] <= least + 1e-8
    assert n_tied > len(centers) / 2  # most contexts have an interval of robust decisions


def test_the_rule_for_ties_is_that_of_the_library():
    task = synthetic_task(1, "newsvendor", sizes=SMALL)
    split, fitted, problem = task.split, fit_predictor(task), task.problem
    decider = RobustDecider(problem, task.predictor, learner=PcaBox(), guarantee="outcome", random_state=0)
    decider.fit(task.X, task.Y, train=split.train, learn=split.learn, calibrate=split.calibrate)
    centers, residuals = fitted.centers("test"), fitted.residuals("learn")
    found, theirs = decide(problem, decider.set_, decider.radius_, centers), decider.decide(task.rows("test")[0])
    ours = least_mean(problem, found, centers, partial(decider.set_.support, radius=decider.radius_), residuals)
    for center, *both in zip(centers, ours.flat, theirs.flat, strict=True):
        assert np.ptp(mean_costs(problem, both, center, residuals)) < 1e-6
    assert np.abs(found.flat - theirs.flat).max() > 0.05


# --- every row -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["linear", "quadratic", "newsvendor"])
@pytest.mark.parametrize("method", CONFORMAL.values(), ids=CONFORMAL)
def test_every_set_gives_a_whole_row_on_every_task(method, name):
    row = method(synthetic_task(0, name, sizes=SMALL), ALPHA, 0)
    values = [row.coverage, row.volume, row.worst_case_cost, row.premium, row.regret, row.seconds]
    assert np.isfinite(values).all()
    assert row.hull_volume > 0
    assert row.volume > 0
    assert row.premium > 0
    assert row.regret >= -1e-9


@pytest.mark.parametrize("name", ["Bonferroni box", "l_2", "PCP"])
def test_coverage_follows_its_law_over_seeds(name):
    # Mean coverage of 16 independent draws: the Beta law of the calibration plus the binomial test sample.
    n_seeds, sizes = 16, (200, 60, 60, 100)
    found = [POOLED[name](synthetic_task(seed, "linear", sizes=sizes), ALPHA, seed).coverage for seed in range(n_seeds)]
    law = coverage_law(120, ALPHA)
    error = math.sqrt((law.var() + law.mean() * (1 - law.mean()) / 100) / n_seeds)
    # Four standard errors: false alarm 6e-5 a method. The Bonferroni box covers at least as much.
    assert np.mean(found) > law.mean() - 4 * error
    if name != "Bonferroni box":
        assert np.mean(found) < law.mean() + 4 * error


# --- PCP -----------------------------------------------------------------------------------------------------


def test_anchors_are_the_densest_of_the_drawn_training_residuals():
    residuals = np.vstack([np.random.default_rng(0).normal(size=(100, 2)), [[50.0, 50.0], [-60.0, 60.0]]])
    everything = draw_anchors(residuals[-22:], 1, N_DROPPED, np.random.default_rng(1))[0]
    assert everything.shape == (N_ANCHORS, 2)
    assert np.abs(everything).max() < 10
    plain = draw_anchors(residuals, 3, 0, np.random.default_rng(1))
    assert plain.shape == (3, N_ANCHORS, 2)
    assert all((row == residuals).all(axis=1).any() for row in plain.reshape(-1, 2))


# --- F-CROMS -------------------------------------------------------------------------------------------------


def small_instance(seed, n=14, n_candidates=4, n_test=3):
    rng = np.random.default_rng(seed)
    mixing = np.array([[0.3, 0.1], [0.0, 0.2]])
    residuals, fresh = rng.normal(size=(n, 2)) @ mixing, rng.normal(size=(n_test, 2)) @ mixing
    centers, test_centers = rng.normal(size=(n, 2)) * 0.4, rng.normal(size=(n_test, 2)) * 0.4
    return random_frames(2, n_candidates, rng), residuals, centers, test_centers, fresh


def in_full_conformal_set(problem, frames, residuals, centers, center, candidate, alpha):
    """The definition: append the label, threshold every candidate, choose, ask the chosen one."""
    joint, contexts = np.vstack([residuals, candidate]), np.vstack([centers, center])
    rank = conformal_rank(len(residuals), alpha)
    thresholds = [np.sort(frame.scores(joint))[rank - 1] for frame in frames]
    costs = [
        worst_case_costs(problem, frame, np.full(len(contexts), t), contexts).mean()
        for frame, t in zip(frames, thresholds, strict=True)
    ]
    chosen = int(np.argmin(costs))
    # The score among the others: alone, it may differ in the last digit and miss its own threshold.
    return frames[chosen].scores(joint)[-1] <= thresholds[chosen]


def test_the_full_conformal_set_equals_its_definition_label_by_label():
    n_united = 0
    for seed in range(6):
        problem = [simplex_newsvendor(0.3, 0.7, 2), simplex_linear([-0.08, 0.0])][seed % 2]
        frames, residuals, centers, test_centers, _ = small_instance(seed)
        radii = full_conformal_radii(problem, frames, residuals, centers, test_centers[:1], 0.2)
        union = UnionOfFrames(frames, radii)
        n_united += int(union.n_parts[0] > 1)
        # Candidates near the boundaries, where the choice could change, and anywhere.
        rng = np.random.default_rng(100 + seed)
        rays = rng.normal(size=(30, 2))
        reach = np.min([frame.scores(rays) for frame in frames], axis=0)
        candidates = rays / reach[:, None] * rng.uniform(0.7, 1.3, (30, 1)) * np.nanmedian(radii[np.isfinite(radii)])
        for candidate in candidates:
            expected = in_full_conformal_set(problem, frames, residuals, centers, test_centers[:1], candidate, 0.2)
            repeated = UnionOfFrames(frames, radii).contains(candidate[None])[0]
            assert repeated == expected
    assert n_united >= 2  # the instances must exercise unions, not single boxes only


def test_full_conformal_selection_covers_and_choosing_on_the_calibration_rows_does_not():
    problem, alpha, n_full = simplex_newsvendor(0.3, 0.7, 2), 0.2, 40
    full, split = [], []
    for trial in range(160):
        frames, residuals, centers, test_centers, fresh = small_instance(trial, n=19, n_candidates=12, n_test=100)
        frame, radius = select(problem, frames, residuals, centers, alpha)
        split.append((frame.scores(fresh) <= radius).mean())
        if trial < n_full:
            radii = full_conformal_radii(problem, frames, residuals, centers, test_centers, alpha)
            full.append(UnionOfFrames(frames, radii).contains(fresh).mean())
    # Trials are independent: four standard errors of their mean, false alarm 3e-5.
    assert np.mean(full) > 1 - alpha - 4 * np.std(full, ddof=1) / math.sqrt(n_full)
    assert stats.ttest_1samp(split, 1 - alpha, alternative="less").pvalue < 1e-3


@pytest.mark.parametrize("n_outcomes", [2, 3])
def test_decisions_over_united_frames_equal_the_worst_of_all_vertices(n_outcomes):
    rng = np.random.default_rng(n_outcomes)
    frames = random_frames(n_outcomes, 3, rng)
    radii = np.array([[0.4, 0.5, -np.inf], [-np.inf, 0.3, -np.inf], [0.2, 0.2, 0.25]])
    centers = rng.normal(size=(3, n_outcomes)) * 0.3
    problem = simplex_linear(np.zeros(n_outcomes))
    found = UnionOfFrames(frames, radii).decide(problem, centers)
    for i in range(3):
        parts = [m for m in range(3) if np.isfinite(radii[i, m])]
        vertices = np.vstack([frames[m].as_polyhedron().vertices(radii[i, m]) for m in parts])
        hull = Polyhedron.from_halfspaces(*halfspaces(vertices))
        assert found.cost_bound[i] == pytest.approx(
            decide(problem, hull, 0.0, centers[i : i + 1]).cost_bound[0], abs=1e-7
        )


def halfspaces(vertices):
    from scipy.spatial import ConvexHull

    equations = ConvexHull(vertices).equations
    return equations[:, :-1], -equations[:, -1]


def test_the_volume_of_united_frames_agrees_with_a_fine_grid():
    frames = random_frames(2, 3, np.random.default_rng(0))
    radii = np.array([[0.5, 0.45, 0.4], [-np.inf, 0.5, -np.inf]])
    union = UnionOfFrames(frames, radii)
    axis = np.linspace(-2, 2, 801)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    expected = [UnionOfFrames(frames, np.tile(r, (len(points), 1))).contains(points).mean() * 16 for r in radii]
    volume = union.mean_volume(np.random.default_rng(1), n_samples=20_000)
    # Five standard errors and the grid's own error.
    assert abs(volume - np.mean(expected)) < 5 * volume.standard_error + 0.01


# --- references ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["linear", "quadratic", "newsvendor"])
def test_references_order_as_they_must(name):
    task = synthetic_task(0, name, sizes=SMALL)
    rows = {reference: method(task, ALPHA, 0) for reference, method in REFERENCES.items()}
    assert rows["oracle"].regret == pytest.approx(0.0, abs=1e-7)
    assert rows["nominal"].premium == pytest.approx(0.0, abs=1e-9)
    assert rows["nominal"].regret >= -1e-9
    for row in rows.values():
        assert math.isnan(row.coverage)
        assert math.isnan(row.volume)
        assert "no guarantee" in row.detail


@pytest.mark.parametrize("problem", [simplex_newsvendor(0.3, 0.7, 2), simplex_quadratic([-0.1, 0.0], beta=0.3)])
def test_the_sample_average_decision_equals_a_fine_search(problem):
    rng = np.random.default_rng(0)
    residuals, centers = rng.normal(size=(50, 2)) * 0.4, rng.normal(size=(3, 2)) * 0.5
    z, costs = decide_on_average(problem, residuals, centers)
    share = np.linspace(0, 1, 201)
    for i, center in enumerate(centers):
        mean_costs = [problem.evaluate(np.tile([s, 1 - s], (50, 1)), center + residuals).mean() for s in share]
        assert min(mean_costs) - 1e-3 <= costs[i] <= min(mean_costs) + 1e-9
        assert problem.evaluate(np.tile(z[i], (50, 1)), center + residuals).mean() == pytest.approx(costs[i], abs=1e-9)


def test_cutting_planes_and_bisection_find_the_same_sample_average():
    problem, rng = simplex_newsvendor(0.3, 0.7, 2), np.random.default_rng(1)
    residuals, center = rng.normal(size=(40, 2)) * 0.3, np.array([0.4, 0.5])
    _, along = decide_on_average(problem, residuals, center[None])
    assert _average_by_cuts(problem, problem.sum_of_maxima, residuals + center)[1] == pytest.approx(along[0], abs=1e-6)


def test_no_baseline_reads_the_test_outcomes_or_trains_on_calibration_rows():
    task = synthetic_task(0, sizes=SMALL)
    fitted = fit_predictor(task)
    changed = np.array(task.Y)
    changed[np.concatenate([task.split.learn, task.split.calibrate, task.test])] += 100.0
    assert np.array_equal(fitted.centers("test"), fit_predictor(replace(task, Y=changed)).centers("test"))


# --- PICNN ---------------------------------------------------------------------------------------------------


@pytest.mark.needs("jax", "optax")
@pytest.mark.parametrize(
    ("name", "loss"), [("linear", "worst-case"), ("quadratic", "realised"), ("newsvendor", "worst-case")]
)
def test_a_picnn_gives_a_whole_row_on_every_task(name, loss):
    row = QUICK_PICNN[loss](synthetic_task(0, name, sizes=SMALL), ALPHA, 0)
    assert np.isfinite([row.coverage, row.volume, row.worst_case_cost, row.premium, row.regret]).all()
    assert row.hull_volume > 0
    assert row.volume > 0
    assert row.premium > 0


@pytest.mark.needs("jax", "optax")
def test_a_picnn_says_where_its_programs_are_too_many():
    task = synthetic_task(0, "newsvendor", n_outcomes=8, sizes=(100, 30, 30, 3))
    with pytest.raises(ValueError, match="1 to 64 pieces, got 256"):
        QUICK_PICNN["worst-case"](task, ALPHA, 0)


@pytest.mark.needs("jax", "optax")
def test_training_sees_neither_calibration_nor_test_rows_and_repeats_with_its_seed():
    task = synthetic_task(0, sizes=SMALL)
    changed_X, changed_Y = np.array(task.X), np.array(task.Y)
    hidden = np.concatenate([task.split.calibrate, task.test])
    changed_X[hidden], changed_Y[hidden] = 7.0, -9.0
    first, second = (
        train(fit_predictor(variant), ALPHA, np.random.default_rng(3), "worst-case", 3).parameters
        for variant in (task, replace(task, X=changed_X, Y=changed_Y))
    )
    assert all(np.array_equal(first[name], second[name]) for name in first)


def picnn_instance(seed, d=2, n=40):
    rng = np.random.default_rng(seed)
    X, residuals, centers = rng.normal(size=(n, 3)), rng.normal(size=(n, d)) * 0.3, rng.normal(size=(n, d)) * 0.5
    parameters = initial_parameters(3, d, rng)
    for name in ("k1_offset", "k2_offset"):
        parameters[name] = parameters[name] + 0.2 * rng.normal(size=len(parameters[name]))
    return X, residuals, centers, parameters, rng


ENTRIES = ("A1", "C2", "A2", "w3", "U1", "k1_slope", "m2_offset", "g2_slope", "m3_offset", "k3_slope", "g1_offset")
CASES = {
    "linear": (simplex_linear([-0.08, 0.0]), AlongSegment),
    "quadratic": (simplex_quadratic([-0.08, 0.0], beta=0.5), AlongSegment),
    "newsvendor": (simplex_newsvendor(0.3, 0.7, 2), AlongLines),
    "three outcomes": (simplex_linear([-0.08, 0.0, 0.0]), ByPrograms),
    "three products": (simplex_newsvendor(0.3, 0.7, 3), ByPrograms),
}


# The tilt of a quadratic cost moves with the decision and is held fixed in the realised loss.
DERIVATIVES = [
    pytest.param(name, kind, marks=pytest.mark.slow if name == "three products" else ())  # by programs, as for outcomes
    for name in CASES
    for kind in QUICK_PICNN
    if (name, kind) != ("quadratic", "realised")
]


@pytest.mark.needs("jax", "optax")
@pytest.mark.parametrize(("name", "kind"), DERIVATIVES)
def test_the_envelope_gradient_of_the_training_loss_is_a_finite_difference(name, kind):
    problem, way = CASES[name]
    d = problem.n_outcomes
    X, residuals, centers, parameters, rng = picnn_instance(11, d)
    envelopes = planar_envelopes(problem) or ByPrograms(problem)
    assert isinstance(envelopes, way)
    rows, candidates = np.arange(6 if d == 2 else 2), np.zeros((1, d))

    def value(values):
        nets = networks(values, X, 0.3)
        return objective(envelopes, nets, residuals, centers, centers + residuals, rows, 0.2, kind, candidates)

    slopes = gradient(parameters, *contact_arrays(X, value(parameters)[1], 0.3))
    for entry in ENTRIES[:: 2 if d == 2 else 3]:
        along = rng.normal(size=parameters[entry].shape)
        step = 1e-6 / np.linalg.norm(along)
        up, down = (value(parameters | {entry: parameters[entry] + sign * step * along})[0] for sign in (1, -1))
        expected, found = (up - down) / (2 * step), float((np.asarray(slopes[entry]) * along).sum())
        size = np.linalg.norm(slopes[entry]) * np.linalg.norm(along)
        # JAX works in single precision.
        assert found == pytest.approx(expected, abs=2e-4 * size + 1e-6)


@pytest.mark.parametrize("name", ["linear", "quadratic", "newsvendor"])
def test_programs_and_the_plane_find_the_same_loss(name):
    problem = CASES[name][0]
    X, residuals, centers, parameters, _ = picnn_instance(5)
    nets, rows = networks(parameters, X, 0.3), np.arange(3)
    arguments = (nets, residuals, centers, centers + residuals, rows, 0.2)
    quick, slow = (
        objective(way, *arguments, "worst-case", np.zeros((1, 2)))
        for way in (planar_envelopes(problem), ByPrograms(problem))
    )
    assert quick[0] == pytest.approx(slow[0], abs=1e-6)
    # The weight of the radius is the sum of all multipliers.
    assert quick[1].weights[-1] == pytest.approx(slow[1].weights[-1], rel=1e-4)


def test_the_mean_volume_of_nets_equals_the_volumes_of_each():
    X, _, _, parameters, _ = picnn_instance(7)
    sets = guarded_sets(networks(parameters, X[:2], 0.3), 1.2, np.zeros((1, 2)))
    expected = np.mean([sets.nets.at(i).volume(float(sets.radii[i])) for i in range(2)])
    assert mean_volume(sets, np.random.default_rng(0)) == pytest.approx(expected, rel=5e-3)


# --- the volume within the hull of the residuals --------------------------------------------------------------


def test_far_facets_change_the_volume_but_not_its_part_within_the_hull():
    task = synthetic_task(0, sizes=SMALL)
    fitted, normals = fit_predictor(task), [[1, 0], [0, 1], [-1, 0], [0, -1]]
    shapes = [Polyhedron(normals, [0, 0, -far, -far]) for far in (10.0, 1000.0)]
    centers, learned = fitted.centers("test"), fitted.residuals("learn")
    rows = [measure_set(task, centers, shape, 0.3, ALPHA, 0.0, learned) for shape in shapes]
    assert rows[1].volume > 1000 * rows[0].volume
    assert rows[0].hull_volume == pytest.approx(rows[1].hull_volume)
    assert rows[0].hull_volume < rows[0].volume


@pytest.mark.parametrize("d", [2, 3])
def test_the_sampled_volume_within_the_hull_is_that_of_a_ball_inside_and_of_the_hull_within_a_ball(d):
    residuals = np.vstack([np.eye(d), -np.eye(d), np.random.default_rng(0).uniform(-0.1, 0.1, (20, d))])
    small, whole = Ball(d).volume(0.5), 2**d / math.factorial(d)  # a ball within the cross-polytope, and that itself
    ones = np.ones(3)
    assert hull_volume_of_shape(residuals, Ball(d), 0.5, ones) == pytest.approx(small, rel=0.01)
    assert hull_volume_of_shape(residuals, Ball(d), 2.0, ones) == pytest.approx(whole)
    halved = np.array([0.5, 1.0])  # half the contexts have a ball of half the size
    expected = small * (1 + 0.5**d) / 2
    assert hull_volume_of_shape(residuals, Ball(d), 0.5, halved) == pytest.approx(expected, rel=0.02)


def test_the_volume_within_the_hull_is_the_same_from_facets_and_from_points():
    residuals = np.random.default_rng(1).standard_t(3, size=(200, 2))
    shape = Polyhedron([[1.0, 0.3], [-0.2, 1.0], [-1.0, -1.0]], [0.0, 0.1, -1.0])
    exact = hull_volume_of_shape(residuals, shape, 0.8, np.full(4, 1.5))
    assert exact < shape.scaled(1.5).volume(0.8)
    sampled = hull_volume(residuals, lambda e, _: shape.scaled(1.5).contains(e, 0.8), 4)
    assert sampled == pytest.approx(exact, rel=0.02)
    assert math.isnan(hull_volume(residuals[:2], lambda e, _: e[:, 0] < 0, 1))
