"""Publishing of corpora under refs that move, and their monthly rebuild."""
