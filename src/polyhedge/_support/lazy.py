"""Names of a package that are imported when they are first used, so that a help text waits for no solver."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from typing import Any


def lazy(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package, for what it imports under `if TYPE_CHECKING:`.

    There type checkers and editors see the names as any others; `else: __getattr__, __dir__, __all__ = lazy(__name__)`
    follows. The names are read from the source: each stands in one place.

    Examples
    --------
    >>> import polyhedge
    >>> polyhedge.Ball.__module__
    'polyhedge.sets.ball'
    """

    def get(name: str) -> Any:
        sources = _sources(package)
        if name not in sources:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        source = sources[name]
        if source == package:
            return importlib.import_module(f"{package}.{name}")
        value = getattr(importlib.import_module(source), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*_sources(package), *(name for name in vars(sys.modules[package]) if name.startswith("__"))})

    return get, names, sorted(_sources(package))


@cache
def _sources(package: str) -> dict[str, str]:
    """The module that each name comes from."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    source = spec.loader.get_source(package)  # type: ignore[union-attr]
    blocks = [node.body for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}
