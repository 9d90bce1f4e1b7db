r"""PICNN (Yeh et al. 2024): the level set of a learned network, convex in the residual and different for every x.

The network is trained on the learning rows alone, by Adam with step size 1e-2. The paper prints 200 epochs, that is 200
full passes over the learning rows; it does not print the size of a minibatch, and ours is 32 contexts. In each step the
radius is the conformal order statistic of all learning scores, and the loss is that of the minibatch (`picnn_loss`).
With `full_passes=False` an epoch ends after its first minibatch: 200 steps in all, about a tenth of the time, and
another method. The calibration rows give the radius and nothing else; they do not stop the training. The original
interpolates its quantile; the rank here is exact.

Two things keep every set bounded and not empty: a small multiple of $\|e\|_\infty$ in the score instead of a direct
path from e to the output, and a radius that is raised to the least score wherever it lies below it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from polyhedge.calibration import conformal_radius, conformal_rank
from polyhedge.problems import DecisionProblem
from polyhedge.sets import Volume
from polyhedge_study.baselines.fitted import Fitted, fit_predictor
from polyhedge_study.baselines.picnn_loss import LOSSES, Envelopes, joined, loss, planar_envelopes
from polyhedge_study.baselines.picnn_network import Contacts, Parameters, initial_parameters, make_step, networks
from polyhedge_study.baselines.picnn_programs import ByPrograms
from polyhedge_study.hull_volume import hull_volume
from polyhedge_study.inside import Array
from polyhedge_study.measure import Measured, least_mean, measure_decisions
from polyhedge_study.nets import ConvexNets
from polyhedge_study.nets.convex_net import volume_from_rays
from polyhedge_study.nets.net_decisions import NetSets, decide_nets, guarded_sets
from polyhedge_study.tasks import Task

# As the paper trains it.
N_EPOCHS = 200
LEARNING_RATE = 1e-2
# Contexts of a minibatch, which the paper does not print: few where the worst case of each is a program of its own.
N_TOGETHER, N_PROGRAMS = 32, 4
# Volumes are means over so many contexts, each from the distances to its boundary along so many rays.
N_VOLUMES, N_RAYS = 200, 128
# Every piece is a linear program in every context and step: 64 are the pieces of a newsvendor with six products.
MAX_PIECES, MAX_PROGRAMS = 64, 1000
_N_CANDIDATES = 20
"""Learning residuals that are tried as a point inside a level set before its centre is searched."""


def picnn(
    task: Task, alpha: float, seed: int, *, loss: str = "worst-case", n_epochs: int = N_EPOCHS, full_passes: bool = True
) -> Measured:
    """Measure a PICNN trained on the "worst-case" or the "realised" cost; see `train` for the rest."""
    if loss not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {loss!r}.")
    fitted = fit_predictor(task)
    began = time.perf_counter()
    model = train(fitted, alpha, np.random.default_rng(seed), loss, n_epochs, full_passes)
    radius = conformal_radius(model.nets(task.rows("calibrate")[0]).scores(fitted.residuals("calibrate")), alpha)
    seconds = time.perf_counter() - began
    sets = guarded_sets(model.nets(task.rows("test")[0]), radius, model.candidates)
    volume = mean_volume(sets, np.random.default_rng(seed))
    inside = sets.nets.scores(fitted.residuals("test")) <= sets.radii
    within = hull_volume(fitted.residuals("test"), lambda e, i: sets.nets[i].scores(e) <= sets.radii[i], len(sets))
    n_raised, n_costs = int(np.sum(sets.radii > radius)), _n_costs(task.problem, len(sets))
    notes = [f"radius raised at {n_raised} contexts"] if n_raised else []
    notes += [f"costs of the first {n_costs} test rows"] if n_costs < len(sets) else []
    few, rows, centers = replace(task, test=task.test[:n_costs]), np.arange(n_costs), fitted.centers("test")[:n_costs]
    decisions = least_mean(
        task.problem,
        decide_nets(task.problem, sets[rows], centers),
        centers,
        sets[rows].support,
        fitted.residuals("learn"),
    )
    measured = measure_decisions(few, centers, decisions, inside[rows], volume, alpha, seconds, ", ".join(notes))
    return replace(measured, coverage=float(inside.mean()), hull_volume=within)


@dataclass(frozen=True, eq=False)
class Picnn:
    """A trained network: `shift` and `scale` standardise x, `unit` measures residuals."""

    parameters: Parameters
    shift: Array
    scale: Array
    unit: float
    candidates: Array

    def features(self, X: Array) -> Array:
        """What the network sees of x."""
        return np.asarray((X - self.shift) / self.scale)

    def nets(self, X: Array) -> ConvexNets:
        """One convex network for each row of X."""
        return networks(self.parameters, self.features(X), self.unit)


def train(
    fitted: Fitted, alpha: float, rng: np.random.Generator, kind: str, n_epochs: int, full_passes: bool = True
) -> Picnn:
    """Train on the learning rows, in minibatches of a fresh order in every epoch: all of them, or the first alone.

    Features are standardised with the training rows.
    """
    task, (X, Y) = fitted.task, fitted.task.rows("learn")
    centers, residuals = fitted.centers("learn"), fitted.residuals("learn")
    X_train = task.rows("train")[0]
    scale = X_train.std(axis=0)
    unit = float(np.sqrt(np.mean(residuals**2)))
    candidates = np.vstack([np.zeros((1, residuals.shape[1])), residuals.mean(axis=0), residuals[:_N_CANDIDATES]])
    parameters = initial_parameters(X.shape[1], residuals.shape[1], rng)
    model = Picnn(parameters, X_train.mean(axis=0), np.where(scale > 0, scale, 1.0), unit, candidates)
    features, (begin, step) = model.features(X), make_step(LEARNING_RATE)
    parameters = {name: np.asarray(value, dtype=np.float32) for name, value in parameters.items()}
    state, envelopes, size = begin(parameters), *_envelopes(task.problem)
    for _ in range(n_epochs):
        batches = np.split(rng.permutation(len(X)), range(size, len(X), size))
        for rows in batches if full_passes else batches[:1]:
            nets = networks(parameters, features, unit)
            contacts = objective(envelopes, nets, residuals, centers, Y, rows, alpha, kind, candidates)[1]
            parameters, state = step(parameters, state, features, _padded(contacts, size), unit)
    return Picnn({k: np.asarray(v) for k, v in parameters.items()}, model.shift, model.scale, unit, candidates)


def objective(
    envelopes: Envelopes,
    nets: ConvexNets,
    residuals: Array,
    centers: Array,
    outcomes: Array,
    rows: np.ndarray[tuple[int], np.dtype[np.intp]],
    alpha: float,
    kind: str,
    candidates: Array,
) -> tuple[float, Contacts]:
    """Mean loss of the contexts `rows` at the learning radius, and where it touches the network.

    Sets without interior, whose radius is their own least score, are left out.
    """
    scores = nets.scores(residuals)
    rank = min(conformal_rank(len(scores), alpha), len(scores))
    quantile = int(np.argpartition(scores, rank - 1)[rank - 1])
    radii = np.full(len(rows), scores[quantile])
    origins, is_solid = nets[rows].inner_points(radii, candidates)
    rows = rows[is_solid]
    if not len(rows):
        raise RuntimeError("The network's level sets have no interior at any context: training diverged.")
    sets = NetSets(nets[rows], radii[is_solid], origins[is_solid], is_solid[is_solid])
    value, touched = loss(envelopes, sets, centers[rows], outcomes[rows], kind)
    at = nets[np.array([quantile])].evaluate(residuals[[quantile]])
    radius = Contacts(
        rows=np.array([quantile]),
        points=residuals[[quantile]],
        weights=np.array([-touched.weights.sum()]),
        first=at.first.astype(np.float64),
        second=at.second.astype(np.float64),
    )
    touched = Contacts(rows[touched.rows], touched.points, touched.weights, touched.first, touched.second)
    return value, joined(touched, radius)


def mean_volume(sets: NetSets, rng: np.random.Generator) -> Volume:
    """Mean volume over the first contexts, from distances to the boundary along `N_RAYS` rays."""
    d, few = sets.nets.n_outcomes, np.flatnonzero(sets.is_solid)[:N_VOLUMES]
    n_flat = int(np.sum(~sets.is_solid[:N_VOLUMES]))
    if not len(few):
        return Volume(0.0)
    if d == 2:
        angles = np.linspace(0, 2 * np.pi, N_RAYS, endpoint=False)
        rays = np.column_stack([np.cos(angles), np.sin(angles)])
    else:
        rays = rng.standard_normal((N_RAYS, d))
        rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    rows = np.repeat(few, N_RAYS)
    reach, _ = sets.nets[rows].boundary(
        sets.origins[rows], np.tile(rays, (len(few), 1)), sets.radii[rows], np.ones(len(rows))
    )
    volumes = [volume_from_rays(values, d) for values in reach.reshape(len(few), N_RAYS)]
    values = np.concatenate([volumes, np.zeros(n_flat)])
    spread = float(values.std(ddof=1)) if len(values) > 1 else np.inf
    return Volume(float(values.mean()), spread / np.sqrt(len(values)))


def _envelopes(problem: DecisionProblem) -> tuple[Envelopes, int]:
    """How worst cases are found, and for how many contexts a step."""
    planar = planar_envelopes(problem)
    if planar is not None:
        return planar, N_TOGETHER
    n_pieces = len(problem.structure.pieces) if problem.structure.has_pieces else 0
    if not 1 <= n_pieces <= MAX_PIECES:
        raise ValueError(
            f"A PICNN can be trained for costs with 1 to {MAX_PIECES} pieces, got {n_pieces or 'no piece list'}: every "
            "piece is a linear program in every context and step. Take fewer outcomes or another method."
        )
    return ByPrograms(problem), max(1, N_PROGRAMS // n_pieces)


def _n_costs(problem: DecisionProblem, n: int) -> int:
    """Test rows whose robust decisions are computed: all, unless each needs many linear programs."""
    is_quick = not problem.structure.has_pieces or planar_envelopes(problem) is not None
    n_pieces = 1 if is_quick else len(problem.structure.pieces)
    return min(n, max(1, MAX_PROGRAMS // n_pieces))


def _padded(contacts: Contacts, size: int) -> Contacts:
    """Contacts in a number that never changes, because every new shape is compiled anew; spare ones weigh nothing."""
    kept = np.flatnonzero(contacts.weights != 0)
    room = 8 * size + 1
    while room < len(kept):
        room *= 2
    chosen = np.concatenate([kept, np.full(room - len(kept), kept[0] if len(kept) else 0)])
    weights = np.concatenate([contacts.weights[kept], np.zeros(room - len(kept))])
    return Contacts(
        contacts.rows[chosen], contacts.points[chosen], weights, contacts.first[chosen], contacts.second[chosen]
    )
