"""Load mutated model files in a process of its own and tell what happened, as one line of JSON.

Usage: python fuzz_model_files.py DIRECTORY N SEED. The directory holds whole models; the process watches itself for
anything that a file could make it run, and reports its peak memory.
"""

from __future__ import annotations

import io
import json
import resource
import struct
import sys
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import numpy as np

import polyhedge as ph
from polyhedge.io.archive import MAX_BYTES, digest_of, pack, unpack

FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.", "pickle.", "shutil.")
FORBIDDEN += ("os.remove", "os.rename", "os.mkdir", "os.chmod", "ctypes.", "code.__new__", "urllib.")
ODD = (None, True, -1, 0, 2**31, 2**63, 10**30, "", "x" * 5000, "../../x", [], {}, [[[]]], {"$float": "nan"})
ODD += ({"$float": "inf"}, {"$float": "0x1p+1000"}, {"$array": "arrays/0.npy"}, {"$array": "../x"}, 1e308, "eval")


def main(directory: str, n: int, seed: int) -> dict[str, object]:
    rng = np.random.default_rng(seed)
    models = [path.read_bytes() for path in sorted(Path(directory).glob("*.polyhedge"))]
    target = Path(directory) / "mutated.bin"
    use(target, models)  # warm: what is imported now is not imported by a mutated file
    events: list[str] = []
    watching = [False]
    sys.addaudithook(lambda name, _: events.append(name) if watching[0] and name.startswith(FORBIDDEN) else None)
    outcomes: Counter[str] = Counter()
    crashes: list[str] = []
    for i in range(n):
        kind, content = mutated(models, i, rng)
        target.write_bytes(content)
        watching[0] = True
        try:
            outcomes[f"{kind}: {attempt(target)}"] += 1
        except BaseException as error:  # anything here is a finding
            crashes.append(f"{kind}, number {i}: {type(error).__name__}: {error}")
        watching[0] = False
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"outcomes": outcomes, "crashes": crashes, "events": sorted(set(events)), "peak": peak}


def mutated(models: list[bytes], i: int, rng: np.random.Generator) -> tuple[str, bytes]:
    """The i-th mutation: first each dangerous archive once, then the other kinds in turn."""
    if i < len(HOSTILE):
        return HOSTILE[i].__name__, HOSTILE[i](unpack(io.BytesIO(models[i % len(models)])))
    kind = list(MUTATIONS)[i % len(MUTATIONS)]
    return kind, MUTATIONS[kind](models[rng.integers(len(models))], rng)


def use(target: Path, models: list[bytes]) -> None:
    for content in models:
        target.write_bytes(content)
        assert attempt(target) == "loaded"


def attempt(path: Path) -> str:
    """Inspect and load; a model that passes every check must also be usable without killing the process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an edited version number of scikit-learn is worth a warning, no more
        try:
            ph.inspect_model(path)
            decider = ph.load(path)
        except ph.ModelFileError:
            return "refused"
        try:
            decider.decide(np.ones((3, 2 if decider.predictor == "precomputed" else 4)))
        except Exception as error:
            return f"loaded, cannot decide: {type(error).__name__}"
    return "loaded"


def flip(content: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(content)
    for position in rng.integers(len(changed), size=rng.integers(1, 8)):
        changed[position] ^= int(rng.integers(1, 256))
    return bytes(changed)


def truncate(content: bytes, rng: np.random.Generator) -> bytes:
    return content[: int(rng.integers(len(content)))]


def insert(content: bytes, rng: np.random.Generator) -> bytes:
    position = int(rng.integers(len(content) + 1))
    return content[:position] + rng.bytes(int(rng.integers(1, 200))) + content[position:]


def edit(content: bytes, rng: np.random.Generator, *, fix: bool) -> bytes:
    """Change one member and, with `fix`, make the digest match again, as an attacker would."""
    members = unpack(io.BytesIO(content))
    digest = digest_of(members)
    names = [name for name in members if name.endswith(".json")] if rng.random() < 0.7 else list(members)
    name = names[rng.integers(len(names))]
    action = rng.random()
    if action < 0.05:
        del members[name]
    elif action < 0.1:
        members[name] = rng.bytes(100)
    elif name.endswith(".json"):
        document = json.loads(members[name])
        for _ in range(int(rng.integers(1, 4))):
            spoil(document, rng)
        members[name] = json.dumps(document).encode()
    else:
        members[name] = flip(members[name], rng)
    return pack(members) if fix else zipped({**members, "digest.txt": digest.encode()})


def spoil(document: object, rng: np.random.Generator) -> None:
    """Replace, drop or copy a random place of a JSON document."""
    places: list[tuple[object, object]] = []

    def walk(item: object) -> None:
        pairs = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
        for key, value in list(pairs):
            places.append((item, key))
            walk(value)

    walk(document)
    if not places:
        return
    (owner, key), (other, other_key) = (places[rng.integers(len(places))] for _ in range(2))
    action = rng.random()
    if action < 0.6:
        owner[key] = deepcopy(ODD[rng.integers(len(ODD))])
    elif action < 0.8:
        owner[key] = deepcopy(other[other_key])
    else:
        del owner[key]


def zipped(members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return stream.getvalue()


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def header_edit(content: bytes, rng: np.random.Generator) -> bytes:
    """Arrays that announce what they are not."""
    members = unpack(io.BytesIO(content))
    names = [name for name in members if name.endswith(".npy")]
    shapes = ["(1000000000000,)", "(-1,)", "(2, 3, 4)", "()", "(0,)", "(99999999999999999999,)", "'x'", "((1,),)"]
    types = ["'<f8'", "'|O'", "'<f4'", "'|V9999999999'", "[('a', '<f8')]", "'<U1000000000'", "'x'", "'>f8'"]
    shape, dtype = shapes[rng.integers(len(shapes))], types[rng.integers(len(types))]
    header = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}"
    members[names[rng.integers(len(names))]] = npy(header, rng.bytes(int(rng.integers(0, 64))))
    return pack(members)


def bomb(members: dict[str, bytes]) -> bytes:
    return pack({**members, "arrays/bomb.npy": bytes(MAX_BYTES)})


def lying_bomb(members: dict[str, bytes]) -> bytes:
    """A member whose header says 100 bytes and whose stream unpacks to a quarter of a gigabyte."""
    content = bytearray(zipped({**members, "arrays/bomb.npy": bytes(2**28)}))
    size = struct.pack("<I", 2**28)
    position = content.find(size)
    while position >= 0:
        content[position : position + 4] = struct.pack("<I", 100)
        position = content.find(size)
    return bytes(content)


def heavy(members: dict[str, bytes]) -> bytes:
    """A predictor, or else a set, of the largest size that is let in, packed into few bytes."""
    names = [name for name in members if name.endswith(".npy")]
    name = max(names, key=lambda name: (name.startswith("predictor/"), len(members[name])))
    n = (MAX_BYTES - sum(map(len, members.values())) - 1024) // 8
    return pack({**members, name: npy(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({n},), }}", bytes(8 * n))})


def json_bomb(members: dict[str, bytes]) -> bytes:
    return pack({**members, "details.json": b'{"a": [' + b"[]," * (5 * 2**19) + b"1]}"})


def deep_json(members: dict[str, bytes]) -> bytes:
    return pack({**members, "model.json": b"[" * 10**6})


def deep_formula(members: dict[str, bytes]) -> bytes:
    document = json.loads(members["model.json"])
    tree = {"leaf": "u"}
    for _ in range(300):
        tree = {"atom": "NegExpression", "args": [tree], "data": []}
    document["problem"]["stored"]["cost"] = [tree]
    return pack({**members, "model.json": json.dumps(document).encode()})


def wide_formula(members: dict[str, bytes]) -> bytes:
    document = json.loads(members["model.json"])
    tree = {"atom": "Promote", "args": [{"constant": 1}], "data": [{"tuple": [10**9, 10]}]}
    document["problem"]["stored"]["cost"] = [{"atom": "Sum", "args": [tree], "data": [None, False]}]
    return pack({**members, "model.json": json.dumps(document).encode()})


def traversal(members: dict[str, bytes]) -> bytes:
    return pack({**members, "../../outside.npy": b"x"})


def absolute(members: dict[str, bytes]) -> bytes:
    return pack({**members, "/tmp/outside.json": b"{}"})


def duplicate(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO(pack(members))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(stream, "a") as archive:
            archive.writestr("model.json", members["model.json"])
    return stream.getvalue()


def crowd(members: dict[str, bytes]) -> bytes:
    """A directory that announces a million members."""
    entry = struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0) + b"a.json"
    directory = entry * 100_000
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0xFFFE, 0xFFFE, len(directory), 0, 0)
    return directory + end


def evil(loader: str) -> Callable[[dict[str, bytes]], bytes]:
    """A predictor that asks for a system call when it is made, in one of the ways skops has to make objects."""

    def build(members: dict[str, bytes]) -> bytes:
        text = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "content": '"exit 3"'}
        args = {"__class__": "tuple", "__module__": "builtins", "__loader__": "TupleNode", "content": [text]}
        node = {"__class__": "system", "__module__": "os", "__loader__": loader, "content": args, "key_types": args}
        node |= {"__reduce__": {"args": args}, "attrs": args, "protocol": 2, "_skops_version": "0.16.0"}
        document = json.loads(members["model.json"])
        document["predictor"]["kind"] = "trained"
        schema = {"predictor/schema.json": json.dumps(node).encode()}
        return pack({**members, **schema, "model.json": json.dumps(document).encode()})

    build.__name__ = f"evil {loader}"
    return build


HOSTILE = (
    bomb,
    heavy,
    lying_bomb,
    json_bomb,
    deep_json,
    deep_formula,
    wide_formula,
    traversal,
    absolute,
    duplicate,
    crowd,
)
HOSTILE += tuple(
    evil(f"{kind}Node") for kind in ("ConstructorFromReduce", "Loss", "Object", "Function", "Dict", "Type")
)
MUTATIONS = {
    "flip": flip,
    "edit with digest": lambda content, rng: edit(content, rng, fix=True),
    "truncate": truncate,
    "edit with digest again": lambda content, rng: edit(content, rng, fix=True),
    "insert": insert,
    "edit": lambda content, rng: edit(content, rng, fix=False),
    "header": header_edit,
    "edit with digest once more": lambda content, rng: edit(content, rng, fix=True),
}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
