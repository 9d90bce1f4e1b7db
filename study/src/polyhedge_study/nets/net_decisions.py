"""Robust decisions over the level sets of a convex network, a different set for every context."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyhedge.decisions import Decisions, joined
from polyhedge.problems import DecisionProblem
from polyhedge.problems.structure import Segment
from polyhedge.robust.routes import decide
from polyhedge_study.each_context import decide_each, decisions_at, has_segment
from polyhedge_study.inside import Array, Indices, Mask
from polyhedge_study.nets.convex_nets import ConvexNets
from polyhedge_study.nets.net_saddle import PARALLEL, Line, Saddle, find_saddles, supports


@dataclass(frozen=True, eq=False)
class NetSets:
    """Level sets that are never empty: networks, radii (N,), and a residual (N, d) inside each.

    `is_solid` says which sets have an interior to speak of; the others sit at the least score of their network.
    """

    nets: ConvexNets
    radii: Array
    origins: Array
    is_solid: Mask

    def __len__(self) -> int:
        return len(self.radii)

    def __getitem__(self, rows: Indices | Mask) -> NetSets:
        return NetSets(self.nets[rows], self.radii[rows], self.origins[rows], self.is_solid[rows])

    def support(self, V: Array) -> Array:
        """Support (N,) of the set of context i in the direction of row i; at flat sets that of their point inside."""
        residuals = self.origins.copy()
        if self.is_solid.any():
            own = self[self.is_solid]
            residuals[self.is_solid] = supports(own.nets, own.radii, own.origins, V[self.is_solid]).residual
        return np.asarray((residuals * V).sum(axis=1))


def guarded_sets(nets: ConvexNets, radius: float, candidates: Array) -> NetSets:
    """Level sets at one radius, raised to the least score wherever the radius lies below it.

    `candidates` (k, d) are residuals that may lie inside; they only save time.
    """
    radii = np.full(len(nets), float(radius))
    origins, is_solid = nets.inner_points(radii, candidates)
    for i in np.flatnonzero(~is_solid):
        radii[i] = nets.at(int(i)).guarded(radius)
    return NetSets(nets, radii, origins, is_solid)


def decide_nets(problem: DecisionProblem, sets: NetSets, centers: Array) -> Decisions:
    """The exact robust decision of each context over its own level set.

    With two outcomes and decisions on a segment, all contexts are solved together to a proven gap of about 1e-10;
    elsewhere, and where a set has no interior, each context is a linear program.
    """
    together = sets.is_solid & (sets.nets.n_outcomes == 2) & has_segment(problem)
    segment = problem.structure.segment
    if segment is not None and oriented(segment) is None:
        together = np.zeros(len(sets), dtype=bool)
    rows = [np.array([i]) for i in np.flatnonzero(~together)]
    parts = [decide(problem, sets.nets.at(int(i)), float(sets.radii[i]), centers[[i]]) for (i,) in rows]
    if together.any():
        parts.append(_together(problem, segment, sets[together], centers[together]))
        rows.append(np.flatnonzero(together))
    return joined(parts, rows)


def oriented(segment: Segment) -> Segment | None:
    """The segment run in the sense in which its directions turn counter-clockwise; None if they do not turn."""
    turn = float(segment.v0[0] * segment.v1[1] - segment.v0[1] * segment.v1[0])
    if abs(turn) <= PARALLEL * float(np.linalg.norm(segment.v0) * np.linalg.norm(segment.v1)):
        return None
    if turn > 0:
        return segment
    a, b, c = segment.base
    reverse = np.array([a + b + c, -b - 2 * c, c])
    return Segment(segment.z1, segment.z0, segment.v1, segment.v0, reverse)


def saddles_along(segment: Segment, sets: NetSets, centers: Array, tilts: Array | None = None) -> Saddle:
    """Best positions and worst cases along an oriented segment; `tilts` (N,) are added to the cost's slopes in s."""
    n = len(sets)
    base = np.tile(segment.base, (n, 1))
    base[:, 1] += 0.0 if tilts is None else tilts
    line = Line(np.tile(segment.v0, (n, 1)), np.tile(segment.v1, (n, 1)), base, centers)
    return find_saddles(sets.nets, sets.radii, sets.origins, line)


def _together(problem: DecisionProblem, segment: Segment | None, sets: NetSets, centers: Array) -> Decisions:
    turned = None if segment is None else oriented(segment)
    if turned is not None:
        saddle = saddles_along(turned, sets, centers)
        z = turned.z0 + saddle.s[:, None] * (turned.z1 - turned.z0)
        reach = max(float(np.linalg.norm(turned.v0)), float(np.linalg.norm(turned.v1)))
        size = reach * np.linalg.norm(saddle.residual - sets.origins, axis=1)
        return decisions_at(problem, z, saddle.value, centers + saddle.residual, saddle.gap, size)

    def maximisers(V: Array) -> Array:
        return supports(sets.nets, sets.radii, sets.origins, V).residual

    return decide_each(problem, maximisers, lambda i: (sets.nets.at(i), float(sets.radii[i])), centers)
