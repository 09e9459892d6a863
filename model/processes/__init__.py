"""Processes that train: their cores, signals, ranks, folders and errors."""
