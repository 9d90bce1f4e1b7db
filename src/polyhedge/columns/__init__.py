"""Columns of a table: what kind each is, and how raw ones become numbers and kinds."""

PREDICTORS = ("smooth-ridge", "ridge", "forest", "boosting", "linear")
"""Names of predictors for tables."""
