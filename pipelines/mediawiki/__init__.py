"""Read the pages of MediaWiki XML dumps, and extract text from wikitext."""
