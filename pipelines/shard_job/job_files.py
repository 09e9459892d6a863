"""Files by which the processes of a job communicate: plan, results and errors, all of them JSON.

They keep the graph small. The work is in the graph: a pickle of a file would run whatever a writer
of the bucket puts there. Nothing here loads Beam.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from pipelines.io.file_systems import file_system, read_file
from pipelines.runners.job_context import ErrorFiles
from pipelines.shard_job.work import WorkResult
from schemas.manifest import FileEntry

RESULTS_PER_FILE = 1_000
"""Maximum number of results in a file, some megabytes."""


@dataclass(frozen=True)
class JobFiles:
    """Files of a job. Workers get a copy."""

    prefix: str
    """Start of their URLs."""

    def write_plan(self, elements: Iterable[Sequence[Any]]) -> None:
        """Write the items of the job, in elements that one worker gets together."""
        lines = (json.dumps(items, separators=(",", ":")) for items in elements)
        self._write("plan", "\n".join(lines).encode())

    def read_plan(self) -> list[str]:
        """Return the elements of the plan, each a JSON list of items."""
        return read_file(f"{self.prefix}-plan").decode().splitlines()

    @property
    def errors(self) -> ErrorFiles:
        """Files of the errors of workers."""
        return ErrorFiles(f"{self.prefix}-errors")

    @property
    def spill_folder(self) -> str:
        """Folder for the blobs of a job of this machine."""
        return f"{self.prefix}-blobs"

    def write_results(self, kind: str, number: int, results: Iterable[str]) -> None:
        """Write up to `RESULTS_PER_FILE` results as JSON texts. A retry writes the same bytes."""
        self._write(f"{kind}-{number}", "\n".join(sorted(results)).encode())

    def read_results(self, kind: str) -> ResultList:
        """Return all results of a kind."""
        fs, path = file_system(f"{self.prefix}-{kind}")
        texts = (bytes(fs.cat_file(name)).decode().splitlines() for name in fs.glob(f"{path}-*"))
        return ResultList(text for lines in texts for text in lines)

    def delete(self) -> None:
        """Delete the files."""
        fs, path = file_system(self.prefix)
        for name in fs.glob(f"{path}-*"):
            fs.rm_file(name)

    def _write(self, name: str, data: bytes) -> None:
        fs, path = file_system(f"{self.prefix}-{name}")
        fs.pipe_file(path, data)


@contextlib.contextmanager
def open_job_files(output: str, *, is_local: bool) -> Iterator[JobFiles]:
    """Yield the files of a new job, and delete them after the block, also if it is interrupted.

    Args:
        output: URL of the output folder, the only folder that workers elsewhere share. The files
            are hidden there.
        is_local: True for a job of this machine, whose files are on its disk.
    """
    if is_local:
        with TemporaryDirectory(prefix="bertloom-job-") as folder:
            yield JobFiles(f"{folder}/job")
        return
    files = JobFiles(f"{output}/.job-{uuid.uuid4().hex}")
    try:
        yield files
    except BaseException:
        with contextlib.suppress(OSError):  # raise the job's own error
            files.delete()
        raise
    files.delete()


class ResultList(Iterable[WorkResult]):
    """Results of a job by number, held as JSON texts; each is parsed when it is used."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Take the results in any order."""
        results: list[tuple[int, list[FileEntry], bool, str]] = []
        for text in texts:
            result = WorkResult.from_json(text)
            results.append((result.index, result.files, result.reused, text))
        results.sort(key=lambda result: result[0])
        self._texts = [text for *_, text in results]
        self.numbers = [number for number, *_ in results]
        """Numbers of the items, ascending."""

        self.files = tuple(entry for _, entries, *_ in results for entry in entries)
        """All files, in the order of the numbers."""

        self.reused = frozenset(number for number, _, is_reused, _ in results if is_reused)
        """Numbers of the items that were restored."""

    def __len__(self) -> int:
        return len(self._texts)

    def __iter__(self) -> Iterator[WorkResult]:
        return map(WorkResult.from_json, self._texts)
