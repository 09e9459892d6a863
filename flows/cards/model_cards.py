"""The card of an artifact that holds a model: a model card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flows.cards.ancestors import Ancestors
from flows.cards.dataset_cards import (
    languages_of,
    lineage_section,
    sources_of_corpus,
    sources_section,
)
from flows.cards.licences import NOT_SAID, SourceFacts
from flows.cards.markdown import code, front_matter, table
from flows.nested_values import numeric_leaves
from schemas.card_configs import CardsConfig
from schemas.manifest import Manifest

_TAGS = {
    "classification": "text-classification",
    "regression": "text-classification",
    "choice": "multiple-choice",
    "span": "question-answering",
    "tagging": "token-classification",
}
_CLASSES = {
    "fill-mask": "AutoModelForMaskedLM",
    "text-generation": "AutoModelForCausalLM",
    "text-classification": "AutoModelForSequenceClassification",
    "multiple-choice": "AutoModelForMultipleChoice",
    "question-answering": "AutoModelForQuestionAnswering",
    "token-classification": "AutoModelForTokenClassification",
}
_LIMITS = """\

## Intended use and limits

{use} It has read the texts that are named below and no others, and repeats what they assume about
people and the world. What it says is not checked; figures are of held-out texts of the same
sources{of_task}, and other texts may give worse ones. Do not let it decide about people.
"""


def model_card(manifest: Manifest, *, ancestors: Ancestors, cards: CardsConfig) -> str:
    """The card, in Markdown with front matter.

    Args:
        manifest: of `pretrain`, `finetune` or `evaluate`.
        ancestors: what it was made from.
        cards: what the recipe says of licences.
    """
    sources = sources_of_corpus(ancestors, cards)
    task = str(manifest.statistics.get("task", ""))
    figures = figures_of(manifest)
    body = [
        _front(manifest, sources, figures=figures, license_name=cards.model_license),
        f"\n# {_title(manifest)}\n\n",
        _summary(manifest, ancestors),
        *_figures_section(manifest, figures),
        _LIMITS.format(use=_use(manifest), of_task=f" and of {task}'s own splits" if task else ""),
        f"\nLicence of the model: {cards.model_license or NOT_SAID}.\n",
        *sources_section(sources),
        *_examples_section(ancestors),
        *lineage_section(ancestors),
        *_loading_section(manifest),
    ]
    return "".join(body)


def figures_of(manifest: Manifest) -> list[tuple[str, str, float]]:
    """(split, metric, value) of what was measured, in order."""
    if manifest.stage == "pretrain":
        return [("held-out", *item) for item in manifest.statistics.get("held_out", {}).items()]
    measured = manifest.statistics.get("metrics", {})
    return [
        (split, name, value)
        for split, metrics in measured.items()
        for name, value in numeric_leaves(metrics).items()
    ]


def pipeline_tag(manifest: Manifest) -> str:
    """What the hub calls what the model does."""
    if manifest.stage != "pretrain":
        return _TAGS.get(str(manifest.statistics.get("kind", "")), "")
    is_causal = manifest.statistics.get("objective") == "left-to-right"
    return "text-generation" if is_causal else "fill-mask"


def _front(
    manifest: Manifest,
    sources: Sequence[SourceFacts],
    *,
    figures: Sequence[tuple[str, str, float]],
    license_name: str,
) -> str:
    tag = pipeline_tag(manifest)
    task = str(manifest.statistics.get("task", ""))
    metrics: dict[str, list[dict[str, Any]]] = {}
    for split, name, value in figures:
        found = {"type": name, "name": name.replace("_", " "), "value": float(f"{value:.6g}")}
        metrics.setdefault(split, []).append(found)
    results = [
        {
            "task": {"type": tag or "other"},
            "dataset": {
                "name": task or "held-out documents of the corpus",
                "type": task or "bertloom-held-out",
                "split": split.replace("-", "_"),
            },
            "metrics": found,
        }
        for split, found in metrics.items()
    ]
    index = [{"name": _title(manifest), "results": results}] if results else []
    return front_matter(
        {
            "language": languages_of(sources),
            "license": license_name or "unknown",
            "library_name": "transformers",
            "pipeline_tag": tag,
            "base_model": _base(manifest),
            "tags": ["bert", "bertloom"],
            "model-index": index,
        }
    )


def _base(manifest: Manifest) -> str:
    """Name of the checkpoint from elsewhere that it was made of; "" where it was made here."""
    given = str(manifest.config.get("init_checkpoint") or "")
    return "" if not given else given.rstrip("/").rpartition("/")[2]


def _title(manifest: Manifest) -> str:
    task = manifest.statistics.get("task")
    shape = _shape(manifest)
    return f"BERT{shape} fine-tuned on {task}" if task else f"BERT{shape}, pretrained"


def _shape(manifest: Manifest) -> str:
    model = manifest.statistics.get("model") or manifest.config.get("model") or {}
    if not isinstance(model, Mapping) or "num_hidden_layers" not in model:
        return ""
    return f" of {model['num_hidden_layers']} layers, {model.get('hidden_size')} wide"


def _use(manifest: Manifest) -> str:
    if manifest.stage == "pretrain":
        return "An encoder to fine-tune, and to fill in masked words."
    return f"For the task {manifest.statistics.get('task')}, on texts like those of its data."


def _summary(manifest: Manifest, ancestors: Ancestors) -> str:
    counters = manifest.counters
    corpus = ancestors.of_stage("build-documents")
    of = f" on {corpus.counters.get('documents-kept', 0):,} documents" if corpus else ""
    if manifest.stage == "pretrain":
        return (
            f"Pretrained by bertloom{of}: {counters['steps']:,} steps, "
            f"{counters['tokens']:,} tokens, objective {manifest.statistics['objective']}.\n"
        )
    if ancestors.of_stage("pretrain") is not None:
        begun = f"its encoder was pretrained{of}"
    elif manifest.config.get("init_checkpoint"):
        begun = f"its encoder is that of {_base(manifest)}"
    else:
        begun = "it was trained on the task alone, from random weights"
    return f"Trained by bertloom, stage `{manifest.stage}`; {begun}.\n"


def _figures_section(
    manifest: Manifest, figures: Sequence[tuple[str, str, float]]
) -> Iterator[str]:
    if not figures:
        return
    yield "\n## Measured\n\n"
    rows = [(split, name, f"{value:.4f}") for split, name, value in figures]
    yield table(("split", "metric", "value"), rows, right=(2,))
    if manifest.stage == "pretrain":
        yield "\nLosses in nats, accuracies as shares of 1, on documents never trained on.\n"


def _examples_section(ancestors: Ancestors) -> Iterator[str]:
    examples = ancestors.of_stage("build-examples")
    if examples is None:
        return
    splits = ", ".join(f"{n:,} {name}" for name, n in examples.statistics["splits"].items())
    yield f"\n## Data of the task\n\n{examples.statistics['task']}: {splits} examples.\n\n"
    for item in examples.raw_inputs[:10]:
        yield f"- `{item.name}`, sha256 `{item.sha256}`\n"


def _loading_section(manifest: Manifest) -> Iterator[str]:
    tag = pipeline_tag(manifest)
    name = _CLASSES.get(tag, "AutoModel")
    yield "\n## How to load it\n\nFOLDER is what `bertloom export` wrote.\n\n"
    script = (
        f"from transformers import AutoTokenizer, {name}\n\n"
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")\n'
        f'model = {name}.from_pretrained("FOLDER")'
    )
    yield code(script, language="python")
    if tag in ("fill-mask", "text-classification", "token-classification", "question-answering"):
        yield "\n"
        yield code(
            f'from transformers import pipeline\n\nask = pipeline("{tag}", "FOLDER")',
            language="python",
        )
    if manifest.stage == "pretrain":
        yield "\nAs an encoder of sentences (means over tokens; fine-tune it for good ones):\n\n"
        yield code(
            "from sentence_transformers import SentenceTransformer\n\n"
            'vectors = SentenceTransformer("FOLDER").encode(["A sentence.", "Another one."])',
            language="python",
        )
