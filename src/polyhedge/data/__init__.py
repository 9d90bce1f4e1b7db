"""Data: disjoint splits, the paper's synthetic generator, a shipped data set and worked examples.

`backtest` replays a history; it lives in `polyhedge.monitoring.backtest`, because it works with deciders.
"""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.data.examples import (
        EnergyEfficiency,
        ExampleTables,
        load_energy_efficiency,
        make_example,
        make_synthetic,
        mixing_matrix,
        noise_scale,
        synthetic_mean,
    )
    from polyhedge.data.splits import (
        GroupSplit,
        Split,
        TimeSplit,
        as_indices,
        digest_rows,
        equal_rows,
        partition_rows,
        split_rows,
        take_rows,
    )
    from polyhedge.monitoring.backtest import backtest
else:  # imported when they are first used
    __getattr__, __dir__ = lazy(__name__)

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
