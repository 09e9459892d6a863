"""Benchmarks: each times bertloom next to a named peer or a plain form, in the same run."""
