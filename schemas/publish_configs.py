"""Configurations of publishing: refs of corpora, and cards of artifacts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.base_configs import Config, Fraction, SourceName

License = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.+-]*$|^$", max_length=64)]


class ChangeLimits(Config):
    """Maximum changes from the published corpus, as fractions of its counts.

    A corpus beyond a limit stays in the store and is not published.
    """

    max_documents_decrease: Fraction = 0.02
    """Maximum decrease of documents, per source and in total."""

    max_tokens_decrease: Fraction = 0.02
    """Maximum decrease of tokens."""

    max_instances_decrease: Fraction = 0.05
    """Maximum decrease of instances, per entry of build_instances."""

    max_documents_increase: float = Field(default=0.25, ge=0)
    """Maximum increase of documents, per source and in total."""

    max_tokens_increase: float = Field(default=0.25, ge=0)
    """Maximum increase of tokens."""

    max_instances_increase: float = Field(default=0.3, ge=0)
    """Maximum increase of instances, per entry of build_instances."""

    max_drop_rate_change: Fraction = 0.05
    """Maximum change of the fraction of dropped records, per record type and reason."""

    max_unk_rate_change: Fraction = 0.005
    """Maximum change of the fraction of [UNK] tokens."""


class PublishConfig(Config):
    """Ref `NAME/latest` of a published corpus, and the limits of its changes."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*(/[a-z0-9][a-z0-9_.-]*)*$", max_length=128)
    """Name such as `corpus/simplewiki`. Publishing moves `NAME/latest`; each publication keeps a
    ref `NAME/DATE` with the date of its dump, or `NAME/RUN` if the dump has no date."""

    reuse_vocabulary: bool = True
    """Reuse the published vocabulary in `bertloom rebuild`, so that models can train on the next
    corpus and unchanged parts are not tokenized again. A learned vocabulary assigns other ids. If
    size or casing change, the vocabulary is always learned."""

    keep_versions: int = Field(default=3, ge=1)
    """Number of newest versions that keep their ref. Publishing deletes the refs of older ones, and
    `bertloom gc` then deletes what nothing else refers to. The version that `NAME/latest` points to
    always stays."""

    limits: ChangeLimits = ChangeLimits()
    """Maximum changes from the previously published corpus."""


class SourceCard(Config):
    """License and attribution of a source."""

    license: License = ""
    """License id of the Hugging Face hub, such as `cc-by-4.0` or `other`. "": unknown."""

    attribution: str = Field(default="", max_length=2000)
    """Sentence that credits the authors."""

    url: str = Field(default="", pattern=r"^(https?://\S+)?$", max_length=500)
    """Origin of the texts."""


class CardsConfig(Config):
    """Facts for cards that only the author of a recipe knows."""

    sources: dict[SourceName, SourceCard] = Field(default={})
    """Licenses and attributions by source name."""

    model_license: License = ""
    """License id of the models. "": unknown."""
