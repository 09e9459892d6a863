"""What `sources.yaml` says: the files of each labelled set, where they are, what they must be.

A file of one's own (`--sources`) has the same form; its sets replace packaged ones of their name.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from flows.fetch.folders import FILE_NAME
from flows.recipes.yaml_texts import load_yaml, read_yaml
from schemas.configs import Config, SourceName
from schemas.errors import ConfigError

FileName = Annotated[str, Field(pattern=rf"^{FILE_NAME.pattern}$")]


class SetFile(Config):
    """A file to download."""

    url: str = Field(pattern=r"^https?://[^\s/@]+/\S+$")
    size: int | None = Field(default=None, ge=0)
    """Bytes; None where nobody has said."""
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """None: it is refused unless it is taken on trust."""
    save_as: FileName | None = None
    """Its name in the set's folder; else the last part of its URL."""
    unpack: dict[str, FileName] = Field(default={})
    """Path in a zip archive to the name in the set's folder. The archive is not kept."""

    @property
    def stored_as(self) -> str:
        """The name under which it is downloaded."""
        return self.save_as or self.url.partition("?")[0].rpartition("/")[2]

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the files that it becomes."""
        return tuple(self.unpack.values()) or (self.stored_as,)

    @model_validator(mode="after")
    def _has_a_name(self) -> Self:
        if not FILE_NAME.fullmatch(self.stored_as):
            raise ValueError(f"expected save_as, since {self.url} ends in no name of a file")
        return self


class LabelledSet(Config):
    """A set of examples."""

    title: str
    benchmark: str = Field(pattern=r"^[a-z0-9-]+$")
    """The command that fetches it: glue, squad, swag."""
    folder: str
    """Below the folder that is given; where recipes and `--data` find it."""
    licence: str
    homepage: str
    files: tuple[SetFile, ...] = Field(min_length=1)

    @field_validator("folder")
    @classmethod
    def _is_below(cls, folder: str) -> str:
        if not all(FILE_NAME.fullmatch(part) for part in folder.split("/")):
            raise ValueError(f"expected a folder below the one given, found {folder!r}")
        return folder

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [name for file in self.files for name in {file.stored_as, *file.targets}]
        if len(set(names)) != len(names):
            raise ValueError("two of its files would have one name")
        return self

    @property
    def size(self) -> int | None:
        """Bytes to download; None where nobody has said."""
        sizes = [file.size for file in self.files if file.size is not None]
        return sum(sizes) if len(sizes) == len(self.files) else None

    @property
    def is_pinned(self) -> bool:
        """Whether every file has a sha256."""
        return all(file.sha256 for file in self.files)


class Elsewhere(Config):
    """A set that is not fetched, and where a person gets it."""

    title: str
    licence: str
    how: str


class Sources(Config):
    """All of the file."""

    sets: dict[SourceName, LabelledSet] = Field(default={})
    elsewhere: dict[SourceName, Elsewhere] = Field(default={})

    def of(self, benchmark: str) -> list[str]:
        """The names of a benchmark's sets."""
        return [name for name, found in self.sets.items() if found.benchmark == benchmark]


def load_sources(own: str | None = None) -> Sources:
    """The packaged sources, and over them those of a file of one's own.

    Raises:
        ConfigError: the file cannot be read or is not of this form.
    """
    text = (files("flows.fetch") / "sources.yaml").read_text(encoding="utf-8")
    packaged = _parsed(text, "sources.yaml")
    if own is None:
        return packaged
    mine = _parsed(read_yaml(own, where=f"--sources {own}"), f"--sources {own}")
    return Sources(sets=packaged.sets | mine.sets, elsewhere=packaged.elsewhere | mine.elsewhere)


def _parsed(text: str, where: str) -> Sources:
    try:
        return Sources.model_validate(load_yaml(text, where=where) or {})
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"{where}: {path}: {first['msg']}, found {first['input']!r:.80}"
        ) from error
