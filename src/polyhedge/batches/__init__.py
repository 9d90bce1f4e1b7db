"""Decisions for more rows than fit into memory: Dask data frames, and Parquet files in blocks of rows."""

from polyhedge.batches.frames import calibrate, decide_frame, is_dask_frame
from polyhedge.batches.model import Model, decide_rows
from polyhedge.batches.parquet import decide_parquet

__all__ = ["Model", "calibrate", "decide_frame", "decide_parquet", "decide_rows", "is_dask_frame"]
