"""Adapters to other packages: MLflow and PyROS."""
