"""The recipe: everything a run is configured with, in one YAML file."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from schemas.configs import (
    Config,
    DocumentsConfig,
    ExecutionConfig,
    InstancesConfig,
    SourceName,
    TokensConfig,
    VocabularyConfig,
    not_identity,
)
from schemas.model_configs import PretrainConfig


class Recipe(Config):
    """A whole run: what to read, which vocabulary, which instances, which models, where to run."""

    name: SourceName
    """Names the run and its refs."""

    build_documents: DocumentsConfig
    build_vocabulary: VocabularyConfig = VocabularyConfig()
    build_tokens: TokensConfig = TokensConfig()
    build_instances: dict[SourceName, InstancesConfig] = Field(
        default={"length-128": InstancesConfig()}
    )
    """One instance artifact for each name, all from the same tokens."""

    pretrain: dict[SourceName, PretrainConfig] = Field(default={})
    """Phases of pretraining, each after the one it starts from; none for a corpus alone."""

    code_identity: Literal["closure", "version"] = not_identity("closure")
    """How cache keys see a stage's code. `closure`: by every module it imports, so that any change
    of code builds anew. `version`: by its STAGE_VERSION alone, for corpora that cost money."""

    store: str = not_identity("store")
    """Root of the artifact store: a path or an fsspec URL (memory://, s3://, gs://)."""

    execution: ExecutionConfig = not_identity(ExecutionConfig())

    @model_validator(mode="after")
    def _phases_find_what_they_name(self) -> Self:
        earlier: list[str] = []
        for name, phase in self.pretrain.items():
            if phase.instances not in self.build_instances:
                known = ", ".join(self.build_instances)
                raise ValueError(
                    f"pretrain.{name}.instances: no {phase.instances!r} in build_instances, which "
                    f"has {known}"
                )
            if phase.start_from is not None and phase.start_from not in earlier:
                known = ", ".join(earlier) or "none"
                raise ValueError(
                    f"pretrain.{name}.start_from: no phase {phase.start_from!r} before this one "
                    f"(before it: {known})"
                )
            earlier.append(name)
        return self

    @model_validator(mode="after")
    def _phases_can_go_on(self) -> Self:
        # The phases say the same when they begin; but then the one before has been trained.
        positions: dict[str, int] = {}
        for name, phase in self.pretrain.items():
            if phase.model is not None:
                positions[name] = phase.model.max_position_embeddings
            elif phase.start_from in positions:
                positions[name] = positions[phase.start_from]
            length = self.build_instances[phase.instances].max_seq_length
            if length > positions.get(name, length):
                raise ValueError(
                    f"pretrain.{name}.instances: {phase.instances} has up to {length} tokens, the "
                    f"model positions for {positions[name]}: raise max_position_embeddings"
                )
            if phase.start_from is not None and phase.optimizer_state == "carry":
                _check_carried(name, phase, before=self.pretrain[phase.start_from])
        return self


def _check_carried(name: str, phase: PretrainConfig, *, before: PretrainConfig) -> None:
    if phase.optimizer.name != before.optimizer.name:
        raise ValueError(
            f"pretrain.{name}.optimizer.name: {phase.optimizer.name} cannot go on with the state "
            f"of {before.optimizer.name} ({phase.start_from}): use that, or set optimizer_state to "
            "reset"
        )
    if phase.budget.minutes is not None and before.budget.minutes is None:
        raise ValueError(
            f"pretrain.{name}.budget: it is in minutes, that of {phase.start_from} is not, so its "
            "place in the schedule is not known: give both in one unit, or set optimizer_state to "
            "reset"
        )
