"""Dump to documents: `build-documents` against WikiExtractor, on one core, on real pages.

    python -m venv peer && peer/bin/pip install wikiextractor==3.1.0
    python -m benchmarks.bench_dump --wikiextractor peer/bin/wikiextractor [--repeat 3]

The dumps of Wikibooks in $BERTLOOM_DATA (or ../shared/data) are joined to one of about 90 MB of
XML, stored as one bz2 stream and as multistream. Both sides read the same file and write JSON lines
(WikiExtractor) or document shards (bertloom, split into sentences, without duplicates). Templates
are not expanded. Runs alternate; figures are medians of CPU seconds of the whole process with its
children.
"""

from __future__ import annotations

import argparse
import bz2
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

from benchmarks.timing import parser_for, take_turns
from pipelines.documents.job import build_documents
from pipelines.mediawiki.dumps import CANONICAL_NAMESPACES
from schemas.corpus_configs import DocumentsConfig, WikipediaSource
from schemas.execution_configs import ExecutionConfig

_PAGE = re.compile(rb"<page>.*?</page>\s*", re.DOTALL)
_PAGES_PER_STREAM = 100  # as in Wikimedia's dumps
_END = b"</mediawiki>\n"


def write_dumps(parts: list[Path], folder: Path) -> tuple[dict[str, Path], int]:
    """Join dumps and write them as one stream and as multistream.

    Returns:
        Path of each form, and bytes of XML.
    """
    texts = [bz2.decompress(path.read_bytes()) for path in parts]
    header = texts[0][: texts[0].index(b"<page>")] + _siteinfo()
    pages = [page for text in texts for page in _PAGE.findall(text)]
    single, multistream = folder / "wiki.xml.bz2", folder / "wiki-multistream.xml.bz2"
    xml = header + b"".join(pages) + _END
    single.write_bytes(bz2.compress(xml))
    starts = range(0, len(pages), _PAGES_PER_STREAM)
    groups = [b"".join(pages[start : start + _PAGES_PER_STREAM]) for start in starts]
    multistream.write_bytes(b"".join(map(bz2.compress, (header, *groups, _END))))
    return {"one stream": single, "multistream": multistream}, len(xml)


def _siteinfo() -> bytes:
    """Return the names of the namespaces, which these dumps lack.

    WikiExtractor reads one of them per line, and drops every page without that of templates.
    """
    names = (
        f'<namespace key="{number}">{name}</namespace>\n'
        for number, name in CANONICAL_NAMESPACES.items()
    )
    text = f"<siteinfo>\n<namespaces>\n{''.join(names)}</namespaces>\n</siteinfo>\n"
    return text.encode()


def cpu_seconds(command: list[str]) -> float:
    """Run a command and return the user and system seconds of it and its children."""
    before = psutil.Process().cpu_times()
    with tempfile.TemporaryDirectory() as cache:
        env = os.environ | {"BERTLOOM_CACHE": cache}
        output = subprocess.DEVNULL
        subprocess.run(command, check=True, env=env, stdout=output, stderr=output)
    after = psutil.Process().cpu_times()
    user = after.children_user - before.children_user
    return float(user + after.children_system - before.children_system)


def count_articles(folder: Path) -> int:
    """Return the number of articles that WikiExtractor wrote."""
    return sum(len(path.read_bytes().splitlines()) for path in folder.rglob("wiki_*"))


def build(dump: str, output: str) -> None:
    """Build the documents of a dump."""
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


def find_parts() -> list[Path]:
    """Return the dumps of Wikibooks."""
    data = Path(os.environ.get("BERTLOOM_DATA", "../shared/data"))
    return sorted((data / "wikibooks").glob("*.xml.bz2"))


def main() -> None:
    """Print the table."""
    parser = parser_for(__doc__, repeat=3)
    parser.add_argument("--wikiextractor", default=shutil.which("wikiextractor"))
    parser.add_argument("--parts", type=int, help="number of dumps to join (default all)")
    parser.add_argument("--build", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.build:
        build(*options.build)
        return
    if options.wikiextractor is None:
        parser.error("wikiextractor is not installed: name it with --wikiextractor PATH")
    parts = find_parts()[: options.parts]
    if not parts:
        parser.error("expected wikibooks/*.xml.bz2 in the folder of $BERTLOOM_DATA, got none")
    with tempfile.TemporaryDirectory() as name:
        dumps, size = write_dumps(parts, Path(name))
        print(f"{size / 1e6:.0f} MB of XML; CPU seconds")
        print(f"{'':14}{'bertloom':>10}{'WikiExtractor':>15}{'ratio':>8}{'articles':>10}")
        for form, dump in dumps.items():
            ours, theirs, articles = compare(dump, options.wikiextractor, repeat=options.repeat)
            print(f"{form:14}{ours:>10.1f}{theirs:>15.1f}{theirs / ours:>8.2f}{articles:>10,}")


if __name__ == "__main__":
    main()
