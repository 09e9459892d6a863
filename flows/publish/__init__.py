"""Corpora under names that move on: comparing, publishing, rebuilding each month."""
