"""Files: found, opened, decompressed, decoded, checked; and the Arrow shards that stages
exchange."""
