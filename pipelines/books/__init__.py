"""Books as Project Gutenberg and others give them out, as paragraphs of prose."""
