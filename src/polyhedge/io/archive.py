"""The container: a zip of few plain members with a digest over all of them, read with hard limits."""

from __future__ import annotations

import hashlib
import io
import re
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import BinaryIO, cast

MAX_BYTES = 128 * 2**20
"""Unpacked size that `load` accepts by default; it takes three times as much memory while it is read."""
_JSON_SHARE = 16
"""One part in so many may be JSON, which takes far more memory when it is read than arrays do."""
_PACKED_FREELY = 4
"""Up to one part in so many of `max_bytes`, it does not matter how small a file is; zeros pack a thousandfold."""
_MOST_PACKED = 100
"""Beyond that, a file may unpack to so many times its size; forests and tables of numbers do to ten times."""
# A model has some dozens of arrays, and a predictor's forest a few for each tree.
_MAX_MEMBERS = 20_000
# Two hundred bytes for each member.
_MAX_DIRECTORY_BYTES = 4 * 2**20
_DIGEST = "digest.txt"
_SIGNATURE = "signature.json"
_NAME = re.compile(r"(?:[a-z]+/)?[A-Za-z0-9_-]+\.(?:json|npy|txt)")
_END_OF_DIRECTORY = struct.Struct("<4sHHHHIIH")
_ZIP64_LOCATOR = b"PK\x06\x07"
# Members are unpacked in parts of 64 KiB, so that one that lies about its size is caught early.
_PART = 2**16


class ModelFileError(ValueError):
    """A model file is damaged, edited, hostile or of another version; nothing of it was run.

    Examples
    --------
    >>> import polyhedge as ph
    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile(suffix=".polyhedge") as file:
    ...     try:
    ...         ph.load(file.name)
    ...     except ModelFileError as error:
    ...         print(type(error).__name__)
    ModelFileError
    """


@dataclass(frozen=True)
class Archive:
    """What an archive holds: its members, the digest that they have, and what signs that digest."""

    members: dict[str, bytes]
    digest: str
    signature: bytes | None


def pack(members: Mapping[str, bytes], sign: Callable[[str], bytes] | None = None) -> bytes:
    """The bytes of an archive with these members, a digest over them, and what `sign` makes of the digest.

    Examples
    --------
    >>> bytes(unpack(io.BytesIO(pack({"note.json": b"{}"})))["note.json"])
    b'{}'
    """
    digest = digest_of(members)
    seals = {_DIGEST: digest.encode()} | ({} if sign is None else {_SIGNATURE: sign(digest)})
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**members, **seals}.items():
            # A fixed date: the same model gives the same bytes.
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def digest_of(members: Mapping[str, bytes]) -> str:
    """SHA-256 over names, lengths and contents, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(members):
        digest.update(f"{name}\0{len(members[name])}\0".encode())
        digest.update(members[name])
    return digest.hexdigest()


def unpack(stream: BinaryIO, max_bytes: int = MAX_BYTES) -> dict[str, bytes]:
    """The members of an archive, checked against their digest; `ModelFileError` for everything else."""
    return open_archive(stream, max_bytes).members


def open_archive(stream: BinaryIO, max_bytes: int = MAX_BYTES) -> Archive:
    """The members of an archive with the digest that they have.

    Sizes are limited before and while members are unpacked, because a header may lie about them.
    """
    n_bytes = _check_directory(stream, max_bytes)
    try:
        with zipfile.ZipFile(stream) as archive:
            _check_sizes(archive.infolist(), n_bytes, max_bytes)
            members = _read_members(archive)
    except ModelFileError:
        raise
    except Exception as error:  # zipfile raises many kinds for damaged input; all mean the same here
        raise ModelFileError(f"The file is damaged: {error}. Copy or save the model again.") from error
    stored, signature = members.pop(_DIGEST, None), members.pop(_SIGNATURE, None)
    digest = digest_of(members)
    if stored != digest.encode():
        raise ModelFileError(
            "The file's digest does not match its content: it was edited or damaged. Copy or save the model again."
        )
    return Archive(members, digest, signature)


def bytes_needed(members: Mapping[str, bytes], n_bytes: int) -> int:
    """The least `max_bytes` with which these members, packed into `n_bytes`, are accepted.

    A few bytes for the digest are included.
    """
    n_json = sum(len(member) for name, member in members.items() if name.endswith(".json"))
    unpacked = sum(map(len, members.values())) + 64
    return max(unpacked * (_PACKED_FREELY if unpacked > _MOST_PACKED * n_bytes else 1), _JSON_SHARE * n_json)


def _check_directory(stream: BinaryIO, max_bytes: int) -> int:
    """The size of the file; its end record must be the last thing in it and announce a small directory."""
    size = stream.seek(0, io.SEEK_END)
    if size > max_bytes:
        raise ModelFileError(_too_large(max_bytes))
    last = min(size, _END_OF_DIRECTORY.size + 20)
    stream.seek(size - last)
    tail = stream.read(last)  # with a limit: a device says that it is empty, and has no end
    end = _END_OF_DIRECTORY.unpack(tail[-_END_OF_DIRECTORY.size :]) if size >= _END_OF_DIRECTORY.size else (b"",) * 8
    if end[0] != b"PK\x05\x06" or end[7] != 0:
        raise ModelFileError("This is not a whole polyhedge model file. Was it cut off, or is it another file?")
    is_zip64 = tail[: -_END_OF_DIRECTORY.size].startswith(_ZIP64_LOCATOR)
    if is_zip64 or end[4] > _MAX_MEMBERS or end[5] > _MAX_DIRECTORY_BYTES:
        raise ModelFileError(f"A model file has at most {_MAX_MEMBERS} members, this one announces more.")
    return size


def _check_sizes(entries: list[zipfile.ZipInfo], n_bytes: int, max_bytes: int) -> None:
    """What a file of `n_bytes` says it unpacks to; nothing has been unpacked yet."""
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > max_bytes:
        raise ModelFileError(_too_large(max_bytes))
    if unpacked > max(max_bytes // _PACKED_FREELY, _MOST_PACKED * n_bytes):
        raise ModelFileError(
            f"The file has {n_bytes} bytes and unpacks to {unpacked}, more than {_MOST_PACKED} times as many and more "
            f"than {max_bytes // _PACKED_FREELY}. If you expect that, pass a larger max_bytes: "
            f"{_PACKED_FREELY * unpacked} (--max-bytes)."
        )
    n_json = sum(entry.file_size for entry in entries if entry.filename.endswith(".json"))
    if n_json > max_bytes // _JSON_SHARE:
        raise ModelFileError(
            f"The descriptions in the file have {n_json} bytes, more than {max_bytes // _JSON_SHARE}. "
            "If you expect that, pass a larger max_bytes (--max-bytes)."
        )


def _read_members(archive: zipfile.ZipFile) -> dict[str, bytes]:
    entries = archive.infolist()
    if min((entry.header_offset for entry in entries), default=0):
        # Nothing of it would be read, but a signed model must not be a script or a page of somebody else as well.
        raise ModelFileError("The file has something in front of the model. Get it again from its author.")
    names = [entry.filename for entry in entries]
    if len(set(names)) < len(names):
        raise ModelFileError("The file has two members of the same name. Save the model again.")
    strange = [name for name in names if not _NAME.fullmatch(name)]
    if strange:
        raise ModelFileError(f"The file has a member with the unexpected name {strange[0][:80]!r}.")
    members = {}
    for entry in entries:
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ModelFileError(f"The member {entry.filename} is compressed in an unexpected way.")
        content = bytearray()
        with archive.open(entry) as stream:
            # With a limit: without one, all of a stream that is longer than it says would be unpacked. In parts: they
            # are put where they stay, while the room for all at once would be taken twice.
            while part := stream.read(min(_PART, entry.file_size - len(content))):
                content += part
        if len(content) != entry.file_size:
            raise ModelFileError(f"The member {entry.filename} is shorter than it says.")
        # All that takes bytes takes these too; being no copies, arrays can be read from them without another copy.
        members[entry.filename] = cast("bytes", content)
    return members


def _too_large(max_bytes: int) -> str:
    return (
        f"The model is larger than {max_bytes} bytes when unpacked. "
        "If you expect that, pass a larger max_bytes (--max-bytes)."
    )
