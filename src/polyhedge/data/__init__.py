"""Data: disjoint splits, the paper's synthetic generator, a shipped data set and worked examples."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.data.examples import (
        EnergyEfficiency as EnergyEfficiency,
        ExampleTables as ExampleTables,
        load_energy_efficiency as load_energy_efficiency,
        make_example as make_example,
        make_synthetic as make_synthetic,
        mixing_matrix as mixing_matrix,
        noise_scale as noise_scale,
        synthetic_mean as synthetic_mean,
    )
    from polyhedge.data.splits import (
        GroupSplit as GroupSplit,
        Split as Split,
        TimeSplit as TimeSplit,
        as_indices as as_indices,
        digest_rows as digest_rows,
        equal_rows as equal_rows,
        partition_rows as partition_rows,
        split_rows as split_rows,
        take_rows as take_rows,
    )
else:  # imported when they are first used
    __getattr__, __dir__, __all__ = lazy(__name__)
