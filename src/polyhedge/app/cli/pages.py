"""Commands that draw: `report` and `plot`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhedge._support.files import check_writable, replace_file
from polyhedge._support.progress import progress
from polyhedge.app.cli.app import page_writer, say
from polyhedge.app.cli.options import (
    ModelFile,
    ModelTableOptions,
    command,
    names_in,
    opened,
    seen_before,
    tell_json,
    warn,
)

if TYPE_CHECKING:
    from polyhedge.app.report.model import ModelDetails
    from polyhedge.app.rows import TableRows
    from polyhedge.estimator import RobustDecider
    from polyhedge.predictors.columns import Schema

_SUFFIXES = (".png", ".svg", ".pdf")
HeldOutFile = Annotated[
    Path | None, typer.Argument(help="Rows that the model has not seen: a CSV or Parquet file with outcomes.")
]


class Picture(StrEnum):
    """What `polyhedge plot` can draw."""

    SET = "set"
    CURVE = "curve"
    MAP = "map"


@command
def report(
    *,
    path: Annotated[Path, typer.Argument(help="A folder with results, or a model file written by polyhedge fit.")],
    data: HeldOutFile = None,
    out: Annotated[Path | None, typer.Option(help="Page to write; report.html in the folder, or MODEL.html.")] = None,
    title: Annotated[str, typer.Option(help="Title of a model's page.")] = "",
    options: ModelTableOptions,
) -> None:
    """Write one HTML page that needs no network: of a study's results, or of a model.

    The page of a folder shows all tables and figures of polyhedge reproduce next to the paper's. The page of a model
    says what is decided, what is promised, and, with DATA, what was observed on rows that the model has not seen.

    Example: polyhedge report results

    Example: polyhedge report model.polyhedge fresh.csv --out model.html
    """
    if path.is_dir():
        if data is not None or title:
            raise ValueError("Held-out rows and --title are for the page of a model. A folder of results has its own.")
        with progress("writing the page"):
            page = page_writer()(path, out)
    else:
        page = check_writable(path.with_suffix(".html") if out is None else out)
        from polyhedge.app.report.model import model_report

        with progress("writing the page"):
            if data is not None:
                decider, _, _, rows = options.rows(path, data)
                details = _details(decider, path, title, rows.warnings, data)
                details = replace(details, groups=rows.groups)
                text = model_report(decider, rows.X, rows.Y, details, rows.parameters, rows.labels)
            else:  # without rows to read, a model that Python code has saved will do as well
                decider = options.model(path)
                text = model_report(decider, details=_details(decider, path, title, [], None))
            replace_file(page, text.encode())
    if options.as_json:
        tell_json({"page": page})
    else:
        say(f"Page: {page}")


def _details(
    decider: RobustDecider, path: Path, title: str, warnings: Sequence[str], data: Path | None
) -> ModelDetails:
    from polyhedge.app.report.model import ModelDetails
    from polyhedge.io.fit_record import FitRecord

    with opened(path):
        kept = FitRecord.read(decider.details_)
    facts = {"Model file": path.name}
    if kept is not None:
        new = kept.refreshed
        facts |= {
            "Fitted on": kept.file and f"{kept.file}, {kept.n_rows} rows",
            "Refreshed on": "" if new is None else f"{new.file}, {new.n_rows} rows",
            "Coverage observed when it was fitted": kept.coverage or "",
            "Features": ", ".join(kept.schema.feature_names),
        }
    facts |= {"Observed on": "" if data is None else data.name, "Digest of the data": decider.data_digest_[:16]}
    return ModelDetails(
        title=title,
        warnings=[*(() if kept is None else kept.warnings if len(decider.calibrations_) == 1 else ()), *warnings],
        facts={name: fact for name, fact in facts.items() if fact},
        commands=[f"polyhedge report {path}{'' if data is None else f' {data}'}"],
    )


@command
def plot(
    *,
    model: ModelFile,
    what: Annotated[Picture, typer.Argument(help="set: over residuals; curve: cost of coverage; map: decisions.")],
    data: Annotated[Path, typer.Argument(help="Rows that the model has not seen: a CSV or Parquet file.")],
    out: Annotated[Path, typer.Option(help="Picture to write: a .png, .svg or .pdf file.")],
    features: Annotated[str, typer.Option(help="Two feature columns of a map, separated by a comma.")] = "",
    show: Annotated[
        str, typer.Option(help="Colour of a map: a decision's name or cost_bound; the first decision by default.")
    ] = "",
    pair: Annotated[str, typer.Option(help="Two outcomes of a set, separated by a comma; all pairs by default.")] = "",
    options: ModelTableOptions,
) -> None:
    """Draw a model's set over residuals, what more certainty would cost, or what is decided where.

    Example: polyhedge plot model.polyhedge set fresh.csv --out set.png

    Example: polyhedge plot model.polyhedge map fresh.csv --features area,height --out map.svg
    """
    if out.suffix.lower() not in _SUFFIXES:
        raise ValueError(f"--out must end in {', '.join(_SUFFIXES)}, got {out.name!r}.")
    check_writable(out)
    decider, record, _, rows = options.rows(model, data)
    schema = record.schema
    warnings = [*rows.warnings, *seen_before(decider, rows)]
    from polyhedge import plots
    from polyhedge.plots.style import pyplot

    plt = pyplot()

    with progress("drawing"):
        if what is Picture.SET:
            ax = _draw_set(decider, schema, rows, names_in(pair))
        elif what is Picture.CURVE:
            ax = plots.cost_coverage(decider, rows.X, rows.Y, **rows.given)
        else:
            numeric = [column.name for column in schema.features if column.kind == "number"]
            two = names_in(features) or tuple(numeric[:2])
            if len(two) != 2:
                raise ValueError(f"A map needs two features, separated by a comma. Numeric ones: {', '.join(numeric)}.")
            ax = plots.decision_map(decider, rows.X, (two[0], two[1]), show=show or None, **rows.given)
        picture = io.BytesIO()
        ax.figure.savefig(picture, format=out.suffix[1:].lower(), dpi=160)
        plt.close(ax.figure)
        replace_file(out, picture.getvalue())
    if options.as_json:
        tell_json({"picture": out, "warnings": warnings})
        return
    warn(warnings)
    say(f"Picture: {out}")


def _draw_set(decider: RobustDecider, schema: Schema, rows: TableRows, pair: tuple[str, ...]) -> Any:
    from polyhedge import plots

    if decider.model_.guarantee != "outcome":
        raise ValueError(
            "The model has no set to draw: it bounds the cost of the decision that it returns. Fit it with --guarantee "
            "outcome, or draw curve or map."
        )
    outcomes = list(schema.outcomes)
    if not pair and len(outcomes) > 2:
        return plots.residual_pairs(decider, rows.X, rows.Y, parameters=rows.parameters)[0]
    unknown = [name for name in pair if name not in outcomes]
    if unknown or len(pair) not in (0, 2):
        raise ValueError(f"--pair must be two of the outcomes {', '.join(outcomes)}, got {', '.join(pair)!r}.")
    chosen = (outcomes.index(pair[0]), outcomes.index(pair[1])) if pair else (0, 1)
    return plots.residual_set(decider, rows.X, rows.Y, pair=chosen, parameters=rows.parameters)
