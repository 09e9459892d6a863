"""Exports: artifacts as folders that `datasets`, `transformers` and other libraries open."""
