"""Robust decisions with a guarantee."""
