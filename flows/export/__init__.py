"""Artifacts written as other people's tools open them.

=========================================  ======================================================
question                                   module
=========================================  ======================================================
what an export does with an artifact       `exporting`
how rows become Parquet or Arrow streams   `rows`
which files a model's folder has           `models`
how a folder appears whole or not at all   `folders`
=========================================  ======================================================
"""
