"""Signed model files: a reader with a public key accepts what its private key has signed, and nothing else."""

from __future__ import annotations

import errno
import io
import json
import os
import stat
import sys
import zipfile

import numpy as np
import pytest
from typer.testing import CliRunner

import polyhedge as ph
from polyhedge.app.cli import app
from polyhedge.io import key_fingerprint, make_keys
from polyhedge.io.archive import digest_of

X, Y = ph.data.make_synthetic(120, rng=np.random.default_rng(0))


@pytest.fixture(scope="module")
def decider():
    problem = ph.problems.simplex_linear([-0.08, 0.0])
    return ph.RobustDecider(problem, "precomputed", learner=ph.learners.OneSidedBox(), random_state=0).fit(Y * 0.8, Y)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    pytest.importorskip("cryptography")
    folder = tmp_path_factory.mktemp("keys")
    for name in ("team", "stranger"):
        make_keys(folder / name)
    return folder


def members_and_signature(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def test_what_is_signed_is_accepted_by_the_public_key_and_decides_the_same(decider, keys, path):
    decider.save(path, sign=keys / "team")
    twin = ph.load(path, verify=keys / "team.pub")
    assert np.array_equal(twin.decide(Y[:5]).cost_bound, decider.decide(Y[:5]).cost_bound)
    several = [(keys / "stranger.pub").read_bytes(), str(keys / "team.pub")]
    assert ph.load(path, verify=several).radius_ == decider.radius_


def test_what_is_not_signed_is_refused_where_a_key_is_given(decider, keys, path):
    decider.save(path)
    for read in (ph.load, ph.inspect_model):
        with pytest.raises(ph.ModelFileError, match=r"not signed: anybody can have made it.*sign=KEY"):
            read(path, verify=keys / "team.pub")


def test_what_another_key_has_signed_is_refused(decider, keys, path):
    decider.save(path, sign=keys / "stranger")
    names = f"{key_fingerprint(keys / 'stranger.pub')} and not with {key_fingerprint(keys / 'team.pub')}"
    with pytest.raises(ph.ModelFileError, match=names):
        ph.load(path, verify=keys / "team.pub")


@pytest.mark.parametrize("where", ["model.json", "arrays/0.npy", "a new member", "a missing member"])
def test_every_change_after_signing_is_refused(where, decider, keys, path):
    decider.save(path, {"note": 1}, sign=keys / "team")
    members = members_and_signature(path)
    if where == "a new member":
        members["arrays/new.npy"] = b"x"
    elif where == "a missing member":
        del members["arrays/0.npy"]
    else:
        members[where] = members[where][:-1] + bytes([members[where][-1] ^ 1])
    own = {name: content for name, content in members.items() if name not in ("digest.txt", "signature.json")}
    members["digest.txt"] = digest_of(own).encode()
    path.write_bytes(zipped(members))
    with pytest.raises(ph.ModelFileError, match=r"changed after it had been signed"):
        ph.load(path, verify=keys / "team.pub")


def test_nothing_of_a_file_is_read_before_its_signature_is_checked(decider, keys, path, monkeypatch):
    decider.save(path)
    monkeypatch.setattr("polyhedge.io.model.parse_json", lambda *_: pytest.fail("the description was read"))
    with pytest.raises(ph.ModelFileError, match=r"not signed"):
        ph.load(path, verify=keys / "team.pub")


def test_a_signature_from_another_file_does_not_fit(decider, keys, path):
    decider.save(path, {"note": 1}, sign=keys / "team")
    signature = members_and_signature(path)["signature.json"]
    decider.save(path, {"note": 2})
    path.write_bytes(zipped({**members_and_signature(path), "signature.json": signature}))
    with pytest.raises(ph.ModelFileError, match=r"changed after it had been signed"):
        ph.load(path, verify=keys / "team.pub")


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"public_key": "zz", "signature": "00"}', b'{"public_key": "00", "signature": ""}']
)
def test_a_damaged_signature_is_refused_also_without_a_key(content, decider, keys, path):
    decider.save(path)
    path.write_bytes(zipped({**members_and_signature(path), "signature.json": content}))
    with pytest.raises(ph.ModelFileError, match=r"signature of the file is damaged"):
        ph.load(path)


def test_keys_are_private_and_never_replaced(keys, tmp_path):
    public, fingerprint = make_keys(tmp_path / "own")
    assert public == tmp_path / "own.pub"
    assert fingerprint == key_fingerprint(public)
    assert len(fingerprint) == 19
    if sys.platform != "win32":
        assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o600
    before = (tmp_path / "own").read_bytes()
    with pytest.raises(ValueError, match=r"own is there already, and keys are never replaced"):
        make_keys(tmp_path / "own")
    (tmp_path / "own").rename(tmp_path / "moved")
    with pytest.raises(ValueError, match=r"own.pub is there already"):
        make_keys(tmp_path / "own")
    assert (tmp_path / "moved").read_bytes() == before
    assert not (tmp_path / "own").exists()


def test_the_wrong_half_of_a_key_is_an_error_that_says_so(decider, keys, path):
    with pytest.raises(ValueError, match=r"sign must be a private key.*not in KEY.pub"):
        decider.save(path, sign=keys / "team.pub")
    assert not path.exists()
    decider.save(path, sign=keys / "team")
    with pytest.raises(ValueError, match=r"verify must be a public key.*KEY.pub"):
        ph.load(path, verify=keys / "team")
    with pytest.raises(FileNotFoundError, match=r"There is no key .*polyhedge keygen"):
        ph.load(path, verify=keys / "nobody.pub")


def test_a_key_may_be_a_text_and_no_error_quotes_it(decider, keys, path):
    private, public = ((keys / name).read_text() for name in ("team", "team.pub"))
    decider.save(path, sign=f"\n{private}\n")
    assert ph.load(path, verify=[f"{public}\n\n"]).radius_ == decider.radius_
    halves = private.splitlines()
    for spoiled in (halves[0], "\n".join(halves[:2]), private.replace("PRIVATE", "STRANGE")):
        with pytest.raises(ValueError, match="sign must be a private key") as raised:
            decider.save(path, sign=spoiled)
        assert halves[1] not in str(raised.value)


@pytest.mark.parametrize("verify", [[], (), False, 7])
def test_no_key_at_all_verifies_nothing(decider, keys, path, verify):
    for sign in (keys / "team", None):
        decider.save(path, sign=sign)
        with pytest.raises(ValueError, match="verify must be a public key, a list of them, or None, got"):
            ph.load(path, verify=verify)


def test_inspecting_says_who_can_have_made_the_file(decider, keys, path):
    decider.save(path)
    assert "author     anybody: the file is not signed" in str(ph.inspect_model(path))
    decider.save(path, sign=keys / "team")
    own = key_fingerprint(keys / "team.pub")
    assert f"says it is signed with the key {own}, which was not verified" in str(ph.inspect_model(path))
    info = ph.inspect_model(path, verify=keys / "team.pub")
    assert (info.signed_by, info.is_verified) == (own, True)
    assert f"who holds the key {own}, whose signature was verified" in str(info)


def test_the_commands_make_keys_sign_and_verify(keys, tmp_path):
    def run(*arguments, code=0):
        done = CliRunner().invoke(app, list(map(str, arguments)))
        assert done.exit_code == code, done.output
        return done.output

    key, model, decisions = tmp_path / "own.key", tmp_path / "m.polyhedge", tmp_path / "d.csv"
    said = json.loads(run("keygen", key, "--json"))
    assert said["fingerprint"] == key_fingerprint(f"{key}.pub")
    run("keygen", key, code=2)
    names = ["a", "b", "c", "d", "u_1", "u_2"]
    rows = np.column_stack([X, Y])
    np.savetxt(tmp_path / "h.csv", rows, delimiter=",", header=",".join(names), comments="", fmt="%.17g")
    problem = 'outcomes = ["u_1", "u_2"]\ndecisions = ["x", "y"]\nlower = 0\nupper = 1\ncost = "u_1 * x + u_2 * y"\n'
    (tmp_path / "p.toml").write_text(problem)
    fit = ("fit", tmp_path / "h.csv", "--problem", tmp_path / "p.toml", "--predictor", "ridge")
    run(*fit, "--out", model, "--sign", key)
    history = tmp_path / "h.csv"
    run("decide", model, history, "--out", decisions, "--verify", f"{key}.pub")
    assert "was verified" in run("inspect", model, "--verify", f"{key}.pub")
    run("evaluate", model, history, "--verify", keys / "team.pub", code=2)
    run("recalibrate", model, history, "--out", model, "--verify", f"{key}.pub", "--sign", key)
    assert json.loads(run("inspect", model, "--json"))["signed_by"] == said["fingerprint"]
    run("recalibrate", model, history, "--out", model)
    decisions.unlink()
    assert "not signed" in run("decide", model, history, "--out", decisions, "--verify", f"{key}.pub", code=2)
    assert not decisions.exists()


@pytest.mark.parametrize("front", [b"#!/bin/sh\n", b"<html>", bytes(4)])
def test_a_signed_file_with_something_in_front_is_refused(decider, keys, path, front):
    decider.save(path, sign=keys / "team")
    path.write_bytes(front + path.read_bytes())
    for read in (ph.load, ph.inspect_model):
        with pytest.raises(ph.ModelFileError, match=r"something in front of the model"):
            read(path, verify=keys / "team.pub")


@pytest.mark.parametrize("n_written", [0, 1])
def test_keys_that_could_not_be_written_leave_nothing_in_the_way_of_the_next_attempt(tmp_path, monkeypatch, n_written):
    pytest.importorskip("cryptography")
    synced = iter([None] * n_written)

    def full(descriptor):
        if next(synced, "full") == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"team could not be written: No space left.*Make room"):
        make_keys(tmp_path / "team")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    make_keys(tmp_path / "team")
    assert len(list(tmp_path.iterdir())) == 2
