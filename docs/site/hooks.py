"""Hooks of MkDocs: README as the home page, and links to files outside `docs/`.

The pages are also read in the repository, where such links work. The site shows only the name of
the file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

README = Path(__file__).parents[2] / "README.md"
_OUTSIDE = r"\[([^\]]+)\]\((?:\.\./){%d}[^)]+\)"


def on_files(files: Files, *, config: Any) -> Files:
    """Add README as the home page."""
    text = README.read_text(encoding="utf-8")
    text = re.sub(r"\]\((?!https?:|docs/|#)", "](../", text)
    text = text.replace("](docs/", "](").replace('src="docs/', 'src="')
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_options: Any) -> str:
    """Return the text of a page without links to files outside `docs/`."""
    folders_up = page.file.src_uri.count("/") + 1  # to the folder that has `docs`
    return re.sub(_OUTSIDE % folders_up, r"`\1`", markdown)
