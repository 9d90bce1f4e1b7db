"""The user's own tables: read, understood, predicted from and written."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.app.tables.as_csv import csv_text
    from polyhedge.app.tables.fitting import FittedTable, fit_table
    from polyhedge.app.tables.labels import labels_or_weights
    from polyhedge.app.tables.limits import MAX_VALUES
    from polyhedge.app.tables.options import TableOptions
    from polyhedge.app.tables.parameters import Sources, parameters_of, read_sources, sources_of, take_parameters
    from polyhedge.app.tables.reading import read_table
    from polyhedge.app.tables.roles import copies_of, groups_of, row_prints, times_of
    from polyhedge.app.tables.rows import decide_table, decisions_frame, measure_table, quick_volume, thinned_coverage
    from polyhedge.app.tables.usable import UsableRows, order_outcomes, usable_rows
    from polyhedge.app.tables.writing import check_target, write_table
    from polyhedge.diagnostics import Code, Diagnostic, few_rows_diagnostic
    from polyhedge.io.fit_record import FitRecord, Refreshed
    from polyhedge.predictors import PREDICTORS
    from polyhedge.predictors.schema import Column, Schema, choose_columns, features_of, outcomes_of
    from polyhedge.predictors.selection import choose_predictor, make_predictor
    from polyhedge.predictors.table import Table, text_of, values_of
else:  # imported when they are first used
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "MAX_VALUES",
    "PREDICTORS",
    "Code",
    "Column",
    "Diagnostic",
    "FitRecord",
    "FittedTable",
    "Refreshed",
    "Schema",
    "Sources",
    "Table",
    "TableOptions",
    "UsableRows",
    "check_target",
    "choose_columns",
    "choose_predictor",
    "copies_of",
    "csv_text",
    "decide_table",
    "decisions_frame",
    "features_of",
    "few_rows_diagnostic",
    "fit_table",
    "groups_of",
    "labels_or_weights",
    "make_predictor",
    "measure_table",
    "order_outcomes",
    "outcomes_of",
    "parameters_of",
    "quick_volume",
    "read_sources",
    "read_table",
    "row_prints",
    "sources_of",
    "take_parameters",
    "text_of",
    "thinned_coverage",
    "times_of",
    "usable_rows",
    "values_of",
    "write_table",
]
