"""Paragraphs of running text as sentences."""
