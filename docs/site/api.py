"""Writes docs/api.md: the Python API and the Beam transforms, from docstrings and `examples/`.

python docs/site/api.py        # also `make docs`; a test checks that the page is current
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import griffe
from griffe import DocstringSectionKind as Kind

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "api.md"


def _example(name: str) -> str:
    code = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    return f"```python\n{code}```"


HEAD = f"""\
# Python and Beam

Made from docstrings and `examples/` by `docs/site/api.py`: edit those.

## In a notebook or another flow

The functions do what the commands do. They print nothing, start no event loop and need no server.
Install `bertloom[flows]`, for training also `model`. `examples/notebook.py`; its recipe,
`examples/wikibooks.yaml`, reads a dump in `$BERTLOOM_DATA`:

{_example("notebook")}

An invalid recipe raises a `RecipeError` whose `problems` have file, line, field, expected and
actual value. Prefect flows: see [a monthly corpus](how-to/prefect.md#see-a-run-in-prefect).

## In a Beam pipeline

The transforms need only bertloom's core, without torch and Prefect. Their output equals that of the
stages, before duplicates are dropped. For your own texts, pass pairs of an id and a `RawText`.
`examples/beam_pipeline.py DUMP VOCAB OUTPUT`:

{_example("beam_pipeline")}
"""
API = {
    "bertloom": "load_recipe plan run open_store lineage trace fill Artifact Store",
    "pipelines.transforms": "ReadDocuments SplitSentences Tokenize RawText Document TokenDocument"
    " DocumentLimits",
}
"""Names of each public module, in the order of the page."""

MAX_LINE = 80
_EXAMPLE = re.compile(r"^(>>> (?:.+\n?)+)", re.MULTILINE)


def reference() -> str:
    """Return the page as Markdown."""
    options = {"warn_unknown_params": False, "warn_missing_types": False}
    loader = griffe.GriffeLoader(
        search_paths=[ROOT], docstring_parser="google", docstring_options=options
    )
    for module in API:
        loader.load(module.partition(".")[0])
    loader.resolve_aliases()
    parts = [HEAD]
    for module, names in API.items():
        parts.append(f"## {module}")
        for name in names.split():
            parts += _object(loader.modules_collection[f"{module}.{name}"], "###", name)
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _object(item: griffe.Object | griffe.Alias, heading: str, name: str) -> Iterator[str]:
    """Yield the parts of a class or function, then those of its public functions."""
    yield f"{heading} {name}"
    if isinstance(item, griffe.Alias):
        item = item.final_target
    if isinstance(item, griffe.Function):
        yield f"```python\n{_signature(item)}\n```"
    yield from _sections(item.docstring)
    attributes = [
        f"- `{key}: {value.annotation}`: {_one_line(value.docstring.value)}"
        for key, value in item.attributes.items()
        if value.is_public and value.docstring
    ]
    if isinstance(item, griffe.Class) and attributes:
        yield "\n".join(attributes)
    if isinstance(item, griffe.Class):
        for key, value in item.functions.items():
            if value.is_public and not key.startswith("_") and value.docstring:
                yield from _object(value, f"{heading}#", f"{name}.{key}")


def _signature(function: griffe.Function) -> str:
    """Return the signature, with one parameter per line if it is long."""
    text = function.signature()
    if len(text) <= MAX_LINE:
        return text
    name, parameters, end = re.fullmatch(r"(\w+\()(.*)(\).*)", text).groups()
    lines = re.sub(r", (?=\*|\w+: )", ",\n    ", parameters)
    return f"{name}\n    {lines},\n{end}"


def _sections(docstring: griffe.Docstring | None) -> Iterator[str]:
    for section in docstring.parsed if docstring else ():
        match section.kind:
            case Kind.text:
                yield _EXAMPLE.sub(_fence, section.value)
            case Kind.parameters:
                yield _bullets("Arguments", section.value)
            case Kind.raises:
                yield _bullets("Raises", section.value)
            case Kind.returns | Kind.yields:
                texts = [_one_line(value.description) for value in section.value]
                yield f"**{section.kind.value.capitalize()}**: {' '.join(texts)}"


def _fence(example: re.Match[str]) -> str:
    return f"```pycon\n{example[1].rstrip()}\n```\n"


def _bullets(title: str, values: list[griffe.DocstringParameter | griffe.DocstringRaise]) -> str:
    names = (getattr(value, "name", None) or str(value.annotation) for value in values)
    lines = [
        f"- `{name}`: {_one_line(value.description)}"
        for name, value in zip(names, values, strict=True)
    ]
    return "\n".join([f"**{title}**", "", *lines])


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
