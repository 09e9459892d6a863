"""Rebuilding a corpus after one of ten parts of its dump has changed.

    python -m benchmarks.bench_rebuild [--articles 6000] [--repeat 3]

Builds the sample world's dump in ten parts and its tales in a store, with a given vocabulary (a new
vocabulary would change every id) and a small pool of random next sentences. Then one part changes,
and the corpus is built again in that store and from nothing in another; the contents must be
equal. Each round changes another part. Prints medians of CPU and wall seconds with one worker.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.dump_parts import change_part, write_parts
from benchmarks.timing import parser_for
from flows.run.step_execution import StepResult
from flows.running import run_recipe
from flows.sample import write_sample
from schemas.corpus_configs import (
    BooksSource,
    DocumentsConfig,
    InstancesConfig,
    VocabularyConfig,
    WikipediaSource,
)
from schemas.recipe import Recipe

PARTS, GOAL = 10, 0.85


def corpus_recipe(folder: Path, books: str, *, store: str, vocab_file: str | None) -> Recipe:
    """Documents of the parts and tales, and one set of instances."""
    wiki = WikipediaSource(
        name="samplewiki", paths=(str(folder / "parts/*.bz2"),), target_split_bytes=1 << 30
    )
    return Recipe(
        name="rebuild",
        store=store,
        build_documents=DocumentsConfig(
            sources=(wiki, BooksSource(name="tales", paths=(books,), target_split_bytes=1 << 17))
        ),
        build_vocabulary=VocabularyConfig(vocab_size=600, vocab_file=vocab_file),
        build_instances={"length-128": InstancesConfig(negative_pool_bytes=1 << 10)},
    )


def quietly(_line: str) -> None:
    """Suppress progress output."""


def timed(recipe: Recipe) -> tuple[list[StepResult], float, float]:
    """The results, seconds of this process, and of the clock."""
    clock, process = time.perf_counter(), time.process_time()
    results = run_recipe(recipe, log=quietly, engine="local")
    return results, time.process_time() - process, time.perf_counter() - clock


def share(results: Sequence[StepResult]) -> float:
    """The share of all steps' work that was restored, by the weights of their pieces."""
    reuses = [(result.was_cached, result.manifest.produced_by.reuse) for result in results]
    work = sum(reuse.weight for _, reuse in reuses if reuse)
    return sum(r.weight if cached else r.weight_reused for cached, r in reuses if r) / work


def main() -> int:
    parser = parser_for(__doc__, repeat=3)
    parser.add_argument("--articles", type=int, default=30_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sample = write_sample(
            str(folder / "sample"), articles=options.articles, tales=12, pages_per_stream=20
        )
        parts = write_parts(sample, folder / "parts", parts=PARTS)
        sources = {"folder": folder, "books": sample.books}
        learnt = run_recipe(
            corpus_recipe(**sources, store=str(folder / "learnt"), vocab_file=None),
            log=quietly,
            engine="local",
            until="build-vocabulary",
        )[-1].manifest
        (entry,) = [entry for entry in learnt.files if entry.path == "vocab.txt"]
        vocab = str(folder / "learnt" / learnt.data_path / entry.stored_name)
        store = str(folder / "store")
        recipe = corpus_recipe(**sources, store=store, vocab_file=vocab)
        _, process, clock = timed(recipe)
        print(f"{sample.xml_bytes / 1e6:.0f} MB of XML; at first {process:.1f} s, {clock:.1f} s")
        rounds = []
        for number in range(options.repeat):
            change_part(parts[number * 3 % PARTS])
            again, *ours = timed(recipe)
            other = recipe.model_copy(update={"store": str(folder / f"anew-{number}")})
            anew, *theirs = timed(other)
            if [r.manifest.content_digest for r in again] != [
                r.manifest.content_digest for r in anew
            ]:
                raise SystemExit("the rebuilt corpus is not that of a rebuild from nothing")
            rounds.append((share(again), *ours, *theirs))
    reused, process, clock, process_anew, clock_anew = map(
        statistics.median, zip(*rounds, strict=True)
    )
    print(f"work reused            {reused:.1%}  (goal {GOAL:.0%})")
    print(f"one part changed       {process:6.1f} s of this process, {clock:6.1f} s")
    print(f"from nothing, equal    {process_anew:6.1f} s of this process, {clock_anew:6.1f} s")
    print(f"ratio                  {process_anew / process:.1f}x, {clock_anew / clock:.1f}x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
