r"""Training losses of a PICNN and their exact derivatives by the envelope theorem.

For context i let $V_i(\theta) = \min_z \max_{s_\theta(x_i, e) \le r} g(z, f_i + e) + t_i^\top z$ with the radius r the
conformal order statistic of the learning scores. At the saddle point the constraint has a multiplier
$\lambda_i$, so that $dV_i = \lambda_i\,(dr - \partial_\theta s(x_i, e_i))$ and
$dr = \partial_\theta s(x_j, \epsilon_j)$ for the learning row j whose score is r: a weighted sum of scores at a few
`Contacts`. Where the worst case is a kink of the network, several of its linear pieces share the multiplier.

- "worst-case": the mean of V_i with t = 0.
- "realised": Yeh et al. train on the realised cost $g(z_i, y_i)$ of the robust decision. With the tilt
  $t = \nabla_z g(z_i, y_i)$, held fixed, the loss is $(V_i(0) - V_i(-\delta t)) / \delta$. V is concave in the tilt
  with slope $z_i$, so the loss is an upper bound of $t^\top z_i$, the realised cost up to a constant, and tends to it
  for small delta; its derivative tends to that through the argmin (Domke 2010) and is useful where decisions jump.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from polyhedge.problems import DecisionProblem
from polyhedge.problems.structure import FixedLines, Segment
from polyhedge_study.baselines.picnn_network import Contacts
from polyhedge_study.each_context import least_maximum
from polyhedge_study.inside import Array
from polyhedge_study.nets.net_decisions import NetSets, oriented, saddles_along
from polyhedge_study.nets.net_saddle import Saddle, supports

LOSSES = ("worst-case", "realised")
TILT = 0.5
"""delta above: not small, so that the derivative is of use where decisions jump."""


@dataclass(frozen=True)
class Envelope:
    """Values V_i (N,), coordinates of the decisions (N, q) and contacts with weights dV_i / ds at fixed radius.

    `worst` are worst cases that do not depend on the tilt, to be used again.
    """

    values: Array
    positions: Array
    contacts: Contacts
    worst: Saddle | None = None


class Envelopes(Protocol):
    """Robust problems with a linear tilt in some coordinates of the decision, and their derivatives."""

    def solve(self, sets: NetSets, centers: Array, tilts: Array | None, known: Envelope | None = None) -> Envelope:
        """V_i for tilts (N, q), or without tilt; `known` is the solution for another tilt."""

    def slopes(self, positions: Array, outcomes: Array) -> Array:
        """Slopes (N, q) of the realised cost in the coordinates of the decision."""


def loss(
    envelopes: Envelopes, sets: NetSets, centers: Array, outcomes: Array, kind: str = "worst-case"
) -> tuple[float, Contacts]:
    """The mean loss of the contexts and its contacts, without the radius, whose weight is minus their sum."""
    plain, n = envelopes.solve(sets, centers, None), len(sets)
    if kind == "worst-case":
        return float(plain.values.mean()), _scaled(plain.contacts, 1 / n)
    tilted = envelopes.solve(sets, centers, -TILT * envelopes.slopes(plain.positions, outcomes), plain)
    value = float((plain.values - tilted.values).mean() / TILT)
    return value, joined(_scaled(plain.contacts, 1 / (TILT * n)), _scaled(tilted.contacts, -1 / (TILT * n)))


def planar_envelopes(problem: DecisionProblem) -> Envelopes | None:
    """The quick way for two outcomes and decisions on a segment; None where it does not apply."""
    if problem.n_outcomes != 2:
        return None
    segment = problem.structure.segment
    turned = None if segment is None else oriented(segment)
    if turned is not None:
        return AlongSegment(turned)
    lines = problem.structure.fixed_lines
    return None if lines is None else AlongLines(lines)


@dataclass(frozen=True)
class AlongSegment:
    """One affine piece, decisions z(s): the coordinate is s."""

    segment: Segment

    def solve(self, sets: NetSets, centers: Array, tilts: Array | None, known: Envelope | None = None) -> Envelope:
        """See `Envelopes`."""
        saddle = saddles_along(self.segment, sets, centers, None if tilts is None else tilts[:, 0])
        contacts = _contacts(saddle, np.arange(len(sets)), np.ones(len(sets)))
        return Envelope(saddle.value, saddle.s[:, None], contacts)

    def slopes(self, positions: Array, outcomes: Array) -> Array:
        """See `Envelopes`."""
        segment = self.segment
        fixed = segment.base[1] + 2 * segment.base[2] * positions
        return np.asarray(fixed + (outcomes @ (segment.v1 - segment.v0))[:, None])


@dataclass(frozen=True)
class AlongLines:
    """Pieces with fixed directions, decisions z(s): the coordinate is s."""

    lines: FixedLines

    def solve(self, sets: NetSets, centers: Array, tilts: Array | None, known: Envelope | None = None) -> Envelope:
        """See `Envelopes`."""
        lines, n, k = self.lines, len(sets), len(self.lines.directions)
        rows = np.repeat(np.arange(n), k)
        worst = None if known is None else known.worst
        if worst is None:
            V = np.tile(lines.directions, (n, 1))
            worst = supports(sets.nets[rows], sets.radii[rows], sets.origins[rows], V)
        heights = lines.constants + centers @ lines.directions.T + worst.value.reshape(n, k)
        values, s, weights = _mixture(heights, lines.slopes, np.zeros(n) if tilts is None else tilts[:, 0])
        return Envelope(values, s[:, None], _contacts(worst, rows, weights.ravel()), worst)

    def slopes(self, positions: Array, outcomes: Array) -> Array:
        """See `Envelopes`."""
        lines = self.lines
        heights = lines.constants + outcomes @ lines.directions.T
        return lines.slopes[(heights + positions * lines.slopes).argmax(axis=1)][:, None]


def _mixture(heights: Array, slopes: Array, tilts: Array) -> tuple[Array, Array, Array]:
    """Least maximum of lines plus a tilt: value, position, and the weights of the lines that hold it up."""
    rates, rows = slopes + tilts[:, None], np.arange(len(heights))
    s, highest = least_maximum(heights, rates)
    lines = heights + rates * s[:, None]
    values = lines.max(axis=1)
    active = lines >= (values - 1e-9 * (1 + np.abs(values)))[:, None]
    low = np.where(active, rates, np.inf).argmin(axis=1)
    high = np.where(active, rates, -np.inf).argmax(axis=1)
    balanced = (rates[rows, low] < 0) & (rates[rows, high] > 0)
    step = np.where(balanced, rates[rows, high] - rates[rows, low], 1.0)
    share = np.where(balanced, -rates[rows, low] / step, 1.0)
    # At an end the highest line counts; inside, a flat line holds the value wherever the others cross it.
    flattest = np.where(active, np.abs(rates), np.inf).argmin(axis=1)
    alone = np.where((s > 0) & (s < 1), flattest, highest)
    weights = np.zeros_like(heights)
    weights[rows, np.where(balanced, high, alone)] = share
    weights[rows[balanced], low[balanced]] = 1 - share[balanced]
    return values, s, weights


def _contacts(saddle: Saddle, rows: np.ndarray[tuple[int], np.dtype[np.intp]], scale: Array) -> Contacts:
    """Both linear pieces that meet at the worst case; the score there enters with minus the multiplier."""
    return Contacts(
        rows=np.concatenate([rows, rows]),
        points=np.vstack([saddle.residual, saddle.residual]),
        weights=-np.concatenate([scale * saddle.weights[:, 0], scale * saddle.weights[:, 1]]),
        first=np.vstack([saddle.low.first, saddle.high.first]).astype(np.float64),
        second=np.vstack([saddle.low.second, saddle.high.second]).astype(np.float64),
    )


def _scaled(contacts: Contacts, factor: float) -> Contacts:
    return replace(contacts, weights=factor * contacts.weights)


def joined(first: Contacts, second: Contacts) -> Contacts:
    """The contacts of both."""
    return Contacts(
        np.concatenate([first.rows, second.rows]),
        np.vstack([first.points, second.points]),
        np.concatenate([first.weights, second.weights]),
        np.vstack([first.first, second.first]),
        np.vstack([first.second, second.second]),
    )
