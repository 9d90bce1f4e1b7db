"""The registry of classes whose objects a model file may hold: frozen dataclasses of plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

_Class = TypeVar("_Class", bound=type[Any])


@dataclass(frozen=True)
class StoredClass:
    """How objects of one class are stored: by the values of its fields.

    Attributes
    ----------
    cls : the class.
    name : its name in files.
    transient : fields that stay in memory; a loaded object has their defaults.
    unbounded : fields whose arrays may hold NaN or infinity.
    """

    cls: type[Any]
    name: str
    transient: frozenset[str]
    unbounded: frozenset[str]

    @cached_property
    def hints(self) -> Mapping[str, Any]:
        """The type of each stored field."""
        hints = get_type_hints(self.cls)
        names = [one.name for one in fields(self.cls) if one.init and one.name not in self.transient]
        return {name: hints[name] for name in names}


_BY_NAME: dict[str, StoredClass] = {}


def stored(
    name: str, *, transient: tuple[str, ...] = (), unbounded: tuple[str, ...] = ()
) -> Callable[[_Class], _Class]:
    """Let model files hold objects of a frozen dataclass, a class of your own included.

    Fields may hold numbers, texts, booleans, None, enums, arrays, tuples, dictionaries with texts as keys, and objects
    of other such classes. What must hold of them is checked in `__post_init__`, when an object is made and when a file
    is read. The module that defines the class must be imported before a file with its objects is loaded.

    Parameters
    ----------
    name : what files call the class.
    transient : fields that are not stored; they need defaults.
    unbounded : fields whose arrays may hold NaN or infinity.

    Examples
    --------
    >>> @stored("example of a threshold")
    ... @dataclass(frozen=True)
    ... class Threshold:
    ...     level: float
    >>> stored_class(Threshold).name
    'example of a threshold'
    """

    def register(cls: _Class) -> _Class:
        parameters = getattr(cls, "__dataclass_params__", None)
        if parameters is None or not parameters.frozen:
            raise TypeError(
                f"stored takes frozen dataclasses, got {cls.__name__}. Decorate it with @dataclass(frozen=True)."
            )
        known = _BY_NAME.get(name)
        if known is not None and (known.cls.__module__, known.cls.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"Files already call {known.cls.__qualname__} {name!r}. Choose another name.")
        _BY_NAME[name] = StoredClass(cls, name, frozenset(transient), frozenset(unbounded))
        return cls

    return register


def stored_class(cls: type[Any]) -> StoredClass | None:
    """The registration of a class; None for any other, a subclass of a registered one included."""
    return next((one for one in _BY_NAME.values() if one.cls is cls), None)


def stored_class_named(name: str) -> StoredClass | None:
    """The class that files know by this name, whose module is imported now if it is one of ours; None if unknown."""
    if name not in _BY_NAME:
        package = Path(__file__).parents[1]
        for path in sorted(package.rglob("*.py")):
            if f'@stored("{name}"' in path.read_text(encoding="utf-8"):
                import_module(".".join(path.relative_to(package.parent).with_suffix("").parts))
    return _BY_NAME.get(name)
