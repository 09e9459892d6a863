"""The recipe: everything a run is configured with, in one YAML file."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from schemas.card_configs import CardsConfig
from schemas.configs import (
    Config,
    DocumentsConfig,
    ExecutionConfig,
    InstancesConfig,
    NearDuplicatesConfig,
    SourceName,
    TokensConfig,
    VocabularyConfig,
    not_identity,
)
from schemas.contamination_configs import DecontaminateConfig
from schemas.model_configs import ModelConfig, PretrainConfig
from schemas.publish_configs import PublishConfig
from schemas.task_configs import (
    MIN_LAYERS,
    EnsembleConfig,
    ExamplesConfig,
    ExpandedEntry,
    FeaturesConfig,
    FinetuneConfig,
)


def _or_none(value: Any) -> Any:
    """A variant after whose name nothing stands changes nothing."""
    return {} if value is None else value


class SweepAxis(Config):
    """One thing that a sweep varies: its variants, each a set of changes to entries."""

    table: Literal["", "table-5", "table-6", "table-7", "table-8", "figure-5"] = ""
    """The paper's table or figure whose rows the variants are; "" for none."""

    variants: dict[SourceName, Annotated[dict[str, Any], BeforeValidator(_or_none)]]
    """By name: values by dotted paths (`pretrain.phase-1.objective`), as of `--set`; `{}` for the
    recipe as it is."""

    @model_validator(mode="after")
    def _varies(self) -> Self:
        if len(self.variants) < 2:
            raise ValueError(
                f"variants: expected two or more, found {', '.join(self.variants) or 'none'}: what "
                "is always so stands in the entries themselves"
            )
        return self


class Recipe(Config):
    """A whole run: what to read, which vocabulary, instances and models, which tasks, where."""

    name: SourceName
    """Names the run and its refs."""

    build_documents: DocumentsConfig | None = None
    """The corpus; none where models are only fine-tuned."""

    decontaminate: DecontaminateConfig | None = None
    """Leave out of the corpus what tasks are tested on; none: nothing is looked for."""

    find_near_duplicates: NearDuplicatesConfig | None = None
    """Set to `{}` to leave out documents that say nearly the same as another."""

    build_vocabulary: VocabularyConfig = VocabularyConfig()
    """The WordPiece vocabulary: learnt from the corpus, or given."""

    build_tokens: TokensConfig = TokensConfig()
    """Documents as ids of the vocabulary."""

    build_instances: dict[SourceName, InstancesConfig] = Field(
        default={"length-128": InstancesConfig()}
    )
    """One instance artifact for each name, all from the same tokens."""

    pretrain: dict[SourceName, PretrainConfig] = Field(default={})
    """Phases of pretraining, each after the one it starts from; none for a corpus alone."""

    build_examples: dict[SourceName, ExamplesConfig] = Field(default={})
    """Data of fine-tuning tasks, by a name of one's own."""

    finetune: dict[SourceName, FinetuneConfig] = Field(default={})
    """Fine-tunings: each a grid with restarts on one entry of build_examples, and evaluated."""

    ensembles: dict[SourceName, EnsembleConfig] = Field(default={})
    """Models of several fine-tunings that answer together, evaluated beside those."""

    sweep: dict[SourceName, SweepAxis] = Field(default={})
    """Axes by name; where there are several, every combination of their variants is run. What a
    variant changes, and what depends on it, is there once for each (`flows.recipes.sweeps`)."""

    expanded_sweep: tuple[ExpandedEntry, ...] | None = None
    """What the sweep has made of `finetune` and `ensembles`. Nobody writes it: a recipe that was
    read has it, and the entries above are those that the sweep has made."""

    publish: PublishConfig | None = not_identity(None)
    """The name that a rebuilt corpus is published under, and how much it may differ from the one
    before; none where nothing is published."""

    cards: CardsConfig = not_identity(CardsConfig())
    """Licences and attribution for the cards of artifacts, which change nothing else."""

    report_include_text: bool = not_identity(True)
    """Whether a run's page shows samples of its texts: sentences, raw text, titles. `false` for
    texts that are not to be read by everyone who may see the page."""

    store: str = not_identity("store")
    """Root of the artifact store: a path or an fsspec URL (memory://, s3://, gs://)."""

    execution: ExecutionConfig = not_identity(ExecutionConfig())
    """Where and how jobs run; nothing of it changes a byte."""

    @field_validator("store")
    @classmethod
    def _store_has_a_bucket(cls, store: str) -> str:
        scheme, separator, place = store.partition("://")
        if separator and not place.strip("/"):
            raise ValueError(f"expected {scheme}://BUCKET/FOLDER, got {store}")
        return store

    @model_validator(mode="after")
    def _sweep_is_expanded(self) -> Self:
        if bool(self.sweep) != (self.expanded_sweep is not None):
            raise ValueError(
                "expanded_sweep: is written when a recipe with a sweep is read: expected "
                "`sweep` alone, to "
                "be read by load_recipe, or both of a recipe that was read"
            )
        evaluated = {*self.finetune, *self.ensembles}
        lost = [item.entry for item in self.expanded_sweep or () if item.entry not in evaluated]
        if lost:
            raise ValueError(f"expanded_sweep: no {lost[0]!r} in finetune or ensembles")
        return self

    @model_validator(mode="after")
    def _entries_that_are_named_are_there(self) -> Self:
        lost = [*self._lost_by_phases(), *self._lost_by_cards(), *self._lost_by_tasks()]
        if lost:
            raise ValueError("\n".join(lost))
        return self

    def _lost_by_phases(self) -> Iterator[str]:
        earlier: list[str] = []
        for name, phase in self.pretrain.items():
            if phase.instances not in self.build_instances:
                where = f"pretrain.{name}.instances"
                yield _no_entry(where, phase.instances, "build_instances", self.build_instances)
            if phase.init_from_phase is not None and phase.init_from_phase not in earlier:
                known = ", ".join(earlier) or "none"
                yield (
                    f"pretrain.{name}.init_from_phase: no phase {phase.init_from_phase!r} "
                    f"before this "
                    f"one (before it: {known}){_meant(phase.init_from_phase, earlier)}"
                )
            earlier.append(name)

    def _lost_by_cards(self) -> Iterator[str]:
        sources = self.build_documents.sources if self.build_documents is not None else ()
        known = {source.name: source for source in sources}
        for name in self.cards.sources:
            if name not in known:
                where = f"cards.sources.{name}"
                yield _no_entry(where, name, "build_documents.sources", known)

    def _lost_by_tasks(self) -> Iterator[str]:
        for task in self.decontaminate.tasks if self.decontaminate is not None else ():
            if task not in self.build_examples:
                yield _no_entry("decontaminate.tasks", task, "build_examples", self.build_examples)
        for name, entry in self.finetune.items():
            where = f"finetune.{name}"
            if entry.examples not in self.build_examples:
                of = self.build_examples
                yield _no_entry(f"{where}.examples", entry.examples, "build_examples", of)
            if entry.init_from_phase is not None and entry.init_from_phase not in self.pretrain:
                known = ", ".join(self.pretrain) or "no phases"
                yield (
                    f"{where}.init_from_phase: no phase {entry.init_from_phase!r} in pretrain, "
                    f"which "
                    f"has {known}{_meant(entry.init_from_phase, self.pretrain)}"
                )
        for name, ensemble in self.ensembles.items():
            for member in ensemble.members:
                if member not in self.finetune:
                    where = f"ensembles.{name}.members"
                    yield _no_entry(where, member, "finetune", self.finetune)

    @model_validator(mode="after")
    def _has_something_to_do(self) -> Self:
        if self.build_documents is None and not self.build_examples:
            raise ValueError(
                "expected build_documents (a corpus) or build_examples (data of tasks), found "
                "neither"
            )
        if self.build_documents is None and self.pretrain:
            raise ValueError("pretrain: needs a corpus, and there is no build_documents")
        return self

    @model_validator(mode="after")
    def _near_duplicates_are_without_equal_ones(self) -> Self:
        if self.find_near_duplicates is not None and not self.build_tokens.remove_duplicates:
            raise ValueError(
                "find_near_duplicates: it looks among documents without duplicates, and "
                "build_tokens.remove_duplicates is false: set that to true, or leave this out"
            )
        return self

    @model_validator(mode="after")
    def _finetunings_fit_their_models(self) -> Self:
        for name, entry in self.finetune.items():
            where = f"finetune.{name}"
            if entry.init_from_phase is not None and entry.init_from_step is not None:
                _check_step(
                    where, entry.init_from_step, phase=entry.init_from_phase, given=self.pretrain
                )
            if entry.model is not None and self.build_documents is None:
                raise ValueError(
                    f"{where}.model: a model from scratch takes the vocabulary of the recipe's "
                    "corpus, and there is no build_documents"
                )
            shape = self._shape_of(entry)
            if shape is not None and entry.method == "feature-based":
                _check_layers(where, entry, has=shape.num_hidden_layers)
            positions = shape.max_position_embeddings if shape is not None else None
            if positions is not None and entry.max_seq_length > positions:
                raise ValueError(
                    f"{where}.max_seq_length: {entry.max_seq_length}, but the model has positions "
                    f"for {positions}: lower one or raise the other"
                )
        return self

    def _shape_of(self, entry: FinetuneConfig) -> ModelConfig | None:
        """Shape of the model that a fine-tuning starts from; None where only its files say."""
        if entry.model is not None:
            return entry.model
        phase = self.pretrain[entry.init_from_phase] if entry.init_from_phase is not None else None
        while phase is not None and phase.init_from_phase is not None:
            phase = self.pretrain[phase.init_from_phase]
        return None if phase is None else phase.model

    @model_validator(mode="after")
    def _members_answer_alike(self) -> Self:
        for name, ensemble in self.ensembles.items():
            where = f"ensembles.{name}"
            if name in self.finetune:
                raise ValueError(f"{where}: finetune has an entry {name!r} too: use another name")
            read = {self.finetune[member].examples for member in ensemble.members}
            if len(read) > 1:
                raise ValueError(
                    f"{where}.members: expected fine-tunings on the same examples, found those on "
                    f"{', '.join(sorted(read))}"
                )
            if any(self.finetune[member].method == "majority" for member in ensemble.members):
                raise ValueError(f"{where}.members: method majority has no model to ask")
            first, *others = (self.finetune[member] for member in ensemble.members)
            for field in FeaturesConfig.model_fields:
                if any(getattr(other, field) != getattr(first, field) for other in others):
                    raise ValueError(
                        f"{where}.members: they differ in {field}: expected fine-tunings that read "
                        "and answer alike, whose answers can be averaged"
                    )
        return self

    @model_validator(mode="after")
    def _phases_can_go_on(self) -> Self:
        # The phases say the same when they begin; but then the one before has been trained.
        positions: dict[str, int] = {}
        for name, phase in self.pretrain.items():
            if phase.model is not None:
                positions[name] = phase.model.max_position_embeddings
            elif phase.init_from_phase in positions:
                positions[name] = positions[phase.init_from_phase]
            length = self.build_instances[phase.instances].max_seq_length
            if length > positions.get(name, length):
                raise ValueError(
                    f"pretrain.{name}.instances: {phase.instances} has up to {length} tokens, the "
                    f"model positions for {positions[name]}: raise max_position_embeddings"
                )
            if phase.init_from_phase is not None and phase.optimizer_state == "restore":
                _check_carried(name, phase, before=self.pretrain[phase.init_from_phase])
        return self


def _no_entry(where: str, name: str, section: str, entries: Mapping[str, Any]) -> str:
    known = ", ".join(entries) or "no entries"
    return f"{where}: no {name!r} in {section}, which has {known}{_meant(name, entries)}"


def _meant(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _check_layers(where: str, entry: FinetuneConfig, *, has: int) -> None:
    needed = MIN_LAYERS[entry.feature_layers]
    if has < needed:
        fitting = ", ".join(name for name, number in MIN_LAYERS.items() if number <= has)
        raise ValueError(
            f"{where}.feature_layers: {entry.feature_layers} needs an encoder of at least {needed} "
            f"layers, that of {entry.init_from_phase} has {has}: choose from {fitting}, or "
            f"pretrain a larger one"
        )


def _check_step(where: str, step: int, *, phase: str, given: Mapping[str, PretrainConfig]) -> None:
    config = given[phase]
    last = config.budget.max_steps if config.keep == "last" else None
    known = sorted({*config.snapshot_steps, *([last] if last is not None else [])})
    if step not in known:
        kept = ", ".join(map(str, known)) or "none that are known before it is trained"
        raise ValueError(
            f"{where}.init_from_step: pretrain.{phase} keeps no model of step {step}; it has "
            f"{kept} "
            f"(counted from its own begin): add {step} to pretrain.{phase}.snapshot_steps, or name "
            "another step"
        )


def _check_carried(name: str, phase: PretrainConfig, *, before: PretrainConfig) -> None:
    if phase.optimizer.name != before.optimizer.name:
        raise ValueError(
            f"pretrain.{name}.optimizer.name: {phase.optimizer.name} cannot go on with the state "
            f"of {before.optimizer.name} ({phase.init_from_phase}): use that, or set "
            f"optimizer_state "
            "to reset"
        )
    if phase.budget.max_minutes is not None and before.budget.max_minutes is None:
        raise ValueError(
            f"pretrain.{name}.budget: it is in minutes, that of {phase.init_from_phase} is not, so "
            "its place in the schedule is not known: give both in one unit, or set "
            "optimizer_state to "
            "reset"
        )
