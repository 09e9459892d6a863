"""Build document shards from splits, and find duplicates."""
