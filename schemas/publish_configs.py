"""Configurations of publishing a corpus under a ref that moves."""

from __future__ import annotations

from pydantic import Field

from schemas.base_configs import Config, Fraction


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

    limits: ChangeLimits = ChangeLimits()
    """Maximum changes from the previously published corpus."""
