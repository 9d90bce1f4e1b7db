"""Tests of optional packages are skipped where these are not installed; `make test` installs them all."""

from __future__ import annotations

import importlib.util

import pytest

# Examples in docstrings cannot be marked. They need the packages of an extra, as their modules say.
EXAMPLES_NEED = {
    "polyhedge.batches.model.decide_rows": ("dask", "distributed", "pyarrow"),
    "polyhedge.batches.parquet.decide_parquet": ("pyarrow",),
}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what is marked as needing a package that is not here."""
    needed = [name for mark in item.iter_markers("needs") for name in mark.args]
    needed += EXAMPLES_NEED.get(item.name, ()) if isinstance(item, pytest.DoctestItem) else ()
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
