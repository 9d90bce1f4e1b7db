"""Files that appear whole or not at all: every file of the library is written here.

What is written goes into a hidden file next to the target, to the disk, and then under its name. The hidden file is
locked while its writer lives; the next writer in the folder removes those whose lock is free, which a kill has left.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

# Names that nobody else would choose: what is removed must have been made here.
_OURS = re.compile(r"\.polyhedge-[0-9a-f]{16}\.(?:part|lock)")
_IS_WINDOWS = sys.platform == "win32"
# Without locks only time can tell: no writer is at one file for a day.
_ABANDONED_SECONDS = 86_400.0
# A fresh file loses its name only to another writer who looks for leftovers between two of our system calls.
_TRIES = 100
# Who looks for leftovers holds a lock for a moment only.
_PATIENCE_SECONDS = 1.0
_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ADVICE = {
    **dict.fromkeys(_FULL, "Make room or name a folder elsewhere."),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "Name a file in a folder that you may write to."),
}


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, see `new_file`."""
    with new_file(path) as stream:
        stream.write(content)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A stream for the new content of a file, which takes its name when the block ends without an error.

    Missing folders are made. An existing file is replaced and keeps its permissions, and its owner where we may give
    it away; a link stays, and what it points to is replaced. Any number of threads and processes may write the same
    file: a reader finds the content of one of them. Once the block has ended, the file also survives a loss of power.
    What is no file, such as a pipe or a device, is written to as it is.

    Examples
    --------
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with new_file(target) as stream:
    ...     _ = stream.write(b"whole")
    ...     target.exists()
    False
    >>> target.read_bytes()
    b'whole'
    """
    if _is_stream(path):
        with explained(path, _FULL), path.open("wb") as stream:
            yield stream
        return
    with explained(path):
        target = _place(path)
        part, handle = _begin_file(target)
    stream = os.fdopen(handle, "wb")
    try:
        with explained(path, _FULL):
            yield stream
        with explained(path):
            stream.flush()
            os.fsync(handle)
            if _IS_WINDOWS:
                stream.close()
            _rename(part, target)
    finally:
        # On a full disk, closing would raise once more and hide the reason.
        with suppress(OSError):
            stream.close()
        part.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A hidden folder to fill, which takes its name when the block ends without an error; else it is removed.

    The folder must not exist yet: unlike a file, it cannot be replaced at one stroke.
    """
    with explained(path):
        target = _place(path)
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        part, handle = _locked(target, _begin_folder)
    try:
        with explained(path, _FULL):
            yield part
        with explained(path):
            for place, _, names in os.walk(part, topdown=False):
                for name in names:
                    with (Path(place) / name).open("r+b") as stream:
                        os.fsync(stream.fileno())
                _sync_folder(Path(place))
            _rename(part, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        os.close(handle)


@contextmanager
def sole_writer(path: Path) -> Iterator[None]:
    """Raise where another process is inside such a block for the same file, which grows and has one writer."""
    with explained(path):
        target = _place(path)
        digits = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]
        lock = target.with_name(f".polyhedge-{digits}.lock")
        for _ in range(_TRIES):
            handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
            is_ours = _try_lock(handle)
            if is_ours is None or (is_ours and os.fstat(handle).st_nlink):
                break
            os.close(handle)
            time.sleep(_PATIENCE_SECONDS / _TRIES)
        else:
            advice = "another run is writing it; wait until that has ended, or name another folder"
            raise BlockingIOError(errno.EAGAIN, advice)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)


def check_writable(path: str | Path) -> Path:
    """Raise early, before any work is done, where a file could not be written."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder. Name a file in it.")
    with explained(path):
        target = path if _is_stream(path) else Path(os.path.realpath(path))
        there = next(place for place in (target, *target.parents) if place.exists())
        if there != target and not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{there} is no folder")
        # A file is replaced, and that is up to its folder as well.
        for place in (there, there.parent) if there.is_file() else (there,):
            if not os.access(place, os.W_OK):
                raise PermissionError(errno.EACCES, f"{place} is write-protected")
    return path


@contextmanager
def explained(path: Path, only: Container[int] | None = None) -> Iterator[None]:
    """Say which file could not be written and why, and that nothing is lost."""
    try:
        yield
    except OSError as error:
        if only is not None and error.errno not in only:
            raise
        reason = error.strerror or str(error)
        advice = _ADVICE.get(error.errno or 0, "")
        text = f"{path} could not be written: {reason}. What was there before is unchanged. {advice}".rstrip()
        explained = type(error)(text)
        explained.errno = error.errno
        raise explained from error


def _is_stream(path: Path) -> bool:
    """Whether a path names a pipe, a terminal or a device: renaming would put a file in its place."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _place(path: Path) -> Path:
    """Where a file belongs: behind links, in a folder that is there and holds no leftovers."""
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    _make_folders(target.parent)
    _remove_leftovers(target.parent)
    return target


def _make_folders(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folders(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _begin_file(target: Path) -> tuple[Path, int]:
    """A new file next to the target, empty and locked, with the target's permissions."""
    try:
        old = target.stat()
    except FileNotFoundError:
        old = None
    if old is not None and stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if old is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "the file is write-protected")
    # Nobody may read a private file while it is written. For a new one the system applies the user's mask.
    mode = 0o666 if old is None else 0o600
    part, handle = _locked(target, lambda part: os.open(part, _NEW_FILE, mode))
    if old is not None and not _IS_WINDOWS:
        with suppress(OSError):  # only the superuser may give a file away
            os.fchown(handle, old.st_uid, old.st_gid)
        with suppress(OSError):  # a drive without permissions
            os.fchmod(handle, stat.S_IMODE(old.st_mode))
    return part, handle


def _begin_folder(part: Path) -> int | None:
    part.mkdir()
    try:
        # Windows cannot open a folder, and has no locks for it.
        return os.open(os.devnull if _IS_WINDOWS else part, os.O_RDONLY)
    except FileNotFoundError:
        return None


def _locked(target: Path, begin: Callable[[Path], int | None]) -> tuple[Path, int]:
    """A new file or folder next to the target, and the handle that holds its lock."""
    for _ in range(_TRIES):
        part = target.with_name(f".polyhedge-{secrets.token_hex(8)}.part")
        handle = begin(part)
        # Until it is locked, another writer may take it for a leftover and remove it.
        if handle is not None:
            if _try_lock(handle, wait=True) is None or part.exists():
                return part, handle
            os.close(handle)
    raise BlockingIOError(errno.EAGAIN, "other writers are in the way")


def _rename(part: Path, target: Path) -> None:
    """Give the content its name, on the disk too."""
    os.replace(part, target)
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Names are on the disk only when the folder is; Windows has no such call, nor have some network drives."""
    if _IS_WINDOWS:
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


def _remove_leftovers(folder: Path) -> None:
    with os.scandir(folder) as entries:
        parts = [Path(entry.path) for entry in entries if _OURS.fullmatch(entry.name) and not entry.is_symlink()]
    for part in parts:
        handle = None
        # What another user owns, or another writer has just removed, is none of our business.
        with suppress(OSError):
            age = time.time() - part.stat().st_mtime
            # Not to wait for the other end, where somebody has put a pipe under such a name.
            handle = None if _IS_WINDOWS else os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            is_free = None if handle is None else _try_lock(handle)
            if is_free or (is_free is None and age > _ABANDONED_SECONDS):
                shutil.rmtree(part) if part.is_dir() else part.unlink()
        if handle is not None:
            os.close(handle)


def _try_lock(handle: int, *, wait: bool = False) -> bool | None:
    """Whether the lock is ours now; None where there are no locks. The system frees it when its holder dies."""
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
