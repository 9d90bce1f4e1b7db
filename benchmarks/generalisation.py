"""Does learning help after recalibration on fresh data? Premiums paired with the one-sided box.

Run `python benchmarks/generalisation.py --seeds 20` for the paper's four tasks, with `--n 3000` for larger
learning and calibration splits (synthetic tasks), with `--outcomes 5 --n 500` for more outcomes. Baselines that
learn nothing are calibrated on the learning and calibration rows together.
"""

import argparse
import time

import numpy as np
from sklearn.base import clone

from polyhedge.benchmark.demo import bonferroni_box
from polyhedge.benchmark.tasks import energy_task, synthetic_task
from polyhedge.calibration import conformal_radius
from polyhedge.learners import Auto, OneSidedBox, RotatedBoxGrid, Scenario
from polyhedge.problems.segment import as_segment
from polyhedge.robust import decide, decide_knowing
from polyhedge.sets import Ball, Box

ALPHA = 0.1


def premiums(task, seed, with_grid):
    """Mean worst-case cost minus nominal cost on the test rows, and coverage there, for each method."""
    predictor = clone(task.predictor).fit(*task.rows("train"))
    centers, residuals = {}, {}
    for part in ("train", "learn", "calibrate", "test"):
        X, Y = task.rows(part)
        centers[part] = predictor.predict(X)
        residuals[part] = Y - centers[part]
    nominal = decide_knowing(task.problem, centers["test"])[1].mean()
    pooled = np.vstack([residuals["learn"], residuals["calibrate"]])

    def judged(shape, radius):
        bounds = decide(task.problem, shape, radius, centers["test"]).cost_bound
        return float(bounds.mean() - nominal), float(shape.contains(residuals["test"], radius).mean())

    def learned(learner):
        began = time.perf_counter()
        shape = learner.learn(residuals["learn"], centers["learn"], task.problem, ALPHA, seed).set
        seconds = time.perf_counter() - began
        return (*judged(shape, conformal_radius(shape.scores(residuals["calibrate"]), ALPHA)), seconds)

    d = task.problem.n_outcomes
    simple = OneSidedBox().learn(residuals["train"], centers["train"], task.problem, ALPHA).set
    rows = {"one-sided box": (*judged(simple, conformal_radius(simple.scores(pooled), ALPHA)), 0.0)}
    for name, shape in {"l_inf": Box(np.ones(d)), "l_2": Ball(d)}.items():
        rows[name] = (*judged(shape, conformal_radius(shape.scores(pooled), ALPHA)), 0.0)
    rows["Bonferroni"] = (*judged(bonferroni_box(pooled, ALPHA), 1.0), 0.0)
    rows["default"] = learned(Auto())
    if as_segment(task.problem) is not None and len(task.split.learn) <= 1000:
        rows["exact on the learning split"] = learned(Scenario())
    if with_grid:
        rows["rotated-box grid"] = learned(RotatedBoxGrid())
    return rows


def settings(arguments):
    n, d = arguments.n, arguments.outcomes
    sizes = (1200, n, n, 1000) if n else (1200, 300, 300, 1000)
    names = ["linear", "newsvendor"] if d > 2 else ["linear", "quadratic", "newsvendor"]
    for name in arguments.tasks or names:
        if name != "energy":
            yield name, lambda seed, name=name: synthetic_task(seed, name, n_outcomes=d, sizes=sizes)
    if d == 2 and not n and (not arguments.tasks or "energy" in arguments.tasks):
        yield "energy", energy_task


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--n", type=int, default=0, help="learning and calibration rows; 0 for the paper's sizes")
    parser.add_argument("--outcomes", type=int, default=2)
    parser.add_argument("--grid", action="store_true", help="also the rotated-box grid (slow for newsvendors)")
    parser.add_argument("--tasks", nargs="*", choices=["linear", "quadratic", "newsvendor", "energy"])
    arguments = parser.parse_args()
    print("| task | method | premium | less than the one-sided box (± standard error) | coverage | seconds |")
    print("|---|---|---:|---:|---:|---:|")
    for name, make in settings(arguments):
        runs = [premiums(make(seed), seed, arguments.grid) for seed in range(arguments.seeds)]
        for method in runs[0]:
            values = np.array([run[method] for run in runs])
            saved = np.array([run["one-sided box"][0] for run in runs]) - values[:, 0]
            error = saved.std(ddof=1) / np.sqrt(len(saved)) if len(saved) > 1 else np.nan
            print(
                f"| {name} | {method} | {values[:, 0].mean():.4f} | {saved.mean():+.4f} ± {error:.4f} | "
                f"{values[:, 1].mean():.3f} | {values[:, 2].mean():.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
