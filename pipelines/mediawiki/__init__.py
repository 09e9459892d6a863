"""MediaWiki: pages of XML dumps, and their wikitext as text."""
