"""Tokenization of documents."""
