"""Configuration of the cards of artifacts. It changes no artifact."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.base_configs import Config, SourceName

License = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.+-]*$|^$", max_length=64)]


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
