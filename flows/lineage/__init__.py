"""Lineage of artifacts: graphs and pictures, traces of rows, differences, and names."""
