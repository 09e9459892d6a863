"""Dataset cards: the cards of artifacts that hold rows."""

from __future__ import annotations

from collections.abc import Sequence

from flows.cards.ancestors import Ancestors
from flows.cards.licenses import UNKNOWN, SourceFacts, source_facts
from flows.cards.markdown import render
from flows.cards.splits import DEFAULT, Suffix, splits_of
from flows.nested_values import flatten
from flows.record_counts import record_counts
from schemas.manifest import Manifest
from schemas.publish_configs import CardsConfig
from schemas.redaction import escape_control_characters

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


def dataset_metadata(
    manifest: Manifest, *, ancestors: Ancestors, cards: CardsConfig, suffix: Suffix
) -> str:
    """Return what the Hub reads of an artifact with rows, as YAML (arguments: `card_of`)."""
    from huggingface_hub import DatasetCardData  # lazy: Prefect's pages need the text only

    splits, sources = splits_of(manifest), corpus_sources(ancestors, cards)
    rows = sum(split.rows for split in splits if split.config == DEFAULT)
    configs: dict[str, list[dict[str, str]]] = {}
    for split in splits:
        files = {"split": split.name, "path": split.pattern(suffix)}
        configs.setdefault(split.config, []).append(files)
    data = DatasetCardData(
        pretty_name=_title(manifest),
        language=languages_of(sources),
        license=sorted({source.license for source in sources}) or [UNKNOWN],
        size_categories=[next((s for i, s in enumerate(_SIZES) if rows < 10 ** (i + 3)), "n>1B")],
        task_categories=_TASKS[manifest.table_name],
        tags=["bert", "bertloom"],
        configs=[{"config_name": name, "data_files": files} for name, files in configs.items()],
    )
    return str(data.to_yaml())


def dataset_body(
    manifest: Manifest, *, ancestors: Ancestors, cards: CardsConfig, suffix: Suffix
) -> str:
    """Return the text of the card of an artifact with rows (arguments: `card_of`)."""
    splits = splits_of(manifest)
    return render(
        "dataset.md.j2",
        title=_title(manifest),
        manifest=manifest,
        splits=splits,
        pattern=splits[0].pattern(suffix) if splits else "",
        sources=corpus_sources(ancestors, cards),
        record_counts=[
            (step.stage, *counts.row)
            for step in ancestors.manifests.values()
            for counts in record_counts(step.counters)
            if not counts.source
        ],
        ancestors=ancestors,
        settings=settings_of(manifest),
    )


def corpus_sources(ancestors: Ancestors, cards: CardsConfig) -> list[SourceFacts]:
    """Return the sources of every corpus upstream of an artifact."""
    corpora = ancestors.of_stage("build-documents")
    return [source for documents in corpora for source in source_facts(documents, cards)]


def languages_of(sources: Sequence[SourceFacts]) -> list[str] | None:
    """Return the ISO 639 codes of all sources; None if no source states one."""
    return sorted({source.language for source in sources if source.language}) or None


def settings_of(manifest: Manifest) -> dict[str, object]:
    """Return the settings that decided an artifact's content, by dotted path."""
    settings = flatten(manifest.cache_key_inputs.get("config", {}))
    return {name: value for name, value in settings.items() if value not in (None, "", [])}


def dataset_name(examples: Manifest) -> str:
    """Return what the examples of a task are: the task's own data, or other data in its format."""
    task, data = examples.statistics["task"], examples.statistics.get("data")
    return f"{data} ({task} format)" if data else str(task)


def _title(manifest: Manifest) -> str:
    if manifest.table_name == "instances":
        length = manifest.statistics["max_seq_length"]
        return f"BERT pretraining instances of up to {length} tokens"
    if "task" in manifest.statistics:
        return escape_control_characters(f"Examples of {dataset_name(manifest)}")
    names = ", ".join(source["name"] for source in manifest.config.get("sources", []))
    return f"Documents of {names}" if names else "WordPiece tokens of documents"
