"""Dump to documents: `build-documents` against WikiExtractor, on one core.

    python -m venv peer && peer/bin/pip install wikiextractor==3.1.0
    python -m benchmarks.bench_dump --wikiextractor peer/bin/wikiextractor [--megabytes 85]

Both read the same dump of the sample world, as one bz2 stream and as multistream, and write JSON
lines (WikiExtractor) or document shards (bertloom, split into sentences, without duplicates).
Templates are not expanded. Runs alternate; figures are medians of CPU seconds of the whole process
with its children.
"""

from __future__ import annotations

import argparse
import bz2
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

from benchmarks.timing import parser_for, take_turns
from flows.sample import write_sample
from pipelines.documents.job import build_documents
from schemas.corpus_configs import DocumentsConfig, WikipediaSource
from schemas.execution_configs import ExecutionConfig


def write_dumps(folder: Path, megabytes: float) -> tuple[dict[str, Path], float]:
    """Write the sample as one stream and as multistream. Return the paths and MB of XML."""
    sample = write_sample(str(folder / "sample"), size_mb=megabytes, tales=0)
    multistream = Path(sample.pages)
    # WikiExtractor reads one namespace per line of the header, as MediaWiki writes it. Without the
    # template namespace it drops every page.
    xml = bz2.decompress(multistream.read_bytes()).replace(
        b"</namespace><namespace", b"</namespace>\n<namespace"
    )
    head, first_page, pages = xml.partition(b"<page>")
    header = bz2.compress(head)
    streams = multistream.read_bytes()
    decoder = bz2.BZ2Decompressor()
    decoder.decompress(streams)
    multistream.write_bytes(header + decoder.unused_data)
    Path(sample.page_index).unlink()
    single = folder / "single" / multistream.name.replace("-multistream", "")
    single.parent.mkdir()
    single.write_bytes(bz2.compress(head + first_page + pages))
    return {"one stream": single, "multistream": multistream}, len(xml) / 1e6


def cpu_seconds(command: list[str]) -> float:
    """Run a command and return the user and system seconds of it and its children."""
    before = psutil.Process().cpu_times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = psutil.Process().cpu_times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def count_articles(folder: Path) -> int:
    """Return the number of articles that WikiExtractor wrote."""
    return sum(len(path.read_bytes().splitlines()) for path in folder.rglob("wiki_*"))


def build(dump: str, output: str) -> None:
    """Build the documents of a dump with one worker."""
    source = WikipediaSource(name="wiki", paths=(dump,), verify_checksums=False)
    build_documents(
        DocumentsConfig(sources=(source,)),
        inputs={},
        output=output,
        execution=ExecutionConfig(workers=1),
    )


def compare(dump: Path, wikiextractor: str, *, repeat: int) -> tuple[float, float, int]:
    """Return the median CPU seconds of bertloom and WikiExtractor, and the number of articles."""
    articles = 0

    def build_documents() -> float:
        module = "benchmarks.bench_dump"
        with tempfile.TemporaryDirectory() as output:
            return cpu_seconds([sys.executable, "-m", module, "--build", str(dump), output])

    def extract() -> float:
        nonlocal articles
        command = [wikiextractor, str(dump), "--no-templates", "--json", "--processes", "1"]
        with tempfile.TemporaryDirectory() as output:
            seconds = cpu_seconds([*command, "--quiet", "--output", output])
            articles = count_articles(Path(output))
        return seconds

    sides = {"ours": build_documents, "theirs": extract}
    ours, theirs = take_turns(sides, repeat=repeat, warmup=0).values()
    return statistics.median(ours), statistics.median(theirs), articles


def main() -> None:
    """Print the table."""
    parser = parser_for(__doc__, repeat=3)
    parser.add_argument("--wikiextractor", default=shutil.which("wikiextractor"))
    parser.add_argument("--megabytes", type=float, default=85, help="MB of XML (default 85)")
    parser.add_argument("--build", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.build:
        build(*options.build)
        return
    if options.wikiextractor is None:
        parser.error("wikiextractor is not installed: name it with --wikiextractor PATH")
    with tempfile.TemporaryDirectory() as name:
        dumps, megabytes = write_dumps(Path(name), options.megabytes)
        print(f"{megabytes:.0f} MB of XML; CPU seconds")
        print(f"{'':14}{'bertloom':>10}{'WikiExtractor':>15}{'ratio':>8}{'articles':>10}")
        for form, dump in dumps.items():
            ours, theirs, articles = compare(dump, options.wikiextractor, repeat=options.repeat)
            print(f"{form:14}{ours:>10.1f}{theirs:>15.1f}{theirs / ours:>8.2f}{articles:>10,}")


if __name__ == "__main__":
    main()
