"""Fields of configurations that are part of cache keys."""

from __future__ import annotations

from pydantic import Field

from schemas.base_configs import Config, content_in_key, not_in_key


class _Settings(Config):
    size: int = 1
    described: int = Field(2, json_schema_extra={"examples": [2]})
    workers: int = not_in_key(3)
    file: str = content_in_key("x.txt")


def test_marked_fields_alone_are_left_out_of_cache_keys() -> None:
    assert _Settings().cache_key_fields() == {"size": 1, "described": 2}
