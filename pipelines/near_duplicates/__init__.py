"""Near-duplicates by MinHash."""
