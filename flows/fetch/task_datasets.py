"""GLUE, SQuAD and SWAG from their official addresses, with the checksums in `sources.yaml`."""

from __future__ import annotations

import zipfile
import zlib
from importlib.resources import files as package_files
from pathlib import Path
from typing import Annotated, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator

from flows.fetch.downloads import (
    FILE_NAME,
    RemoteFile,
    check_disk_space,
    download_files,
    record_origins,
)
from flows.fetch.http_client import HttpClient, fetch_error
from flows.recipes.errors import format_validation_error
from flows.recipes.safe_yaml import YamlDocument, parse_yaml, read_yaml
from pipelines.io.local_files import write_atomic
from schemas.base_configs import Config, SourceName
from schemas.errors import ConfigError

FileName = Annotated[str, Field(pattern=FILE_NAME)]

_MAX_UNPACKED_BYTES = 1 << 30


class SourceFile(Config):
    """File to download."""

    url: str = Field(pattern=r"^https?://[^\s/@]+/\S+$")
    size: int | None = Field(default=None, ge=0)
    """Bytes. None: unknown."""

    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """Pinned digest. None: the file requires https and `--trust-on-first-use`."""

    save_as: FileName
    """Name in the dataset's folder. Default: last part of the URL."""

    unpack: dict[str, FileName] = Field(default={})
    """Name in the dataset's folder, by path in a zip archive."""

    @model_validator(mode="before")
    @classmethod
    def _name_by_url(cls, data: dict[str, object]) -> dict[str, object]:
        return {"save_as": str(data.get("url")).rpartition("/")[2], **data}

    @model_validator(mode="after")
    def _check_transport(self) -> Self:
        if self.sha256 is None and not self.url.startswith("https:"):
            raise ValueError("expected sha256, or a URL with https")
        return self


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


class ManualDataset(Config):
    """Dataset that has to be ordered."""

    title: str
    license: str
    instructions: str


class Sources(Config):
    """Content of `sources.yaml`."""

    datasets: dict[SourceName, TaskDataset] = Field(default={})
    manual: dict[SourceName, ManualDataset] = Field(default={})


class FetchedDataset(NamedTuple):
    """A complete and verified dataset."""

    name: str
    files: tuple[str, ...]
    """Local paths."""

    bytes_downloaded: int


def load_sources(path: str | None = None) -> Sources:
    """Return the packaged sources, extended by those of a YAML file.

    Raises:
        ConfigError: The file cannot be read or has another structure.
    """
    text = (package_files("flows.fetch") / "sources.yaml").read_text(encoding="utf-8")
    sources = _validate(parse_yaml(text, where="sources.yaml"))
    own = _validate(read_yaml(path, where=f"--sources {path}")) if path else Sources()
    return Sources(datasets=sources.datasets | own.datasets, manual=sources.manual | own.manual)


def _validate(document: YamlDocument) -> Sources:
    try:
        return Sources.model_validate(document.value or {})
    except ValidationError as error:
        message = format_validation_error(error, Sources)
        raise ConfigError(f"{document.where}: {message}") from error


def fetch_dataset(
    name: str,
    dataset: TaskDataset,
    output_dir: Path,
    *,
    client: HttpClient,
    trust_on_first_use: bool = False,
    connections: int = 2,
) -> FetchedDataset:
    """Download a dataset and unpack its archives; complete files are only verified.

    Raises:
        FetchError: A file has no pinned digest, or cannot be downloaded or unpacked.
        ChecksumError: A file differs from its pinned digest.
    """
    for file in dataset.files:
        if file.sha256 is None and not trust_on_first_use:
            hint = "Use --trust-on-first-use to accept the file and print the sha256 to pin"
            raise fetch_error(file.url, "expected a pinned sha256, got none", hint=hint)
    folder = output_dir / dataset.folder
    files = [RemoteFile(f.url, f.save_as, f.size, "sha256", f.sha256) for f in dataset.files]
    downloads = download_files(name, files, folder, client=client, connections=connections)
    paths: list[str] = []
    for file, download in zip(dataset.files, downloads, strict=True):
        if file.unpack:
            _unpack(file, folder)
            record_origins(folder, dict.fromkeys(file.unpack.values(), file.url))
        if file.sha256 is None:
            size = (folder / file.save_as).stat().st_size
            client.log(f"{file.url}: not pinned; size: {size}, sha256: {download.digest}")
        paths += [str(folder / target) for target in file.unpack.values() or [file.save_as]]
    return FetchedDataset(name, tuple(paths), sum(item.bytes_downloaded for item in downloads))


def _unpack(file: SourceFile, folder: Path) -> None:
    """Write the members of an archive to a folder, except those that it has already.

    Names in the archive are never used as paths, so that nothing is written outside the folder.
    """
    archive = folder / file.save_as
    try:
        with zipfile.ZipFile(archive) as source:
            members = [source.getinfo(name) for name in file.unpack]
            size = sum(member.file_size for member in members)
            if size > _MAX_UNPACKED_BYTES:
                message = f"expected at most {_MAX_UNPACKED_BYTES:,} bytes, got {size:,}"
                raise fetch_error(file.url, message)
            check_disk_space(folder, size)
            for member in members:
                path = folder / file.unpack[member.filename]
                if not path.is_file() or zlib.crc32(path.read_bytes()) != member.CRC:
                    write_atomic(path, source.read(member))
    except KeyError as error:
        raise fetch_error(file.url, str(error.args[0]), hint="Correct `unpack`") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:  # also: encrypted
        raise fetch_error(file.url, f"expected a zip archive, got: {error}") from error
