"""Templates of the report's pages. A page contains its style and figures, and loads nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import yaml
from markupsafe import Markup, escape

from flows.formatting import format_bytes, format_duration
from schemas.redaction import escape_control_characters, redact

INDEX_PAGE = "reports/index.html"
"""Page of all runs, which `flows.report.index` writes."""

_PAGES = "artifacts"
_TEMPLATES = Path(__file__).parent / "templates"


def pages_folder(*, shows_text: bool) -> str:
    """Return the folder of the artifact pages in the store: with or without rows and texts."""
    return "reports/artifacts" if shows_text else "reports/artifacts-without-text"


def artifact_link(artifact_id: str) -> str:
    """Return the link to the page of an artifact, for `with_pages_in`."""
    return f"{_PAGES}/{artifact_id}.html"


def with_pages_in(folder: str, page: str) -> str:
    """Return a page with links to artifacts in a folder, relative to that of the page."""
    return page.replace(f'href="{_PAGES}/', f'href="{escape(folder)}/')


def render(template: str, **values: Any) -> str:
    """Return a whole page."""
    style = Markup((_TEMPLATES / "style.css").read_text("utf-8"))  # noqa: S704 - a packaged file
    return _environment().get_template(template).render(values, style=style)


def section(name: str, **values: Any) -> str:
    """Return one section of the page."""
    return _environment().get_template(f"{name}.html.j2").render(values)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        optimized=False,  # each template is rendered once
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_escape,
    )
    environment.filters |= {
        "bytes": _for_numbers(format_bytes),
        "count": _for_numbers("{:,}".format),
        "decimals": _decimals,
        "drawn": Markup,  # SVG, in which every text is escaped
        "duration": _for_numbers(format_duration),
        "followed_by": lambda text, suffix: f"{text}{suffix}" if text else "",
        "in_rows": in_rows,
        "moment": _moment,
        "page": artifact_link,
        "some_of": _some_of,
    }
    return environment


def _escape(value: Any) -> Any:
    """Redact secrets and escape control characters of a printed value."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return escape_control_characters(redact(value))
    return value


def _for_numbers(format: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a filter that formats numbers, and returns "" for missing values."""
    return lambda value: format(value) if isinstance(value, int | float) else ""


def _decimals(value: Any, digits: int, factor: int = 1) -> str:
    return f"{factor * value:,.{digits}f}" if isinstance(value, int | float) else ""


def _moment(text: str) -> str:
    try:
        return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return text


def _some_of(texts: Sequence[str], max_texts: int) -> str:
    more = f" and {len(texts) - max_texts} more" if len(texts) > max_texts else ""
    return ", ".join(texts[:max_texts]) + more


def in_rows(columns: Iterable[tuple[str, Iterable[Any]]]) -> tuple[list[str], list[Sequence[Any]]]:
    """Return the header and the rows of a table given by its columns, (title, cells).

    Empty columns are omitted.

    >>> in_rows([("a", ["1", "2"]), ("b", ["", None]), ("c", ["3", ""])])
    (['a', 'c'], [('1', '3'), ('2', '')])
    """
    listed = [(title, list(cells)) for title, cells in columns]
    used = [(title, cells) for title, cells in listed if set(cells) - {"", None}]
    return [title for title, _ in used], list(zip(*(cells for _, cells in used), strict=True))


def to_yaml(values: Mapping[str, Any]) -> str:
    """Return values as YAML without credentials."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # ten times as fast
    text: str = yaml.dump(redact(dict(values)), Dumper=dumper, sort_keys=False, allow_unicode=True)
    return text
