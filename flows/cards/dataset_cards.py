"""The card of an artifact that holds rows: a dataset card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flows.cards.ancestors import Ancestors
from flows.cards.licences import NOT_SAID, SourceFacts, source_facts
from flows.cards.markdown import code, front_matter, table
from flows.cards.parts import DEFAULT, Part
from flows.formatting import format_bytes
from flows.nested_values import flatten
from flows.record_counts import record_counts
from schemas.card_configs import CardsConfig
from schemas.manifest import Manifest

_SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B")
_TASKS = {
    "documents": ["fill-mask", "text-generation"],
    "tokens": ["fill-mask"],
    "instances": ["fill-mask"],
    "text-examples": ["text-classification"],
    "choice-examples": ["multiple-choice"],
    "span-examples": ["question-answering"],
    "tag-examples": ["token-classification"],
}
_WHAT = {
    "documents": "One row is a document, cleaned and split into sentences.",
    "tokens": "One row is a document as WordPiece ids, end to end, and how many of them each "
    "sentence has.",
    "instances": "One row is an instance of BERT's pretraining, `[CLS] A [SEP] B [SEP]` without "
    "padding: `input_ids` are masked, `masked_lm_ids` is what stood at `masked_lm_positions`, "
    "segment B begins at `segment_b_start`, and `next_sentence_label` is 0 where B really follows "
    "A, 1 where it is random, -1 where there is none.",
}
_COLLATE = """\
from datasets import load_dataset
from transformers import Trainer, TrainingArguments
from bertloom import PretrainingCollator

rows = load_dataset("FOLDER", split="train")
arguments = TrainingArguments("out", remove_unused_columns=False)
Trainer(model, arguments, train_dataset=rows, data_collator=PretrainingCollator()).train()
"""


class Layout(NamedTuple):
    """How the rows lie in the folder that the card is in."""

    patterns: Mapping[tuple[str, str], str]
    """Glob pattern of the files, by configuration and split."""

    form: str
    """What PyArrow and people call the files: `parquet`, `ipc`."""

    features: Mapping[str, Sequence[Mapping[str, Any]]] = {}
    """Columns by configuration, as `dataset_info` has them; none where the files say so alone."""

    sizes: Mapping[tuple[str, str], int] = {}
    """Bytes of the files, by configuration and split."""


def dataset_card(
    manifest: Manifest,
    *,
    ancestors: Ancestors,
    parts: Sequence[Part],
    layout: Layout,
    cards: CardsConfig,
) -> str:
    """The card, in Markdown with front matter.

    Args:
        manifest: of an artifact that holds rows.
        ancestors: what it was made from.
        parts: its splits.
        layout: how they lie.
        cards: what the recipe says of licences.
    """
    sources = sources_of_corpus(ancestors, cards)
    body = [
        _front(manifest, sources, parts=parts, layout=layout),
        f"\n# {_title(manifest)}\n\n",
        f"{_WHAT.get(manifest.table, 'One row is an example.')} Made by bertloom's stage "
        f"`{manifest.stage}`.\n\n",
        table(
            ("configuration", "split", "rows"),
            [(part.config, part.split, f"{part.rows:,}") for part in parts],
            right=(2,),
        ),
        *sources_section(sources),
        *_counts_section(ancestors),
        *lineage_section(ancestors),
        *_loading_section(manifest, layout),
    ]
    return "".join(body)


def sources_of_corpus(ancestors: Ancestors, cards: CardsConfig) -> list[SourceFacts]:
    """The sources of the documents that something was made from; none where there are none."""
    documents = ancestors.of_stage("build-documents")
    return list(source_facts(documents, cards)) if documents is not None else []


def languages_of(sources: Sequence[SourceFacts]) -> list[str]:
    """ISO 639 codes of all sources, each once."""
    return sorted({code for source in sources for code in source.languages})


def licenses_of(sources: Sequence[SourceFacts]) -> list[str]:
    """Licences of all sources as the hub writes them; `unknown` where one is not said."""
    found = {name for source in sources for name in source.licenses or ("unknown",)}
    return sorted(found) or ["unknown"]


def _front(
    manifest: Manifest, sources: Sequence[SourceFacts], *, parts: Sequence[Part], layout: Layout
) -> str:
    rows = sum(part.rows for part in parts if part.config == DEFAULT)
    size = next((name for i, name in enumerate(_SIZES) if rows < 10 ** (i + 3)), "1B<n<10B")
    configs = list(dict.fromkeys(part.config for part in parts))
    return front_matter(
        {
            "pretty_name": _title(manifest),
            "language": languages_of(sources),
            "license": licenses_of(sources),
            "size_categories": [size],
            "task_categories": _TASKS.get(manifest.table, []),
            "tags": ["bert", "bertloom"],
            "configs": [_data_files(name, parts, layout) for name in configs],
            "dataset_info": [_info(name, parts, layout) for name in configs if layout.features],
        }
    )


def _data_files(config: str, parts: Sequence[Part], layout: Layout) -> dict[str, Any]:
    files = [
        {"split": part.split, "path": layout.patterns[part.config, part.split]}
        for part in parts
        if part.config == config
    ]
    return {"config_name": config, "data_files": files}


def _info(config: str, parts: Sequence[Part], layout: Layout) -> dict[str, Any]:
    own = [part for part in parts if part.config == config]
    sizes = [layout.sizes[part.config, part.split] for part in own]
    splits = [
        {"name": part.split, "num_bytes": size, "num_examples": part.rows}
        for part, size in zip(own, sizes, strict=True)
    ]
    return {
        "config_name": config,
        "features": [dict(column) for column in layout.features[config]],
        "splits": splits,
        "download_size": sum(sizes),
        "dataset_size": sum(sizes),
    }


def _title(manifest: Manifest) -> str:
    config, statistics = manifest.key_spec.get("config", {}), manifest.statistics
    if manifest.table == "instances":
        kind = "next-sentence pairs" if config.get("pairing") == "nsp" else "segments"
        return f"BERT pretraining instances of up to {statistics['max_seq_length']} tokens, {kind}"
    if "task" in statistics:
        return f"Examples of {statistics['task']}"
    if manifest.table == "documents":
        names = ", ".join(source["name"] for source in manifest.config.get("sources", []))
        return f"Documents of {names}"
    return f"Rows of {manifest.stage}"


# Sections


def sources_section(sources: Sequence[SourceFacts]) -> Iterator[str]:
    """Where the texts come from, and whose they are."""
    if not sources:
        return
    yield "\n## Sources and licences\n"
    for source in sources:
        languages = ", ".join(source.languages) or "as its files say"
        yield f"\n**{source.name}** ({source.kind}; language: {languages})\n\n"
        yield f"- Licence: {source.license_text}\n"
        yield f"- Attribution: {source.attribution or NOT_SAID}\n"
        shown = source.files[:10]
        for item in shown:
            known = f", published as {item.checksum}" if item.checksum else ""
            yield f"- `{item.name}`, {format_bytes(item.size)}, sha256 `{item.sha256}`{known}\n"
        if more := len(source.files) - len(shown):
            yield f"- and {more:,} files more\n"


def _counts_section(ancestors: Ancestors) -> Iterator[str]:
    rows = [
        (f"`{found.stage}`", item.record_type, *item.row[1:])
        for found in reversed(ancestors.manifests)
        for item in record_counts(found.counters)
        if not item.source
    ]
    if rows:
        yield "\n## What was kept, and what was dropped\n\nin = kept + dropped, of each stage:\n\n"
        head = ("stage", "things", "in", "kept", "dropped", "reasons")
        yield table(head, rows, right=(2, 3, 4))


def lineage_section(ancestors: Ancestors) -> Iterator[str]:
    """What it was made from, in an order that it can be made in again, and with which settings."""
    yield (
        "\n## How it was made\n\nEach stage by the digest of what it made, the key of all that "
        "decided it, and the stage's version:\n\n"
    )
    rows = [
        (
            f"`{item.stage}`",
            f"`{item.content}`",
            f"`{item.cache_key[:16]}`",
            f"{item.stage_version}",
        )
        for item in reversed(ancestors.manifests)
    ]
    rows += [(f"`{ref.stage}`", f"`{ref.content}`", f"`{ref.cache_key[:16]}`", "no longer stored")
             for ref in ancestors.gone]  # fmt: skip
    yield table(("stage", "content", "key", "version"), rows)
    own = ancestors.manifests[0]
    settings = flatten(own.key_spec.get("config", {}))
    text = "\n".join(f"{name}: {value}" for name, value in settings.items())
    libraries = own.key_spec.get("environment", {})
    yield f"\nSettings of `{own.stage}`:\n\n{code(text, language='text')}"
    yield f"\nMade with {', '.join(f'{name} {version}' for name, version in libraries.items())}.\n"
    yield from (f"\nNote: {note}\n" for note in own.notes)


def _loading_section(manifest: Manifest, layout: Layout) -> Iterator[str]:
    split = next((split for config, split in layout.patterns if config == DEFAULT), None)
    yield "\n## How to load it\n\n"
    if split is None:
        yield "There is nothing to load: it has no rows. What it was made from, and why that was "
        yield "left out, is said above.\n"
        return
    pattern = layout.patterns[DEFAULT, split]
    yield "FOLDER is the folder of this file. With Hugging Face's datasets"
    yield ", typed, by splits:\n\n"
    yield code(
        'from datasets import load_dataset\n\nrows = load_dataset("FOLDER")', language="python"
    )
    yield "\nWith PyArrow, and from there pandas:\n\n"
    script = (
        "import glob\n\nimport pyarrow.dataset as ds\n\n"
        f'rows = ds.dataset(glob.glob("FOLDER/{pattern}"), format="{layout.form}")\n'
        "frame = rows.head(1000).to_pandas()"
    )
    yield code(script, language="python")
    if layout.form == "parquet":
        yield "\nWith DuckDB or polars:\n\n"
        script = (
            f"duckdb.read_parquet('FOLDER/{pattern}').count('*')\n"
            f'polars.scan_parquet("FOLDER/{pattern}").head().collect()'
        )
        yield code(script, language="python")
    if manifest.table == "instances":
        yield "\nWith Hugging Face's Trainer, for a `BertForPreTraining` in `model`:\n\n"
        yield code(_COLLATE, language="python")
