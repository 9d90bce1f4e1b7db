"""Decisions for more rows than fit into memory: Dask data frames, and Parquet files in blocks of rows."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.distributed.parquet import decide_parquet as decide_parquet
    from polyhedge.distributed.row_table import (
        decide_frame as decide_frame,
        decide_rows as decide_rows,
        distributed_radius as distributed_radius,
    )
else:  # imported when they are first used
    __getattr__, __dir__, __all__ = lazy(__name__)
