"""Markdown from templates, in which quoted text cannot act as markup."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from flows.formatting import format_metric
from schemas.redaction import escape_control_characters, redact

_MARKUP = re.compile(r"([\\`*_\[\]<>|~&$#])")
_SPACES = re.compile(r"\s+")
_NOT_IN_CODE = re.compile(r"[`|\t\n]")


def render(template: str, **values: Any) -> str:
    """Return a template with its values, each escaped unless a filter returned Markdown."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,  # marks what `finalize` returned as safe, and the output of macros
        finalize=_escape,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "code": lambda value: _markdown(f"`{_one_line(value)}`"),
        "count": "{:,}".format,
        "line": lambda value: _markdown(_one_line(value)),
        "link": lambda url: _markdown(f"<{quote(url, safe=':/?#[]@!$&()*+,;=%')}>"),
        "metric": lambda value, name, sd=None: format_metric(name, value, sd=sd),
    }
    return environment


def _escape(value: Any) -> Markup:
    if isinstance(value, Markup):
        return value
    text = _SPACES.sub(" ", str(redact(value)))
    return _markdown(_MARKUP.sub(r"\\\1", escape_control_characters(text)))


def _one_line(value: Any) -> str:
    """Return text for a code span or a line of a code block, which it cannot end."""
    text = escape_control_characters(str(redact(value)))
    return _NOT_IN_CODE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _markdown(text: str) -> Markup:
    return Markup(text)  # noqa: S704 - the callers have escaped it
