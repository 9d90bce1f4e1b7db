"""What was compiled for a set at one size, kept for the next call that decides with it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from polyhedge.solvers.choice import solver_in_force

_MOST = 32
"""Programs that a model keeps: each level of a spread is one, and a program may take megabytes."""


class Kept:
    """A small store of things that one caller at a time may use, the last used first.

    A caller takes a thing out and puts it back when it is done; a second caller that comes meanwhile makes one of its
    own. So nothing is shared between threads. Copies and pickles are empty.

    Examples
    --------
    >>> kept = Kept()
    >>> for _ in range(2):
    ...     with kept.borrowed("list", list) as numbers:
    ...         numbers.append(len(numbers))
    >>> numbers
    [0, 1]
    """

    def __init__(self) -> None:
        self._lock, self._things = Lock(), OrderedDict[Hashable, Any]()

    @contextmanager
    def borrowed(self, key: Hashable, make: Callable[[], Any]) -> Iterator[Any]:
        """The thing of this key, made if there is none; one that failed its user is not kept."""
        key = key, solver_in_force()  # programs are set up with the options in force
        with self._lock:
            thing = self._things.pop(key, None)
        thing = make() if thing is None else thing
        yield thing
        with self._lock:
            self._things[key] = thing
            while len(self._things) > _MOST:
                self._things.popitem(last=False)

    def __len__(self) -> int:
        return len(self._things)

    def __reduce__(self) -> tuple[type[Kept], tuple[()]]:
        return Kept, ()
