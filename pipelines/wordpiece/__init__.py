"""WordPiece: words as BERT sees them, vocabularies, ids."""
