"""Columns of a table: what kind each is, how raw ones become numbers and kinds, and what predicts from them."""

PREDICTORS = ("ridge", "forest", "boosting", "linear")
"""Names of predictors for tables."""
