"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write beside the target and rename, so that a reader never meets half a file.

    Missing folders are made; an existing file is replaced.

    Examples
    --------
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "new" / "note.txt"
    >>> replace_file(target, b"whole")
    >>> target.read_bytes(), len(list(target.parent.iterdir()))
    (b'whole', 1)
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
