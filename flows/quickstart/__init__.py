"""Quickstart: scan a folder of texts and propose a recipe of suitable size."""
