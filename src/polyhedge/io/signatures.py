"""Who made a model file: Ed25519 signatures over everything that is read of it.

Without a signature a file can have been made by anybody. A signature says that whoever holds a private key has made
this very content; whose key that is, only the reader can know. It is checked before anything of the file is read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyhedge._support.files import explained
from polyhedge.io.archive import ModelFileError

Key = str | Path | bytes
"""A key: the file that holds it, or its text (PEM)."""

_PURPOSE = b"polyhedge model file, signature 1\n"
"""Signed with the digest, so that a signature for something else never fits."""
_BEGINS = "-----BEGIN "
"""How the text of every key begins."""
# A key has some hundred bytes; whatever is longer is none.
_MOST_BYTES = 10_000


@dataclass(frozen=True)
class Signature:
    """What a file says of who signed it: raw public key and signature."""

    public_key: bytes
    value: bytes

    @property
    def fingerprint(self) -> str:
        """The key in few letters."""
        return _fingerprint(self.public_key)


def make_keys(path: str | Path) -> tuple[Path, str]:
    """Make a pair of keys: the private one in `path`, for nobody else to read, the public one in `path`.pub.

    Returns the file of the public key, and its fingerprint. Existing files are never replaced: who loses a private key
    cannot sign as before.
    """
    serialization, ed25519 = _cryptography()
    private_path = Path(path)
    public_path = private_path.with_name(f"{private_path.name}.pub")
    for existing in (private_path, public_path):
        if os.path.lexists(existing):
            raise ValueError(f"{existing} is there already, and keys are never replaced. Choose another name.")
    key = ed25519.Ed25519PrivateKey.generate()
    plain = serialization.NoEncryption()
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    with explained(private_path):
        private_path.parent.mkdir(parents=True, exist_ok=True)
        private = key.private_bytes(pem, pkcs8, plain)
        with _new_file(private_path, private, 0o600), _new_file(public_path, public, 0o644):
            pass
    return public_path, key_fingerprint(public)


@contextmanager
def _new_file(path: Path, content: bytes, mode: int) -> Iterator[None]:
    """Write a file that must not exist, with its permissions from the first byte on; gone if anything fails.

    Half a key would be in the way of the next attempt, since keys are never replaced.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def signature_of(digest: str, key: Key) -> bytes:
    """The member that signs a file with this digest."""
    serialization, ed25519 = _cryptography()
    private = _read_key(key, lambda text: serialization.load_pem_private_key(text, password=None), "private", "sign")
    if not isinstance(private, ed25519.Ed25519PrivateKey):
        raise ValueError("sign must be a private Ed25519 key. Make one with: polyhedge keygen KEY")
    public = private.public_key().public_bytes_raw()
    text = {"public_key": public.hex(), "signature": private.sign(_PURPOSE + digest.encode()).hex()}
    return json.dumps(text).encode()


def read_signature(member: bytes | None) -> Signature | None:
    """The signature of a file, not checked; None where there is none."""
    if member is None:
        return None
    try:
        text = json.loads(member)
        made = Signature(bytes.fromhex(text["public_key"]), bytes.fromhex(text["signature"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFileError("The signature of the file is damaged. Get the file again from its author.") from error
    if (len(made.public_key), len(made.value)) != (32, 64):
        raise ModelFileError("The signature of the file is damaged. Get the file again from its author.")
    return made


def check_signature(signature: Signature | None, digest: str, keys: Key | Sequence[Key]) -> str:
    """The fingerprint of the key among `keys` that has signed; `ModelFileError` where none has."""
    several: Any = [keys] if isinstance(keys, (str, Path, bytes)) else keys
    if not isinstance(several, Iterable) or not (several := list(several)):
        raise ValueError(f"verify must be a public key, a list of them, or None, got {keys!r}.")
    accepted = {raw: _fingerprint(raw) for raw in map(_raw_public_key, several)}
    if signature is None:
        raise ModelFileError(
            "The file is not signed: anybody can have made it. Ask its author for a file saved with sign=KEY "
            "(polyhedge fit --sign KEY), or leave verify out if you know where it comes from."
        )
    if signature.public_key not in accepted:
        raise ModelFileError(
            f"The file is signed with the key {signature.fingerprint} and not with {' or '.join(accepted.values())}. "
            "Ask its author which public key is theirs, and check it in another way than by mail with the file."
        )
    _, ed25519 = _cryptography()
    from cryptography.exceptions import InvalidSignature

    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(signature.public_key)
        key.verify(signature.value, _PURPOSE + digest.encode())
    except (InvalidSignature, ValueError) as error:
        raise ModelFileError(
            f"The file was changed after it had been signed with the key {signature.fingerprint}. "
            "Get it again from its author."
        ) from error
    return signature.fingerprint


def key_fingerprint(key: Key) -> str:
    """A public `key` in few letters, to compare by eye or by telephone."""
    return _fingerprint(_raw_public_key(key))


def _fingerprint(raw: bytes) -> str:
    digits = hashlib.sha256(raw).hexdigest()
    return "-".join(digits[k : k + 4] for k in range(0, 16, 4))


def _raw_public_key(key: Key) -> bytes:
    serialization, ed25519 = _cryptography()
    public = _read_key(key, serialization.load_pem_public_key, "public", "verify")
    if not isinstance(public, ed25519.Ed25519PublicKey):
        raise ValueError("verify must be a public Ed25519 key, as polyhedge keygen writes it to KEY.pub.")
    return bytes(public.public_bytes_raw())


def _read_key(key: Key, load: Any, kind: str, argument: str) -> Any:
    if isinstance(key, str) and key.lstrip().startswith(_BEGINS):
        key = key.encode()  # a text, and no name of a file: an error that quotes it would tell a private key
    if not isinstance(key, bytes):
        path = Path(key)
        if not path.is_file():
            raise FileNotFoundError(f"There is no key {path}. Make a pair of keys with: polyhedge keygen KEY")
        with path.open("rb") as stream:
            key = stream.read(_MOST_BYTES)
    try:
        return load(key)
    except Exception as error:  # whatever cryptography says of a text that is no key
        other = "the public key is in KEY.pub" if kind == "public" else "the private key is in KEY, not in KEY.pub"
        raise ValueError(f"{argument} must be a {kind} key as polyhedge keygen writes it; {other}.") from error


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise ImportError("Signatures need cryptography: pip install 'polyhedge[sign]'.") from error
    return serialization, ed25519
