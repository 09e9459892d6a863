"""Documents: which splits they are read from, their duplicates, their shards."""
