"""Read the files of the input artifacts of a stage, and verify their digests.

Cache keys hold the digests of inputs when they were built. A changed file would produce an output
under the key of the correct one. Each process of a stage therefore verifies a file before its first
use.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from pipelines.io.file_systems import file_system, open_stream, read_file
from schemas.errors import ArtifactCorruptError
from schemas.manifest import FileEntry, StageInput

CONTAMINATION, NEAR_DUPLICATES = "contamination", "near_duplicates"
EXCLUSION_INPUTS = (CONTAMINATION, NEAR_DUPLICATES)
"""Names of inputs that list documents to exclude, in order of precedence."""


class InputFile(NamedTuple):
    """A file of an artifact with its expected size and digest. Sent to workers by value."""

    url: str
    path: str
    """Logical name."""

    artifact: str
    """Name of the artifact in messages: `documents 5a6beafda78e41ca`."""

    size: int
    """Bytes."""

    sha256: str

    @classmethod
    def of(cls, artifact: StageInput, entry: FileEntry) -> InputFile:
        """Return a file of an input."""
        name = f"{artifact.name} {artifact.artifact_id}"
        url = f"{artifact.data}/{entry.stored_name}"
        return cls(url, entry.path, name, entry.size_bytes, entry.sha256)

    def read(self) -> bytes:
        """Return all bytes of a small file.

        Raises:
            ArtifactCorruptError: They are not those of the manifest, or the file is missing.
        """
        try:
            data = read_file(self.url)
        except FileNotFoundError as error:
            raise self.missing() from error
        self.check(len(data), hashlib.sha256(data).hexdigest())
        return data

    def check_stream(self, source: IO[bytes]) -> None:
        """Read a stream of its bytes to the end and compare them with the manifest.

        Raises:
            ArtifactCorruptError: They differ.
        """
        sha256 = hashlib.file_digest(cast("Any", source), "sha256").hexdigest()
        self.check(source.seek(0, os.SEEK_END), sha256)

    def check_copy(self, path: Path) -> None:
        """Verify a local copy of the file."""
        try:
            with path.open("rb") as source:
                self.check_stream(source)
        except FileNotFoundError as error:
            raise self.missing() from error

    def check(self, size: int, sha256: str) -> None:
        """Raise ArtifactCorruptError unless size (bytes) and sha256 match."""
        if (size, sha256) != (self.size, self.sha256):
            raise ArtifactCorruptError(
                f"{self.path} of {self.artifact} is damaged: expected {self.size:,} bytes with the "
                f"sha256 {self.sha256}, found {size:,} with {sha256} at {self.url}. Nothing is "
                "made from it: run `bertloom verify`, which takes the artifact back, and run again"
            )

    def missing(self) -> ArtifactCorruptError:
        """Return the error for a missing file."""
        return ArtifactCorruptError(
            f"{self.path} of {self.artifact}: expected {self.size:,} bytes at {self.url}, found no "
            "such file. Run `bertloom verify`, which takes the artifact back, and run again"
        )


def input_file(artifact: StageInput, path: str) -> InputFile:
    """Return the file of an input by its logical name.

    Raises:
        ArtifactCorruptError: The manifest does not list the file.
    """
    for entry in artifact.files:
        if entry.path == path:
            return InputFile.of(artifact, entry)
    names = ", ".join(entry.path for entry in artifact.files)
    raise ArtifactCorruptError(
        f"{artifact.name} {artifact.artifact_id}: expected a file {path}, found {names or 'none'}"
    )


def check_files(artifact: StageInput, *, without: Collection[str] = ()) -> None:
    """Verify every file of an input that other libraries open by the URL of its folder.

    Args:
        given: The input, such as a checkpoint.
        without: Logical names to skip. Files outside the content digest are always skipped.

    Raises:
        ArtifactCorruptError: A file is missing, or its bytes are not those of the manifest.
    """
    for entry in artifact.files:
        if entry.excluded_from_digest or entry.path in without:
            continue
        file = InputFile.of(artifact, entry)
        try:
            fs, path = file_system(file.url)
            with open_stream(fs, path) as source:
                file.check_stream(source)
        except FileNotFoundError as error:
            raise file.missing() from error
