"""Helpers without a subject of their own: validation, frames, files, warnings, progress, text."""
