"""Tests of optional packages are skipped where these are not installed; `make test` installs them all."""

from __future__ import annotations

import importlib.util
import os
import pickle
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import settings

# No test depends on the clock: a busy machine may take as long as it likes over an example.
settings.register_profile("polyhedge", deadline=None)
settings.load_profile("polyhedge")

# Programs that tests start: collecting them would import, and make, what only they need.
collect_ignore = [f"tests/{name}.py" for name in ("fuzz_model_files", "killed_runs", "licences", "ten_lines")]

STUDY = Path(__file__).parent / "study"
# Examples in docstrings cannot be marked. They need the packages of an extra, as their modules say.
EXAMPLES_NEED = {
    "polyhedge.distributed.parquet.decide_parquet": ("pyarrow",),
    **dict.fromkeys(
        (
            "polyhedge.plots.curves.cost_coverage",
            "polyhedge.plots.maps.decision_map",
            "polyhedge.plots.sets.regions",
            "polyhedge.plots.sets.residual_set",
            "polyhedge.plots.sets.sets_over_residuals",
        ),
        ("matplotlib",),
    ),
}


def pytest_configure(config: pytest.Config) -> None:
    """One thread a process; and the study's commands are found where it was not installed, here and in children."""
    # Workers that are started later, and commands in processes of their own, share few cores: their threads would wait.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    if tuple(metadata.distributions(name="polyhedge-study")):
        return
    project = tomllib.loads((STUDY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [
        f"[{group}]\n{name} = {at}" for group, all_ in project["entry-points"].items() for name, at in all_.items()
    ]
    found = config.rootpath / ".pytest_cache" / "study" / "polyhedge_study-0.dist-info"
    found.mkdir(parents=True, exist_ok=True)
    (found / "METADATA").write_text("Metadata-Version: 2.1\nName: polyhedge-study\nVersion: 0\n", encoding="utf-8")
    (found / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    places = [str(STUDY.parent / "src"), str(STUDY / "src"), str(found.parent)]
    sys.path[:0] = places
    os.environ["PYTHONPATH"] = os.pathsep.join([*places, *filter(None, [os.environ.get("PYTHONPATH")])])


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what is marked as needing a package that is not here."""
    needed = [name for mark in item.iter_markers("needs") for name in mark.args]
    needed += EXAMPLES_NEED.get(item.name, ()) if isinstance(item, pytest.DoctestItem) else ()
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    is_example = isinstance(item, pytest.DoctestItem)
    _with_selection("example" if is_example else "whole" if item.get_closest_marker("selection") else "none")


SELECTIONS: dict[bytes, tuple[str, str]] = {}
"""Results of selections in examples: many examples have the same rows."""


def _with_selection(kind: str) -> None:
    """Whether plain numbers have the selection of `predictor="auto"`, which takes longer than most tests.

    Without it the smooth ridge is taken, which also wins on the data of nearly all tests. Raw frames keep theirs.
    Examples have it once for the same rows and settings.
    """
    from polyhedge.predictors import recipes as selection

    whole = getattr(selection.choose_predictor, "whole", selection.choose_predictor)

    def quick(schema: object, *rows: object, **settings: object) -> tuple[str, str]:
        if schema is not None:
            return whole(schema, *rows, **settings)  # type: ignore[no-any-return]
        return "smooth-ridge", "not compared in tests that are not of it"

    def once(*rows: object, **settings: object) -> tuple[str, str]:
        asked = pickle.dumps((rows, settings))
        if asked not in SELECTIONS:
            SELECTIONS[asked] = whole(*rows, **settings)
        return SELECTIONS[asked]

    quick.whole = once.whole = whole  # type: ignore[attr-defined]
    selection.choose_predictor = {"whole": whole, "example": once, "none": quick}[kind]  # type: ignore[assignment]


def pytest_runtest_teardown() -> None:
    """Close the pictures of a test: pyplot keeps them all, and warns of many, whichever test opens the last."""
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a test keeps a model file."""
    return tmp_path / "model.polyhedge"
