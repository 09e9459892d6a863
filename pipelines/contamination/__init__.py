"""Search for evaluation texts in a corpus."""

NGRAMS_FILE = "__ngrams__/ngrams.arrow"
"""Path of the n-grams. Readers of a dataset skip folders that start with `_`."""

MATCHES_FILE = "part-00000.arrow"
"""Path of the pairs of a text and a document."""

PASSAGES_FILE = "passages.json"
"""Path of the longest passages that a text and a document share."""
