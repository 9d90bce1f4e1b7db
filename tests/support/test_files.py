"""Files appear whole or not at all, whoever else writes, whatever is killed, and however full the disk is."""

from __future__ import annotations

import ast
import errno
import os
import re
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import polyhedge_study
from polyhedge._support import files as _files
from polyhedge._support.files import new_file, new_folder, replace_file, sole_writer

SOURCE = Path(_files.__file__)
PACKAGE = SOURCE.parents[1]
posix = pytest.mark.skipif(sys.platform == "win32", reason="locks, modes and signals of POSIX systems")

# A process that knows nothing but the module under test starts in a few hundredths of a second.
CHILD = f"""
import importlib.util, os, signal, sys, time
from pathlib import Path
spec = importlib.util.spec_from_file_location("files", {str(SOURCE)!r})
files = importlib.util.module_from_spec(spec)
spec.loader.exec_module(files)
folder = Path(sys.argv[1])
"""


def child(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", "-E", "-c", CHILD + textwrap.dedent(code), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- many writers -----------------------------------------------------------------------------------------


def test_threads_that_write_the_same_file_never_fail_and_a_reader_never_meets_half_a_file(tmp_path: Path) -> None:
    path, size = tmp_path / "model", 200_000
    replace_file(path, b"." * size)
    failed: list[Exception] = []
    odd: Counter[int] = Counter()
    done = threading.Event()

    def write(letter: int) -> None:
        for _ in range(40):
            try:
                replace_file(path, bytes([letter]) * size)
            except Exception as error:
                failed.append(error)

    def read() -> None:
        while not done.is_set():
            content = path.read_bytes()
            odd[len(content) != size or len(set(content)) != 1] += 1

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=(letter,)) for letter in b"abcdef"]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert failed == []
    assert odd[True] == 0 < odd[False]
    assert names(tmp_path) == ["model"]


def test_processes_that_write_the_same_file_never_fail(tmp_path: Path) -> None:
    code = CHILD + "for _ in range(100):\n    files.replace_file(folder / 'model', sys.argv[2].encode() * 100_000)\n"
    writers = [
        subprocess.Popen([sys.executable, "-S", "-E", "-c", code, str(tmp_path), letter], stderr=subprocess.PIPE)
        for letter in "abc"
    ]
    assert [(writer.communicate(timeout=60)[1], writer.returncode) for writer in writers] == [(b"", 0)] * 3
    content = (tmp_path / "model").read_text()
    assert (len(content), len(set(content))) == (100_000, 1)
    assert names(tmp_path) == ["model"]


@posix
def test_a_live_writer_keeps_its_file_while_others_look_for_leftovers(tmp_path: Path) -> None:
    with new_file(tmp_path / "slow") as stream:
        for _ in range(3):
            replace_file(tmp_path / "quick", b"quick")
        stream.write(b"slow")
    with new_folder(tmp_path / "slow folder") as part:
        replace_file(tmp_path / "quick", b"quick")
        (part / "a").write_bytes(b"slow")
    assert (tmp_path / "slow").read_bytes() == (tmp_path / "slow folder" / "a").read_bytes() == b"slow"
    assert names(tmp_path) == ["quick", "slow", "slow folder"]


@posix
@pytest.mark.parametrize(
    "name", [".polyhedge-notes.part", ".polyhedge-model.lock", ".polyhedge-0123456789abcdef.part.txt"]
)
def test_hidden_files_of_others_stay_whatever_they_are_called(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    with _files.sole_writer(tmp_path / "study.csv"):
        assert all(_files._OURS.fullmatch(path.name) for path in tmp_path.iterdir() if path.name != name)
        replace_file(tmp_path / "note.txt", b"whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [name, "note.txt"]


def test_writer_whose_fresh_file_is_taken_for_a_leftover_makes_another(tmp_path: Path, monkeypatch) -> None:
    lock, stolen = _files._try_lock, []

    def late(handle: int, *, wait: bool = False) -> bool | None:
        if wait and not stolen:  # another writer comes in before the lock
            stolen.extend(tmp_path.glob(".polyhedge-*.part"))
            _files._remove_leftovers(tmp_path)
        return lock(handle, wait=wait)

    monkeypatch.setattr(_files, "_try_lock", late)
    replace_file(tmp_path / "model", b"whole")
    assert len(stolen) == 1
    assert not stolen[0].exists()
    assert (tmp_path / "model").read_bytes() == b"whole"


@posix
def test_file_that_grows_has_one_writer_and_a_killed_one_is_no_hindrance(tmp_path: Path) -> None:
    code = "with files.sole_writer(folder / 'study.csv'):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    assert child(code, tmp_path).returncode == -9
    assert len(names(tmp_path)) == 1
    with sole_writer(tmp_path / "study.csv"):
        replace_file(tmp_path / "study.csv", b"")  # looks for leftovers, and leaves the lock
        again = child("with files.sole_writer(folder / 'study.csv'): pass\n", tmp_path)
        assert "study.csv could not be written: another run is writing it; wait until" in again.stderr
        with sole_writer(tmp_path / "theory.csv"):
            pass
    assert names(tmp_path) == ["study.csv"]


# --- kills ------------------------------------------------------------------------------------------------

KILLED_AT_EVERY_LINE = """
    files.os.fsync = lambda handle: None  # a kill is no loss of power, and the disk is slow
    def traced(work, last):
        '''Run in a child that dies before the given line of the module; whether it lived.'''
        pid = os.fork()
        if not pid:
            count = 0
            def trace(frame, event, argument):
                nonlocal count
                if frame.f_code.co_filename == files.__file__ and event == "line":
                    count += 1
                    if count == last:
                        os.kill(os.getpid(), signal.SIGKILL)
                return trace
            sys.settrace(trace)
            work()
            sys.settrace(None)
            os._exit(0)
        return os.waitpid(pid, 0)[1] == 0

    def check(work, states, clean):
        for line in range(1, 2000):
            clean()
            lived = traced(work, line)
            assert states(lived), (line, lived, sorted(folder.iterdir()))
            files.replace_file(folder / "other", b"next")
            left = [path.name for path in folder.rglob(".polyhedge*")]
            assert not left, (line, left)
            if lived:
                return line
        raise AssertionError("does not end")
"""


@posix
def test_write_killed_at_any_line_leaves_the_old_or_the_new_file_and_the_next_write_cleans_up(tmp_path: Path) -> None:
    done = child(
        KILLED_AT_EVERY_LINE
        + """
    path = folder / "model"
    seen = set()
    def states(lived):
        seen.add(path.read_bytes())
        return path.read_bytes() == b"new" if lived else path.read_bytes() in (b"old", b"new")
    n = check(lambda: files.replace_file(path, b"new"), states, lambda: files.replace_file(path, b"old"))
    assert seen == {b"old", b"new"}
    print(n)
    """,
        tmp_path,
    )
    assert done.stderr == ""
    assert int(done.stdout) > 50


@posix
def test_folder_killed_at_any_line_is_whole_or_not_there(tmp_path: Path) -> None:
    done = child(
        KILLED_AT_EVERY_LINE
        + """
    import shutil
    target = folder / "results"
    def work():
        with files.new_folder(target) as part:
            for name in "ab":
                (part / name).write_bytes(b"whole")
    def states(lived):
        whole = target.exists() and [file.read_bytes() for file in target.iterdir()] == [b"whole"] * 2
        return whole if lived else whole or not target.exists()
    print(check(work, states, lambda: shutil.rmtree(target, ignore_errors=True)))
    """,
        tmp_path,
    )
    assert done.stderr == ""
    assert int(done.stdout) > 50


# --- what is kept -----------------------------------------------------------------------------------------


@posix
def test_permissions_of_a_replaced_file_stay_and_a_new_one_follows_the_mask(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(b"old")
    before = os.umask(0o027)
    try:
        for mode in (0o600, 0o664, 0o640):
            old.chmod(mode)
            with new_file(old) as stream:
                (part,) = tmp_path.glob(".polyhedge-*.part")
                assert stat.S_IMODE(part.stat().st_mode) == mode
                stream.write(b"changed")
            assert stat.S_IMODE(old.stat().st_mode) == mode
        replace_file(new, b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE(new.stat().st_mode) == 0o640
    if os.getuid() == 0:
        os.chown(old, 4321, 1234)
        replace_file(old, b"again")
        assert (old.stat().st_uid, old.stat().st_gid) == (4321, 1234)


@posix
def test_link_stays_a_link_and_its_target_is_replaced(tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    (shelf / "there").write_bytes(b"old")
    for name, target in (("link", "there"), ("dangling", "absent")):
        (tmp_path / name).symlink_to(Path("shelf") / target)
        replace_file(tmp_path / name, b"new")
        assert (tmp_path / name).is_symlink()
        assert (shelf / target).read_bytes() == b"new"
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OSError, match=r"round could not be written: Too many levels of symbolic links"):
        replace_file(tmp_path / "round", b"new")
    assert names(shelf) == ["absent", "there"]


@posix
def test_pipe_is_written_to_and_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    replace_file(pipe, b"through")
    reader.join()
    assert got == [b"through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_content_and_name_are_on_the_disk_in_this_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    sync, rename = os.fsync, os.replace

    def kind(handle: int) -> str:
        return "sync folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else f"sync {os.fstat(handle).st_size} bytes"

    monkeypatch.setattr("os.fsync", lambda handle: (calls.append(kind(handle)), sync(handle)))
    monkeypatch.setattr("os.replace", lambda *paths: (calls.append("rename"), rename(*paths)))
    replace_file(tmp_path / "model", b"12345")
    assert calls == ["sync 5 bytes", "rename", *([] if sys.platform == "win32" else ["sync folder"])]


# --- what fails -------------------------------------------------------------------------------------------

FULL = "could not be written: No space left on device. What was there before is unchanged. Make room or"


def small_disk(folder: Path) -> Callable[[], None] | None:
    """Mount a disk of 64 KiB, if the system lets us; what unmounts it."""
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True)
    return None if made.returncode else lambda: subprocess.run(["umount", str(folder)], check=True)  # type: ignore[return-value]


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a disk in memory")
def test_on_a_full_disk_the_old_file_stays_and_nothing_is_left(tmp_path: Path) -> None:
    unmount = small_disk(tmp_path)
    if unmount is None:
        pytest.skip("this user may not mount a disk")
    try:
        path = tmp_path / "model"
        replace_file(path, b"old")
        with pytest.raises(OSError, match=FULL) as caught:
            replace_file(path, b"x" * 200_000)
        assert caught.value.errno == errno.ENOSPC
        with pytest.raises(OSError, match=FULL), new_folder(tmp_path / "folder") as part:
            (part / "a").write_bytes(b"x" * 200_000)
        assert path.read_bytes() == b"old"
        assert names(tmp_path) == ["model"]
    finally:
        unmount()


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_whatever_call_fails_the_old_file_stays_and_nothing_is_left(tmp_path: Path, monkeypatch, call: str) -> None:
    path = tmp_path / "model"
    replace_file(path, b"old")

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(f"os.{call}", full)
    with pytest.raises(OSError, match=FULL):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["model"]


def test_error_of_the_writer_passes_through_and_leaves_nothing(tmp_path: Path) -> None:
    def fail(place: Callable[[Path], object]) -> None:
        with place(tmp_path / "model"):  # type: ignore[attr-defined]
            raise ValueError("no more rows")

    for place in (new_file, new_folder):
        with pytest.raises(ValueError, match="no more rows"):
            fail(place)
    assert names(tmp_path) == []


@posix
@pytest.mark.parametrize(
    ("protect", "what"), [("folder", "Permission denied|write-protected"), ("file", "write-protected")]
)
def test_write_protected_place_is_named_and_left_alone(protect: str, what: str) -> None:
    # The superuser may write anywhere, so the child becomes nobody, who may not enter pytest's own folders.
    with tempfile.TemporaryDirectory() as root:
        Path(root).chmod(0o755)
        _check_write_protected(Path(root) / "shelf", protect, what)


def _check_write_protected(place: Path, protect: str, what: str) -> None:
    place.mkdir()
    (place / "model").write_bytes(b"old")
    code = f"""
    if os.getuid() == 0:
        os.chown(folder, 65534, 65534); os.chown(folder / "model", 65534, 65534); os.setuid(65534)
    os.chmod(folder / "model" if {protect!r} == "file" else folder, 0o444 if {protect!r} == "file" else 0o555)
    for attempt in (lambda path: files.replace_file(path, b"new"), files.check_writable):
        try:
            attempt(folder / "model")
        except PermissionError as error:
            print(error)
    """
    done = child(code, place)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert re.search(f"model could not be written: .*({what}).*unchanged. Name a file in a folder that you", line)
    assert (place / "model").read_bytes() == b"old"
    assert names(place) == ["model"]


# --- the house --------------------------------------------------------------------------------------------


def writes(path: Path, package: Path) -> list[str]:
    """Calls in a module that write to a path of their own."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        modes = [
            text.value for text in ast.walk(node) if isinstance(text, ast.Constant) and isinstance(text.value, str)
        ]
        opens = name == "open" and any(set(mode) & set("wax+") and len(mode) <= 3 for mode in modes)
        if opens or name in ("write_text", "write_bytes", "touch", "mkstemp", "NamedTemporaryFile", "symlink_to"):
            found.append(f"{path.relative_to(package)}: {name}")
    return found


def test_every_file_is_written_at_one_place() -> None:
    packages = (PACKAGE, Path(polyhedge_study.__file__).parent)
    files = [(package, path) for package in packages for path in sorted(package.rglob("*.py")) if path != SOURCE]
    found = [call for package, path in files for call in writes(path, package)]
    # Inside a hidden folder of ours, in a folder of the system for what is handed to a child, and a table that grows.
    assert found == [
        "distributed/parquet.py: open",
        "speed/peers.py: write_text",
        "speed/recourse_peers.py: write_text",
        "tidy.py: open",
    ]
