"""What the study takes from inside the library: no other module here imports a private one of polyhedge.

The study is written, tested and versioned beside the library, so these names may change with it; users have no use for
them, and so they are not public.
"""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy as lazy

if TYPE_CHECKING:
    # Results appear whole or not at all, and of two runs in one folder the second waits.
    from polyhedge._support.files import (
        explained as explained,
        replace_file as replace_file,
        sole_writer as sole_writer,
    )

    # Names of others must not command a terminal.
    from polyhedge._support.text import printable as printable

    # What counts as optimal, and as rounding, is one number for both.
    from polyhedge._support.tolerances import OPTIMAL as OPTIMAL, ROUNDING as ROUNDING

    # Settings and arrays are refused in the library's words; the names of array types are one set for both.
    from polyhedge._support.validation import (
        Array as Array,
        Indices as Indices,
        Mask as Mask,
        as_finite as as_finite,
        as_rows as as_rows,
        check_alpha as check_alpha,
        check_count as check_count,
    )

    # A record names the packages that made it as model files do.
    from polyhedge._support.versions import versions as versions
else:  # imported when they are first used: the help of a command waits for no solver
    __getattr__, __dir__, __all__ = lazy(__name__)
