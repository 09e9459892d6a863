"""Extract paragraphs of prose from books, such as those of Project Gutenberg."""
