"""Evaluation texts in a corpus: runs of words that both have, found by their hashes."""
