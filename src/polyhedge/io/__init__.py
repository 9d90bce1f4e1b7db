"""Model files: one zip of arrays and JSON, written whole, read without running anything from it."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge._support.stored import stored
    from polyhedge.io.archive import MAX_BYTES, ModelFileError
    from polyhedge.io.info import ModelInfo, inspect_model
    from polyhedge.io.model import read_model, write_model
    from polyhedge.io.signatures import Key, key_fingerprint, make_keys
else:  # imported when they are first used
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "MAX_BYTES",
    "Key",
    "ModelFileError",
    "ModelInfo",
    "inspect_model",
    "key_fingerprint",
    "make_keys",
    "read_model",
    "stored",
    "write_model",
]
