"""Model cards: the cards of `pretrain`, `finetune` and `evaluate`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from flows.cards.ancestors import Ancestors
from flows.cards.dataset_cards import corpus_sources, dataset_name, languages_of, settings_of
from flows.cards.licenses import UNKNOWN
from flows.cards.markdown import render
from flows.formatting import format_metric
from model.task_results import Cut, Scores, find_score, read_evaluation
from pipelines.io.hub import is_hub_url, split_revision
from schemas.manifest import InputRef, Manifest
from schemas.publish_configs import CardsConfig
from schemas.redaction import escape_control_characters

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

_TAGS_AND_CLASSES = {
    "mlm": ("fill-mask", "AutoModelForMaskedLM"),
    "mlm+nsp": ("fill-mask", "AutoModelForMaskedLM"),
    "left-to-right": ("text-generation", "AutoModelForCausalLM"),
    "classification": ("text-classification", "AutoModelForSequenceClassification"),
    "regression": ("text-classification", "AutoModelForSequenceClassification"),
    "choice": ("multiple-choice", "AutoModelForMultipleChoice"),
    "span": ("question-answering", "AutoModelForQuestionAnswering"),
    "tagging": ("token-classification", "AutoModelForTokenClassification"),
}
"""Pipeline tag of the Hub and class of `transformers`, by type of task or pretraining."""

_STARTS = ("checkpoint", "init_checkpoint")
"""Inputs with the weights that a training starts from."""

_SNAPSHOT = re.compile(r"/snapshots/step-([0-9]+)/?\Z")

_NO_RESTARTS: Any = {"runs": (), "failed": 0, "best": None, "ensemble": None}


class Score(Scores):
    """A metric on one split."""

    split: str
    metric: str
    value: float
    """Value of the published model: the best restart, or an ensemble."""

    majority: float | None = None
    """Score of always giving the most frequent answer."""


class Phase(NamedTuple):
    """A phase of pretraining, up to the step that was used."""

    manifest: Manifest
    steps: int
    tokens: int


class Start(NamedTuple):
    """Checkpoint that a recipe names by its path."""

    name: str
    """Name of the folder; of a checkpoint of the Hugging Face Hub, its URL with the commit."""

    ref: InputRef | None
    """Artifact that it belongs to. None: bertloom did not train it."""


class Description(NamedTuple):
    """A model as its card describes it."""

    model: Manifest
    """The model; the first one of an ensemble."""

    ensemble_size: int
    phases: list[Phase]
    examples: Manifest | None
    title: str
    pipeline_tag: str
    class_name: str
    """Class of `transformers` that loads it; "" if none does."""


def _describe(manifest: Manifest, ancestors: Ancestors) -> Description:
    facts = manifest.statistics
    members = facts.get("members", ())
    model = (ancestors.input(manifest, members[0]) if members else None) or manifest
    phases = list(_phases(model, ancestors))[::-1]
    examples = ancestors.input(model, "examples")
    tag, class_name = _TAGS_AND_CLASSES[facts.get("kind") or facts["objective"]]
    is_loadable = len(members) < 2 and facts.get("method", "fine-tune") == "fine-tune"
    return Description(
        model,
        len(members),
        phases,
        examples,
        escape_control_characters(_title(model, phases, examples)),
        tag,
        class_name if is_loadable else "",
    )


def model_metadata(manifest: Manifest, *, ancestors: Ancestors, cards: CardsConfig) -> str:
    """Return what the Hub reads of a model, as YAML (arguments: `flows.cards.cards.card_of`)."""
    from huggingface_hub import ModelCardData  # lazy: Prefect's pages need the text only

    about, scores = _describe(manifest, ancestors), scores_of(manifest)
    starts = [start.name for start in _starts(about.model, ancestors) if is_hub_url(start.name)]
    data = ModelCardData(
        language=languages_of(corpus_sources(ancestors, cards)),
        license=cards.model_license or UNKNOWN,
        base_model=[split_revision(url)[0] for url in starts] or None,
        library_name="transformers" if about.class_name else None,
        pipeline_tag=about.pipeline_tag,
        tags=["bert", "bertloom"],
        model_name=about.title if scores else None,
        eval_results=[_eval_result(score, manifest, about) for score in scores] or None,
    )
    return str(data.to_yaml())


def model_body(manifest: Manifest, *, ancestors: Ancestors, cards: CardsConfig) -> str:
    """Return the text of the card of a model (arguments: `flows.cards.cards.card_of`).

    The card of an ensemble describes the pretraining and the settings of its first model.
    """
    about, scores = _describe(manifest, ancestors), scores_of(manifest)
    return render(
        "model.md.j2",
        title=about.title,
        manifest=manifest,
        ensemble_size=about.ensemble_size,
        phases=about.phases,
        starts=list(_starts(about.model, ancestors)),
        scores=scores,
        restarts=max((score.restarts for score in scores), default=0),
        sources=corpus_sources(ancestors, cards),
        examples=about.examples,
        data_name=dataset_name(about.examples) if about.examples else "",
        license=cards.model_license or UNKNOWN,
        ancestors=ancestors,
        model=about.model,
        settings=settings_of(about.model),
        class_name=about.class_name,
    )


def scores_of(manifest: Manifest) -> list[Score]:
    """Return every score of a model that has a value, in the order of its statistics."""
    facts = manifest.statistics
    if manifest.stage == "pretrain":
        return [
            Score(split="held-out", metric=name, value=value, **_NO_RESTARTS)
            for name, value in facts["held_out"].items()
        ]
    evaluation = read_evaluation(manifest)
    return [
        Score(
            split=split,
            metric=metric,
            value=value,
            majority=find_score(evaluation.baseline, split, metric),
            **dict(evaluation.scores(split, metric)),
        )
        for split, metrics in evaluation.metrics.items()
        for metric, value in metrics.items()
        if value is not None  # such as the correlation with a constant
    ]


def _eval_result(score: Score, manifest: Manifest, about: Description) -> EvalResult:
    """Return a score for the Hub: the mean over restarts, or the score of an ensemble."""
    from huggingface_hub import EvalResult  # lazy, as above

    examples = about.examples
    name, kind = "held-out documents of the pretraining corpus", "bertloom-held-out"
    if examples is not None:
        cut = Cut.model_validate(manifest.statistics.get("cut", {})).on(score.split)
        name = "; ".join([dataset_name(examples), *cut])
        kind = "custom" if examples.statistics.get("data") else examples.statistics["task"]
    metric, value, spread = score.metric.replace("_", " "), score.value, None
    if score.ensemble is not None:
        metric += " (ensemble)"
    elif score.mean is not None and score.sd is not None:
        metric, value = f"{metric} (mean of {score.restarts} restarts)", score.mean
        spread = {"restarts": score.restarts, "sd": _rounded(score.metric, score.sd)}
    return EvalResult(
        task_type=about.pipeline_tag,
        dataset_type=kind,
        dataset_name=escape_control_characters(name),
        dataset_split=score.split.replace("-", "_"),
        metric_type=score.metric,
        metric_name=metric,
        metric_value=_rounded(score.metric, value),
        metric_args=spread,
    )


def _rounded(metric: str, value: float) -> float:
    return float(format_metric(metric, value).replace(",", ""))


def _phases(model: Manifest, ancestors: Ancestors) -> Iterator[Phase]:
    """Yield the pretraining phases of a model, last phase first."""
    at_step: int | None = None
    for trained in _trainings(model, ancestors):
        if trained.stage == "pretrain":
            steps, tokens = trained.counters["steps"], trained.counters["tokens"]
            if at_step is not None:
                steps, tokens = at_step, trained.statistics["snapshots"][str(at_step)]["tokens"]
            yield Phase(trained, steps, tokens)
        at_step = _start_step(trained)


def _trainings(model: Manifest, ancestors: Ancestors) -> Iterator[Manifest]:
    """Yield a model, the model that it was trained from, and so on."""
    trained: Manifest | None = model
    while trained is not None:
        yield trained
        trained = next(filter(None, (ancestors.input(trained, name) for name in _STARTS)), None)


def _start_step(trained: Manifest) -> int | None:
    """Return the step of the snapshot that a training started from; None: a published model."""
    if (step := trained.config.get("init_from_step")) is not None:
        return int(step)
    match = _SNAPSHOT.search(trained.config.get("init_checkpoint") or "")
    return int(match[1]) if match else None


def _starts(model: Manifest, ancestors: Ancestors) -> Iterator[Start]:
    """Yield the checkpoints that the trainings of a model read by their paths, the last first."""
    for trained in _trainings(model, ancestors):
        if path := trained.config.get("init_checkpoint"):
            name = path if is_hub_url(path) else PurePath(path).name
            yield Start(name, trained.input("init_checkpoint"))


def _title(model: Manifest, phases: list[Phase], examples: Manifest | None) -> str:
    configs = [model.statistics.get("model"), *(p.manifest.config.get("model") for p in phases)]
    shape = next((config for config in configs if config and config.get("num_hidden_layers")), None)
    title = "BERT"
    if shape:
        title += f" with {shape['num_hidden_layers']} layers and hidden size {shape['hidden_size']}"
    return f"{title} fine-tuned on {dataset_name(examples)}" if examples else title
