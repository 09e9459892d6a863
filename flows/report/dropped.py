"""What was left out of a corpus, with examples for each reason.

The artifact has the counts alone. Of dumps the first pages of the first file are read once more, by
the same rules, until each reason has its examples; of other sources the manifest's notes name the
first; of duplicates and what a search left out there are tables.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from flows.lineage.raw_text import dump_pages, open_dump, web_page, web_root
from flows.lineage.rows import Artifact, open_columns, read_row
from flows.lineage.tracing import raw_file_of
from flows.record_counts import record_counts
from flows.report.samples import Dropped, Example, Reason, Template
from flows.report.steps import Built
from flows.store.artifacts import ArtifactStore
from pipelines.documents.duplicates_table import DUPLICATES_FILE
from pipelines.documents.left_out import LEFT_OUT_FILE
from pipelines.documents.selection import wanted_sentences
from pipelines.mediawiki.dump_xml import Page
from pipelines.mediawiki.pages import clean_page, drop_reason
from pipelines.mediawiki.wikitext import Holes, markup_for
from schemas.errors import BertloomError
from schemas.manifest import FileEntry, Manifest, RawInput

MOST_CHARACTERS, MOST_PAGES = 4 << 20, 600
"""Of wikitext that is read again."""

_EXAMPLES, _MOST_TEMPLATES, _LONGEST = 3, 12, 120
_NOTE = re.compile(r"source '([^']+)': (\w+)-dropped-([\w-]+) [\d,]+, the first of them (.*)", re.S)


class _Found(NamedTuple):
    """Examples of one source: by `THINGS-dropped-REASON`, and of templates by their names."""

    drops: dict[str, list[Example]]
    templates: dict[str, Example]


def read_dropped(store: ArtifactStore, documents: Built, more: list[Built]) -> Dropped:
    """What was left out of the documents, and by later steps.

    Args:
        store: where the artifacts are.
        documents: of build-documents.
        more: artifacts with a table of what they leave out.

    Raises:
        ArtifactCorruptError, OSError, ValueError: a table is missing or damaged.
    """
    manifest = documents.manifest
    found, notes, is_final = dict[str, _Found](), list[str](), True
    for config in manifest.config.get("sources", ()):
        try:
            examples, note = _examples(manifest, config)
        except (BertloomError, OSError) as error:
            note = f"its dump cannot be read again for examples: {error}"
            examples, is_final = _noted(manifest, config), False
        found[config["name"]] = examples
        notes += [f"{config['name']}: {note}"] if note else []
    reasons = [
        Reason(
            source=item.source,
            things=item.record_type.replace("-", " "),
            reason=reason.replace("-", " "),
            count=count,
            examples=tuple(_of(found, item.source).get(f"{item.record_type}-dropped-{reason}", ())),
        )
        for item in record_counts(manifest.counters)
        if item.source
        for reason, count in item.dropped_by_reason
        if count
    ]
    reasons += _duplicates(Artifact(manifest, store))
    for built in more:
        reasons += _left_out(built, store)
    return Dropped(
        reasons=tuple(reasons),
        templates=tuple(_templates(manifest, found)),
        notes=tuple(notes),
        is_final=is_final,
    )


def _of(found: Mapping[str, _Found], source: str) -> Mapping[str, list[Example]]:
    return found[source].drops if source in found else {}


def _templates(manifest: Manifest, found: Mapping[str, _Found]) -> Iterator[Template]:
    named = []
    for counter, count in manifest.counters.items():
        prefix, _, rest = counter.partition(":")
        if prefix == "template-unknown":
            name, _, source = rest.rpartition("@")
            named.append((-count, source, name))
    for count, source, name in sorted(named)[:_MOST_TEMPLATES]:
        example = found[source].templates.get(name) if source in found else None
        yield Template(source=source, name=name, count=-count, example=example)


def _noted(manifest: Manifest, config: Mapping[str, Any]) -> _Found:
    """The examples of a source that the manifest's notes have."""
    found = _Found({}, {})
    for note in manifest.notes:
        told = _NOTE.fullmatch(note)
        if told and told[1] == config["name"]:
            found.drops[f"{told[2]}-dropped-{told[3]}"] = [Example(text=_cut(told[4]))]
    return found


def _examples(manifest: Manifest, config: Mapping[str, Any]) -> tuple[_Found, str]:
    """Examples of a source, and how far was looked."""
    found = _noted(manifest, config)
    if config.get("kind") != "wikipedia":
        return found, ""
    files = (raw for raw in manifest.raw_inputs if raw.identity.startswith(f"{config['name']}\t"))
    raw = next(files, None)
    if raw is None:
        return found, "its raw file is not listed, so there are no examples"
    return found, _look(raw, config, manifest, found)


def _look(raw: RawInput, config: Mapping[str, Any], manifest: Manifest, found: _Found) -> str:
    """Reads the first pages of a dump again; says how many."""
    header = open_dump(raw).header
    names = dict(header.namespaces)
    language = config.get("language") or header.language or "en"
    markup, root = markup_for(language, names), web_root(raw)
    namespaces = tuple(config.get("namespaces", (0,)))
    wanted = {
        name.partition("@")[0]
        for name in manifest.counters
        if "-dropped-" in name and name.endswith(f"@{config['name']}")
    }
    limits = _Limits(
        int(manifest.config.get("min_words", 1)),
        int(manifest.config.get("min_sentences", 1)),
        int(manifest.config.get("max_sentence_characters", 100_000)),
    )
    again = _Again(config["name"], markup, namespaces, names, language, limits, root, found)
    templates = {item.name for item in _templates(manifest, {}) if item.source == config["name"]}
    seen = characters = 0
    for page in dump_pages(raw):
        has_all = templates <= found.templates.keys() and all(
            len(found.drops.get(key, ())) >= _EXAMPLES for key in wanted
        )
        if has_all or seen >= MOST_PAGES or characters > MOST_CHARACTERS:
            return f"examples are from the first {seen:,} pages of {raw.name}"
        if isinstance(page, Page):
            seen, characters = seen + 1, characters + len(page.text)
            again.clean(page)
    return f"examples are from all {seen:,} pages of {raw.name}"


class _Limits(NamedTuple):
    min_words: int
    min_sentences: int
    max_sentence_characters: int


class _Again(NamedTuple):
    """Cleans pages of a dump once more, and keeps those that are left out."""

    source: str
    markup: Any
    namespaces: tuple[int, ...]
    names: Mapping[int, str]
    language: str
    limits: _Limits
    root: str
    found: _Found

    def clean(self, page: Page) -> None:
        """Keep it as an example of why it, or its document, is dropped; or of its templates."""
        example = Example(
            text=_cut(page.title),
            url=f"{self.root}/?curid={page.page_id}" if self.root and page.page_id else "",
            note=_cut(" ".join(page.text[:400].split())),
        )
        reason = drop_reason(page, namespaces=self.namespaces, names=self.names)
        if not reason:
            counted, holes = Counter[str](), Holes()
            document = clean_page(page, self.markup, source=self.source, holes=holes)
            for name, _ in holes.most_common():
                self.found.templates.setdefault(name, example)

            def count(name: str, amount: int = 1, /, *, example: str = "") -> None:
                del example
                counted[name] += amount

            if document is None:
                reason = "no-text-left"
            else:
                wanted_sentences(
                    document.paragraphs, self.language, limits=self.limits, count=count
                )
            for key in counted:
                if "-dropped-" in key:
                    _add(self.found, key, example)
        if reason:
            _add(self.found, f"pages-dropped-{reason}", example)


def _add(found: _Found, key: str, example: Example) -> None:
    listed = found.drops.setdefault(key, [])
    if len(listed) < _EXAMPLES:
        listed.append(example)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


# Tables


def _duplicates(documents: Artifact) -> Iterator[Reason]:
    if (entry := documents.manifest.file(DUPLICATES_FILE)) is not None:
        yield from _reasons(documents, documents, entry, because="kept_document_id")


def _left_out(built: Built, store: ArtifactStore) -> Iterator[Reason]:
    artifact = Artifact(built.manifest, store)
    documents, entry = artifact.source("documents"), built.manifest.file(LEFT_OUT_FILE)
    if documents is not None and entry is not None:
        yield from _reasons(artifact, documents, entry, because="because")


def _reasons(
    artifact: Artifact, documents: Artifact, entry: FileEntry, *, because: str
) -> Iterator[Reason]:
    """The rows of a table of what is left out, by their reason; a batch at a time."""
    columns = ["document_id", "shard", "row", "reason", because]
    counts, first = Counter[str](), dict[str, list[dict[str, Any]]]()
    with open_columns(artifact.url(entry), columns=columns) as reader:
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            reasons = batch.column("reason").to_pylist()
            counts.update(reasons)
            for at, reason in enumerate(reasons):
                listed = first.setdefault(reason, [])
                if len(listed) < _EXAMPLES:
                    listed.append(batch.slice(at, 1).to_pylist()[0])
    for reason, rows in first.items():
        yield Reason(
            source=artifact.manifest.stage,
            things="documents",
            reason=reason.replace("-", " "),
            count=counts[reason],
            examples=tuple(_left_out_example(documents, row, because) for row in rows),
        )


def _left_out_example(documents: Artifact, row: Mapping[str, Any], because: str) -> Example:
    shard = documents.manifest.file(row["shard"])
    if shard is None:
        return Example(text=_cut(row["document_id"]), note=f"like {row[because]}")
    document = read_row(documents.url(shard), row["row"])
    page = web_page(raw_file_of(documents.manifest, document), document)
    return Example(
        text=_cut(document["title"] or row["document_id"]),
        url=page.page,
        note=f"as {_cut(row[because])}" if row[because] else "",
    )
