"""The user's own tables: read, understood, predicted from and written."""

from typing import TYPE_CHECKING

from polyhedge._lazy import lazy

if TYPE_CHECKING:
    from polyhedge.choosing import choose_predictor, make_predictor
    from polyhedge.columns import PREDICTORS
    from polyhedge.columns.schema import Column, Schema, choose_columns, features_of, outcomes_of
    from polyhedge.columns.table import Table, text_of, values_of
    from polyhedge.doubts import Code, Doubt, few_rows_doubt
    from polyhedge.io.fit_record import FitRecord, Refreshed
    from polyhedge.tables.as_csv import csv_text
    from polyhedge.tables.beside import labels_or_weights
    from polyhedge.tables.fitting import FittedTable, fit_table
    from polyhedge.tables.limits import MAX_VALUES
    from polyhedge.tables.options import TableOptions
    from polyhedge.tables.parameters import Sources, parameters_of, read_sources, sources_of, take_parameters
    from polyhedge.tables.reading import read_table
    from polyhedge.tables.roles import copies_of, groups_of, row_prints, times_of
    from polyhedge.tables.rows import decide_table, decisions_frame, measure_table, quick_volume, thinned_coverage
    from polyhedge.tables.usable import UsableRows, order_outcomes, usable_rows
    from polyhedge.tables.writing import check_target, write_table
else:  # imported when they are first used
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "MAX_VALUES",
    "PREDICTORS",
    "Code",
    "Column",
    "Doubt",
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
    "few_rows_doubt",
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
