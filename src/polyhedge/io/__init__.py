"""Model files: one zip of arrays and JSON, written whole, read without running anything from it."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge._support.stored import stored as stored
    from polyhedge.io.archive import MAX_BYTES as MAX_BYTES, ModelFileError as ModelFileError
    from polyhedge.io.info import ModelInfo as ModelInfo, inspect_model as inspect_model
    from polyhedge.io.model import read_model as read_model, write_model as write_model
    from polyhedge.io.signatures import Key as Key, key_fingerprint as key_fingerprint, make_keys as make_keys
else:  # imported when they are first used
    __getattr__, __dir__, __all__ = lazy(__name__)
