"""The generalisation experiment: every part runs, and its tables say what its rows say."""

import numpy as np
import pytest

from polyhedge.learners import OneSidedBox, Samples
from polyhedge.problems import simplex_linear
from polyhedge_study.generalisation import (
    RIVAL,
    SETTINGS,
    GeneralisationSettings,
    generalisation_jobs,
    run_generalisation,
)
from polyhedge_study.generalisation_report import comparison_grid, population_grid
from polyhedge_study.methods import METHODS
from polyhedge_study.population import descend_from_box

SMALL = GeneralisationSettings(n_population=300)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    jobs = [
        job
        for job in generalisation_jobs(["energy, d = 2, n = 160"], seeds=2, population=(2,))
        if job.method in (RIVAL, "polyhedge") or job.setting not in SETTINGS
    ]
    return run_generalisation(jobs, tmp_path_factory.mktemp("out"), settings=SMALL)


def test_every_job_has_a_row_with_a_finite_premium(rows):
    assert len(rows) == 4 + 2 * 4
    assert all(np.isfinite(row.premium) for row in rows)


def test_the_exact_optimum_on_the_learning_rows_is_below_the_box_there(rows):
    for seed in (0, 1):
        exact, box = (
            next(row.premium for row in rows if row.seed == seed and row.method == f"{name} on 3000 rows")
            for name in ("exact", "box")
        )
        assert exact <= box + 1e-9


def test_tables_pair_the_seeds_and_say_who_is_ahead(rows):
    grid = comparison_grid(rows)
    line = next(line for line in grid.rows if line[1] == METHODS["polyhedge"].name)
    differences = [
        next(r.premium for r in rows if (r.method, r.seed) == ("polyhedge", seed))
        - next(r.premium for r in rows if r.setting in SETTINGS and (r.method, r.seed) == (RIVAL, seed))
        for seed in (0, 1)
    ]
    assert line[3].startswith(f"{np.mean(differences):+.4f}")
    assert len(population_grid(rows).rows) == 4


def test_descending_from_the_box_never_ends_above_it():
    rng = np.random.default_rng(0)
    residuals, centers = rng.standard_t(4, size=(200, 2)), rng.normal(size=(200, 2))
    objective = Samples(residuals, centers, simplex_linear([0.0, 0.0]), 0.1)
    box = OneSidedBox().learn(Samples(residuals, centers, objective.problem, 0.1)).set
    found = descend_from_box(objective, box, np.random.default_rng(1), n_steps=50)
    assert objective.value(found) <= objective.value(box) + 1e-9
