"""The worst cases of a PICNN by linear programs, for any number of outcomes.

The multipliers of the program say how much each linear piece of the network carries: the share of a hidden unit that
is on is its own multiplier over what the next layer passes back to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from polyhedge.problems import DecisionProblem
from polyhedge.robust import Counterpart
from polyhedge.robust.counterpart import CounterpartSolution
from polyhedge.robust.engine.parametric import ContextSolver
from polyhedge_study.baselines.picnn_loss import Envelope
from polyhedge_study.baselines.picnn_network import Contacts
from polyhedge_study.inside import Array
from polyhedge_study.nets import ConvexNet
from polyhedge_study.nets.net_decisions import NetSets


@dataclass(frozen=True)
class ByPrograms:
    """Robust counterparts, context by context; the coordinates are the decision itself."""

    problem: DecisionProblem

    def solve(self, sets: NetSets, centers: Array, tilts: Array | None, known: Envelope | None = None) -> Envelope:
        """See `picnn_loss.Envelopes`."""
        solved = [
            self._one(i, sets.nets.at(i), float(sets.radii[i]), centers[i], None if tilts is None else tilts[i])
            for i in range(len(sets))
        ]
        parts = [contacts for _, contacts in solved]
        return Envelope(
            values=np.array([solution.value for solution, _ in solved]),
            positions=np.array([solution.z for solution, _ in solved]),
            contacts=Contacts(
                np.concatenate([part.rows for part in parts]),
                np.concatenate([part.points for part in parts]),
                np.concatenate([part.weights for part in parts]),
                np.concatenate([part.first for part in parts]),
                np.concatenate([part.second for part in parts]),
            ),
        )

    def slopes(self, positions: Array, outcomes: Array) -> Array:
        """Central differences, exact where the cost is affine or quadratic in the decision."""
        step, slopes = 1e-4, np.zeros_like(positions)
        for j, shift in enumerate(step * np.eye(positions.shape[1])):
            rise = self.problem.evaluate(positions + shift, outcomes) - self.problem.evaluate(
                positions - shift, outcomes
            )
            slopes[:, j] = rise / (2 * step)
        return slopes

    def _one(
        self, i: int, net: ConvexNet, radius: float, center: Array, tilt: Array | None
    ) -> tuple[CounterpartSolution, Contacts]:
        counterpart = Counterpart(self.problem, net, radius)
        if tilt is not None:
            zero = counterpart.parametric.at_zero
            costs = np.array(zero.c)
            costs[self.problem.feasible.z_columns] += tilt
            counterpart.solver = ContextSolver(replace(counterpart.parametric, at_zero=replace(zero, c=costs)))
        solution = counterpart.solve(center)
        if not solution.status.has_solution:
            raise RuntimeError(f"The worst case of a PICNN could not be found: {solution.status} {solution.detail}")
        return solution, _contacts(i, net, solution)


def _contacts(i: int, net: ConvexNet, solution: CounterpartSolution) -> Contacts:
    """One contact for each piece of the cost that carries weight."""
    active = np.flatnonzero(solution.weights > 1e-9)
    d, h1, h2 = net.n_outcomes, len(net.k1), len(net.k2)
    multipliers = solution.facet_multipliers[active]
    level, second = multipliers[:, -1], multipliers[:, 2 * d + 2 * h1 : 2 * d + 2 * h1 + h2]
    first = multipliers[:, 2 * d : 2 * d + h1]
    return Contacts(
        rows=np.full(len(active), i),
        points=solution.weighted_points[active] / solution.weights[active, None],
        weights=-solution.weights[active] * level,
        first=_share(first, second @ net.C2),
        second=_share(second, level[:, None] * net.w3),
    )


def _share(part: Array, whole: Array) -> Array:
    return np.clip(np.where(whole > 1e-12, part / np.where(whole > 1e-12, whole, 1.0), 0.0), 0.0, 1.0)
