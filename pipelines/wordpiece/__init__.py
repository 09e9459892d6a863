"""WordPiece: pre-tokenization, vocabularies and ids of BERT."""
