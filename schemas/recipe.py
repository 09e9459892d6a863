"""The recipe: the whole configuration of a run in one YAML file."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, field_validator

from schemas.base_configs import Config, SourceName, not_in_key
from schemas.corpus_configs import (
    DecontaminateConfig,
    DocumentsConfig,
    InstancesConfig,
    NearDuplicatesConfig,
    TokensConfig,
    VocabularyConfig,
)
from schemas.execution_configs import ExecutionConfig
from schemas.finetune_configs import (
    MIN_LAYERS,
    EnsembleConfig,
    ExamplesConfig,
    ExpandedEntry,
    FeaturesConfig,
    FinetuneConfig,
)
from schemas.model_configs import ModelConfig, PretrainConfig
from schemas.publish_configs import CardsConfig, PublishConfig


def _none_as_empty(value: Any) -> Any:
    return {} if value is None else value


class SweepAxis(Config):
    """One axis of a sweep."""

    table: Literal["", "table-5", "table-6", "table-7", "table-8", "figure-5"] = ""
    """Table or figure of the paper with a row per variant. "": none."""

    variants: dict[SourceName, Annotated[dict[str, Any], BeforeValidator(_none_as_empty)]]
    """Overrides by variant name, as in `--set`: values by dotted path
    (`pretrain.phase-1.objective`). `{}`: the recipe as it is."""

    def _problems(self) -> Iterator[str]:
        if len(self.variants) < 2:
            yield f"variants: expected two or more, got {list(self.variants)}"


REFERENCES = {
    "pretrain": {"instances": "build_instances", "init_from_phase": "pretrain"},
    "finetune": {"examples": "build_examples", "init_from_phase": "pretrain"},
    "ensembles": {"members": "finetune"},
}
"""Section of the entries that a field names, by section and field."""


class Recipe(Config):
    """Configuration of a run."""

    name: SourceName
    """Name of the run and of its refs."""

    build_documents: DocumentsConfig | None = None
    """Sources of the corpus. None: only fine-tune models."""

    decontaminate: DecontaminateConfig | None = None
    """Removal of documents that contain evaluation texts. None: no search."""

    find_near_duplicates: NearDuplicatesConfig | None = None
    """Removal of nearly equal documents. Use `{}` for the defaults. None: no search."""

    build_vocabulary: VocabularyConfig = VocabularyConfig()
    """WordPiece vocabulary."""

    build_tokens: TokensConfig = TokensConfig()
    """Tokenization of the documents."""

    build_instances: dict[SourceName, InstancesConfig] = Field(
        default={"length-128": InstancesConfig()}
    )
    """Instance artifacts by name, all from the same tokens."""

    pretrain: dict[SourceName, PretrainConfig] = Field(default={})
    """Phases of pretraining in order, by name."""

    build_examples: dict[SourceName, ExamplesConfig] = Field(default={})
    """Task data by name."""

    finetune: dict[SourceName, FinetuneConfig] = Field(default={})
    """Fine-tunings by name: each is a grid on one entry of build_examples, and is evaluated."""

    ensembles: dict[SourceName, EnsembleConfig] = Field(default={})
    """Ensembles of several fine-tunings by name. Each is evaluated."""

    sweep: dict[SourceName, SweepAxis] = Field(default={})
    """Axes by name. Every combination of their variants is run; entries that no variant affects
    exist once (`flows.recipes.sweeps`)."""

    expanded_sweep: tuple[ExpandedEntry, ...] | None = None
    """Entries of `finetune` and `ensembles` that the sweep created. Set by bertloom when it reads a
    recipe, never by you."""

    publish: PublishConfig | None = not_in_key(None)
    """Ref of the published corpus and limits of its changes. None: do not publish."""

    cards: CardsConfig = not_in_key(CardsConfig())
    """Licenses and attributions for the cards of artifacts."""

    report_include_text: bool = not_in_key(True)
    """Show samples of the texts in the run report. Use `false` for confidential texts."""

    store: str = not_in_key("store")
    """Root of the artifact store: a path or an fsspec URL (memory://, s3://, gs://)."""

    execution: ExecutionConfig = not_in_key(ExecutionConfig())
    """Runner and resources."""

    _unexpanded: Recipe | None = PrivateAttr(None)

    @property
    def unexpanded(self) -> Recipe:
        """The recipe before its sweep was expanded."""
        return self._unexpanded or self

    def expand(self, fields: dict[str, Any]) -> Recipe:
        """Return the recipe with the fields of its expanded sweep."""
        recipe = Recipe(**fields)
        recipe._unexpanded = self
        return recipe

    @field_validator("store")
    @classmethod
    def _check_store(cls, store: str) -> str:
        scheme, separator, path = store.partition("://")
        if separator and not path.strip("/"):
            raise ValueError(f"expected {scheme}://BUCKET/FOLDER, got {store}")
        return store

    def _problems(self) -> Iterator[str]:
        if bool(self.sweep) != (self.expanded_sweep is not None):
            yield "expanded_sweep: set by bertloom when it reads a sweep. Remove it"
        if self.build_documents is None and not self.build_examples:
            yield "expected build_documents or build_examples, got neither"
        if self.build_documents is None and self.pretrain:
            yield "pretrain: requires build_documents"
        if self.find_near_duplicates is not None and not self.build_tokens.remove_duplicates:
            yield "find_near_duplicates: requires build_tokens.remove_duplicates"
        missing = list(self._missing_references())
        yield from missing
        if not missing:
            yield from self._phase_problems()
            yield from self._finetuning_problems()
            yield from self._ensemble_problems()

    def _missing_references(self) -> Iterator[str]:
        for section, fields in REFERENCES.items():
            names = list(getattr(self, section))
            for (at, name), (field, target) in itertools.product(enumerate(names), fields.items()):
                # A phase starts from an earlier one.
                known = names[:at] if target == section else list(getattr(self, target))
                value = getattr(getattr(self, section)[name], field)
                for reference in value if isinstance(value, tuple) else [value]:
                    yield from _missing(f"{section}.{name}.{field}", reference, target, known)
        for task in self.decontaminate.tasks if self.decontaminate is not None else ():
            examples = list(self.build_examples)
            yield from _missing("decontaminate.tasks", task, "build_examples", examples)
        sources = self.build_documents.sources if self.build_documents is not None else ()
        names = [source.name for source in sources]
        for name in self.cards.sources:
            yield from _missing(f"cards.sources.{name}", name, "build_documents.sources", names)

    def _phase_problems(self) -> Iterator[str]:
        for name, phase in self.pretrain.items():
            shape, where = self._shape_of_phase(phase), f"pretrain.{name}"
            length = self.build_instances[phase.instances].max_seq_length
            if shape is not None and length > shape.max_position_embeddings:
                limit = f"max_position_embeddings, {shape.max_position_embeddings}"
                yield f"{where}.instances: expected at most {limit}, got {length}"
            if phase.init_from_phase is None or phase.optimizer_state == "reset":
                continue
            earlier = self.pretrain[phase.init_from_phase]
            remedy = f"that of {phase.init_from_phase}. Use the same or set optimizer_state: reset"
            if phase.optimizer.name != earlier.optimizer.name:
                yield f"{where}.optimizer.name: expected {earlier.optimizer.name}, {remedy}"
            if phase.budget.max_minutes is not None and earlier.budget.max_minutes is None:
                yield f"{where}.budget: expected a unit other than minutes, {remedy}"

    def _finetuning_problems(self) -> Iterator[str]:
        for name, entry in self.finetune.items():
            where = f"finetune.{name}"
            shape, phase = entry.model, self.pretrain.get(entry.init_from_phase or "")
            if shape is not None and self.build_documents is None:
                yield f"{where}.model: requires build_documents for a vocabulary"
            if phase is not None:
                shape, step = self._shape_of_phase(phase), entry.init_from_step
                if step is not None and step not in phase.published_steps:
                    expected = f"a step of {entry.init_from_phase}, {list(phase.published_steps)}"
                    yield f"{where}.init_from_step: expected {expected}, got {step}"
            if shape is None:
                continue  # only the checkpoint has it
            layers, choice = shape.num_hidden_layers, entry.feature_layers
            if entry.method == "feature-based" and layers < MIN_LAYERS[choice]:
                needed = f"{choice} requires {MIN_LAYERS[choice]} layers"
                yield f"{where}.feature_layers: {needed}, got {layers} in the encoder"
            if entry.max_seq_length > shape.max_position_embeddings:
                limit = f"max_position_embeddings, {shape.max_position_embeddings}"
                yield f"{where}.max_seq_length: expected at most {limit}"

    def _ensemble_problems(self) -> Iterator[str]:
        for name, ensemble in self.ensembles.items():
            where = f"ensembles.{name}"
            if name in self.finetune:
                yield f"{where}: finetune has an entry {name!r} too. Rename one"
            members = [self.finetune[member] for member in ensemble.members]
            for field in ("examples", *FeaturesConfig.model_fields):
                if len({getattr(member, field) for member in members}) > 1:
                    yield f"{where}.members: expected equal {field}, got different ones"

    def _shape_of_phase(self, phase: PretrainConfig) -> ModelConfig | None:
        while phase.init_from_phase is not None:
            phase = self.pretrain[phase.init_from_phase]
        return phase.model


def _missing(field: str, name: str | None, section: str, names: list[str]) -> Iterator[str]:
    """Yield a problem if a section has no entry of this name."""
    if name is not None and name not in names:
        close = difflib.get_close_matches(name, names, n=1)
        hint = f". Did you mean {close[0]!r}?" if close else ""
        yield f"{field}: no {name!r} in {section} ({', '.join(names) or 'empty'}){hint}"
