"""WordPiece vocabularies: word counts of a corpus, and training."""
