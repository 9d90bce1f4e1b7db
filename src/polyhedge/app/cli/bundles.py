"""Options that belong together are written once, as a dataclass, and stand in every command that takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

__all__ = ["with_bundles"]


def with_bundles(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of its bundles in their place: the command line knows options alone.

    A bundle is a parameter whose type is a dataclass; its fields are annotated as options are.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Size:
    ...     width: int = 2
    ...     height: int = 3
    >>> @with_bundles
    ... def area(name: str, size: Size) -> None:
    ...     print(name, size.width * size.height)
    >>> area(name="field", width=4, height=5)
    field 20
    """
    types = get_type_hints(command, include_extras=True)
    bundles = {name: kind for name, kind in types.items() if is_dataclass(kind) and isinstance(kind, type)}
    options: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        name = parameter.name
        own = _options_of(bundles[name]) if name in bundles else [parameter.replace(annotation=types[name])]
        options += [option.replace(kind=Parameter.KEYWORD_ONLY) for option in own]

    @wraps(command)
    def called(**given: Any) -> None:
        for name, bundle in bundles.items():
            given[name] = bundle(**{field.name: given.pop(field.name) for field in fields(bundle)})
        command(**given)

    called.__signature__ = Signature(options)  # type: ignore[attr-defined]
    called.__annotations__ = {option.name: option.annotation for option in options}
    return called


def _options_of(bundle: type) -> list[Parameter]:
    types = get_type_hints(bundle, include_extras=True)
    return [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=types[field.name])
        for field in fields(bundle)
    ]
