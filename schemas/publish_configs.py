"""What a recipe says of publishing its corpus under a name that moves on."""

from __future__ import annotations

from pydantic import Field

from schemas.configs import Config


class ChangeLimits(Config):
    """How much a corpus may differ from the published one; shares of the published figures.

    A corpus beyond a limit is kept in the store and not published.
    """

    max_documents_decrease: float = Field(default=0.02, ge=0, le=1)
    """Share of documents by which it may have fewer, of each source and in all."""

    max_tokens_decrease: float = Field(default=0.02, ge=0, le=1)
    """Share of tokens by which it may have fewer."""

    max_instances_decrease: float = Field(default=0.05, ge=0, le=1)
    """Share of instances by which it may have fewer, of each entry of build_instances."""

    max_documents_increase: float = Field(default=0.25, ge=0)
    """Share of documents by which it may have more, of each source and in all."""

    max_tokens_increase: float = Field(default=0.25, ge=0)
    """Share of tokens by which it may have more."""

    max_instances_increase: float = Field(default=0.3, ge=0)
    """Share of instances by which it may have more, of each entry of build_instances."""

    max_drop_rate_change: float = Field(default=0.05, ge=0, le=1)
    """By how much the share of records dropped may differ, for any kind of record and reason."""

    max_unk_rate_change: float = Field(default=0.005, ge=0, le=1)
    """By how much the share of unknown tokens may differ."""


class PublishConfig(Config):
    """Publishing: the named pointer `NAME/latest`, and the limits."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*(/[a-z0-9][a-z0-9_.-]*)*$", max_length=128)
    """Such as `corpus/simplewiki`. Publishing moves `NAME/latest`; every publication stays under
    `NAME/` and the date of its dump, or the id of the run where it has no date of its own."""

    reuse_vocabulary: bool = True
    """Whether `bertloom rebuild` takes the published corpus's vocabulary over, so that a model goes
    on with the next corpus and unchanged parts of a dump are not tokenised again. A vocabulary
    learnt anew gives every token another number. A changed size or casing is always learnt."""

    limits: ChangeLimits = ChangeLimits()
    """How much the corpus may differ from the one published before it."""
