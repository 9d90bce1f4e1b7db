"""Write the model files of this release and the decisions they must give, for all later versions to read.

One has a set of one size, one a set scaled by a predicted spread.
Run `python tests/files/make_model.py` once when a release is made.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

import polyhedge as ph

HERE = Path(__file__).parent


def main() -> None:
    stem = "model_" + "_".join(ph.__version__.split(".")[:2])
    X, Y = ph.data.make_synthetic(160, rng=np.random.default_rng(0))
    write(fitted(X, Y), X, Y, stem)
    scaled = fitted(X, Y)
    spread = ph.learners.Spread.fit(X, scaled.predictor_.predict(X), np.exp(X[:, 0]), min_leaf=40, seed=0)
    scaled.model_ = replace(scaled.model_, family=replace(scaled.model_.family, spread=spread))
    write(scaled, X, Y, f"{stem}_spread")


def fitted(X: np.ndarray, Y: np.ndarray) -> ph.RobustDecider:
    problem = ph.problems.simplex_quadratic([-0.08, 0.0], 0.1)
    return ph.RobustDecider(problem, learner=ph.learners.OneSidedBox(), random_state=0).fit(X[:120], Y[:120])


def write(decider: ph.RobustDecider, X: np.ndarray, Y: np.ndarray, stem: str) -> None:
    decider.recalibrate(X[120:], Y[120:])
    decider.save(HERE / f"{stem}.polyhedge", {"features": ["a", "b", "c", "d"]})
    found = decider.decide(X[:5])
    expected = {"X": X[:5].tolist(), "z": found.z.tolist(), "cost_bound": found.cost_bound.tolist()}
    (HERE / f"{stem}.json").write_text(json.dumps({**expected, "radius": decider.radius_}, indent=1) + "\n")


if __name__ == "__main__":
    main()
