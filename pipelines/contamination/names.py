"""Names of the files of a search."""

NGRAMS_FILE = "__ngrams__/ngrams.arrow"
"""The runs of words that were looked for; in a folder that data sets pass over, as are the hits."""

MATCHES_FILE = "part-00000.arrow"
"""Pairs of a text and a document."""

PASSAGES_FILE = "passages.json"
"""The longest passages that both have."""
