"""Learners that only the study needs: Corollary 1 (`miqcp`) and grids of rotated boxes (`boxes`)."""
