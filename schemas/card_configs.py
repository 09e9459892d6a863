"""What a recipe may say for the cards of its artifacts; none of it changes what is made."""

from __future__ import annotations

from pydantic import Field

from schemas.configs import Config, SourceName


class SourceCard(Config):
    """Whose the texts of a source are."""

    license: str = Field(default="", pattern=r"^[a-z0-9][a-z0-9.+-]*$|^$", max_length=64)
    """Licence of the texts, as the Hugging Face hub writes it: `cc-by-4.0`, `cc0-1.0`, `mit`,
    `other`. "" where it is not said."""

    attribution: str = Field(default="", max_length=2000)
    """Who is to be named, in a sentence."""

    url: str = Field(default="", pattern=r"^(https?://\S+)?$", max_length=500)
    """Where the texts come from."""


class CardsConfig(Config):
    """What stands on the cards of artifacts, and is known to nobody but who writes the recipe."""

    sources: dict[SourceName, SourceCard] = Field(default={})
    """By the names of the sources in build_documents."""

    model_license: str = Field(default="", pattern=r"^[a-z0-9][a-z0-9.+-]*$|^$", max_length=64)
    """Licence that models are given out under, as the hub writes it; "" where it is not said."""
