"""Fingerprints of tables, so that a model can name the rows it has seen without keeping them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np


def digest_rows(*tables: Any) -> str:
    """SHA-256 of the values, shapes and column names of tables, as 64 hexadecimal digits.

    Parameters
    ----------
    *tables : arrays, data frames, sparse matrices or sequences
        A data frame and an array of the same numbers differ, because the frame has column names.

    Examples
    --------
    >>> X = np.arange(6.0).reshape(3, 2)
    >>> digest_rows(X) == digest_rows(X.copy()), digest_rows(X) == digest_rows(X[::-1])
    (True, False)
    """
    digest = hashlib.sha256()
    for table in tables:
        for name, values in _columns(table):
            digest.update(repr((name, values.shape, values.dtype.kind)).encode())
            digest.update(_bytes(values))
    return digest.hexdigest()


def _columns(table: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(table, "columns") and hasattr(table, "iloc"):
        for position, name in enumerate(table.columns):
            yield str(name), np.asarray(table.iloc[:, position])
    elif hasattr(table, "tocsr"):
        rows = table.tocsr()
        yield str(rows.shape), np.asarray(rows.indptr)
        yield "", np.asarray(rows.indices)
        yield "", np.asarray(rows.data)
    else:
        yield "", np.asarray(table)


def _bytes(values: Any) -> bytes:
    if values.dtype.kind in "fiub":
        return np.ascontiguousarray(values, dtype=np.float64).tobytes()
    # Length before text, so that no two lists of texts run together into the same bytes.
    texts = [str(value).encode() for value in values.ravel()]
    return b"".join(len(text).to_bytes(8, "big") + text for text in texts)
