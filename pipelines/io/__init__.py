"""Find, open, decompress, decode and verify files; read and write Arrow shards."""
