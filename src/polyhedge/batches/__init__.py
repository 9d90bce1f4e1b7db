"""Decisions for more rows than fit into memory: Dask data frames, and Parquet files in blocks of rows."""

from polyhedge.batches.frames import decide_frame, distributed_radius, is_dask_frame
from polyhedge.batches.model import Model, decide_rows, distinct_names
from polyhedge.batches.parquet import decide_parquet

__all__ = [
    "Model",
    "decide_frame",
    "decide_parquet",
    "decide_rows",
    "distinct_names",
    "distributed_radius",
    "is_dask_frame",
]
