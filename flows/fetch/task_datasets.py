"""GLUE, SQuAD and SWAG from their official addresses, with the checksums in `sources.yaml`."""

from __future__ import annotations

import zipfile
import zlib
from importlib.resources import files as package_files
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from flows.fetch.downloads import FILE_NAME, RemoteFile, download_files
from flows.fetch.http_client import HttpClient, fetch_error
from flows.recipes.errors import format_validation_error
from flows.recipes.safe_yaml import YamlDocument, parse_yaml, read_yaml
from pipelines.io.local_files import write_atomic
from schemas.base_configs import Config, SourceName
from schemas.errors import ConfigError

FileName = Annotated[str, Field(pattern=FILE_NAME)]


class SourceFile(Config):
    """File to download."""

    url: str = Field(pattern=r"^https?://[^\s/@]+/\S+$")
    size: int = Field(ge=0)
    """Bytes."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    save_as: FileName
    """Name in the dataset's folder. Default: last part of the URL."""

    unpack: dict[str, FileName] = Field(default={})
    """Name in the dataset's folder, by path in a zip archive."""

    @model_validator(mode="before")
    @classmethod
    def _name_by_url(cls, data: dict[str, object]) -> dict[str, object]:
        return {"save_as": str(data.get("url")).rpartition("/")[2], **data}


class TaskDataset(Config):
    """Labeled dataset."""

    title: str
    benchmark: str
    """Command that downloads it: glue, squad or swag."""

    folder: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]*(/[A-Za-z0-9][A-Za-z0-9-]*)*$")
    """Folder below `--output-dir`."""

    license: str
    homepage: str
    files: tuple[SourceFile, ...] = Field(min_length=1)


class Sources(Config):
    """Content of `sources.yaml`."""

    datasets: dict[SourceName, TaskDataset] = Field(default={})


def load_sources(path: str | None = None) -> dict[str, TaskDataset]:
    """Return the packaged datasets, extended by those of a YAML file.

    Raises:
        ConfigError: The file cannot be read or has another structure.
    """
    text = (package_files("flows.fetch") / "sources.yaml").read_text(encoding="utf-8")
    datasets = _validate(parse_yaml(text, where="sources.yaml"))
    return datasets | (_validate(read_yaml(path, where=f"--sources {path}")) if path else {})


def _validate(document: YamlDocument) -> dict[str, TaskDataset]:
    try:
        return Sources.model_validate(document.value or {}).datasets
    except ValidationError as error:
        message = format_validation_error(error, Sources)
        raise ConfigError(f"{document.where}: {message}") from error


def fetch_dataset(
    name: str, dataset: TaskDataset, output_dir: Path, *, client: HttpClient
) -> list[str]:
    """Download a dataset, unpack its archives, and return the paths of its files.

    Raises:
        FetchError: A file cannot be downloaded or unpacked.
        ChecksumError: A file differs from its sha256.
    """
    folder = output_dir / dataset.folder
    files = [RemoteFile(f.url, f.save_as, f.size, "sha256", f.sha256) for f in dataset.files]
    download_files(name, files, folder, client=client)
    for file in dataset.files:
        if file.unpack:
            _unpack(file, folder)
    names = [name for file in dataset.files for name in file.unpack.values() or [file.save_as]]
    return [str(folder / name) for name in names]


def _unpack(file: SourceFile, folder: Path) -> None:
    """Write the members of an archive to a folder.

    Names in the archive are never used as paths, so that nothing is written outside the folder.
    """
    try:
        with zipfile.ZipFile(folder / file.save_as) as archive:
            for member, name in file.unpack.items():
                write_atomic(folder / name, archive.read(member))
    except KeyError as error:
        raise fetch_error(file.url, str(error.args[0]), hint="Correct `unpack`") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:  # also: encrypted
        raise fetch_error(file.url, f"expected a zip archive, got: {error}") from error
