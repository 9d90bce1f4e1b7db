"""Decisions for more rows than fit into memory: Dask data frames, and Parquet files in blocks of rows."""

from polyhedge.batches.frames import decide_frame, distributed_radius, is_dask_frame
from polyhedge.batches.parquet import decide_parquet
from polyhedge.batches.rows import decide_rows

__all__ = [
    "decide_frame",
    "decide_parquet",
    "decide_rows",
    "distributed_radius",
    "is_dask_frame",
]
