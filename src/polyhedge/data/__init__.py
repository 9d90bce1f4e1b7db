"""Data: disjoint splits, the paper's synthetic generator, a shipped data set and worked examples.

`backtest` replays a history; it lives in `polyhedge.monitoring.backtest`, because it works with deciders.
"""

from importlib import import_module
from typing import Any

from polyhedge.data.examples import EnergyEfficiency, ExampleTables, load_energy_efficiency, make_example
from polyhedge.data.ordered import GroupSplit, TimeSplit
from polyhedge.data.splits import (
    Split,
    as_indices,
    digest_rows,
    equal_rows,
    partition_rows,
    split_rows,
    take_rows,
)
from polyhedge.data.synthetic import make_synthetic, mixing_matrix, noise_scale, synthetic_mean

__all__ = [
    "EnergyEfficiency",
    "ExampleTables",
    "GroupSplit",
    "Split",
    "TimeSplit",
    "as_indices",
    "backtest",
    "digest_rows",
    "equal_rows",
    "load_energy_efficiency",
    "make_example",
    "make_synthetic",
    "mixing_matrix",
    "noise_scale",
    "partition_rows",
    "split_rows",
    "synthetic_mean",
    "take_rows",
]


def __getattr__(name: str) -> Any:
    if name != "backtest":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Deciders are made from data, not the other way round: looked up when it is asked for.
    return import_module("polyhedge.monitoring.backtest").backtest
