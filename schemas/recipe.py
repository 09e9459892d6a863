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
