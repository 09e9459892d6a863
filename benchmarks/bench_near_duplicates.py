"""Near-duplicates among real pages: precision, recall, CPU time and memory.

    python -m benchmarks.bench_near_duplicates [--data FOLDER] [--documents N ...]

Reads pages of dumps, and adds edited copies of some (words replaced, deleted and inserted at
several rates) and chains of revisions (each edited from the previous one). Brute force counts the
n-grams that any two documents share. The peer is `datasketch`: MinHash and MinHashLSH with the same
number of permutations over the same n-grams, one process, used as documented, with unverified
candidates. Times are CPU times of a process, reading and tokenizing included; memory is its peak
(Linux). The first number of documents is scored; the other two show how time and memory grow.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.timing import add_data_option, parser_for, peak_memory
from pipelines.documents.job import build_documents
from pipelines.io.shards import open_shard
from pipelines.near_duplicates.job import find_near_duplicates
from schemas.corpus_configs import (
    DocumentsConfig,
    NearDuplicatesConfig,
    TextSource,
    WikipediaSource,
)
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import StageInput, StageOutput

HERE = ExecutionConfig()
CONFIG = NearDuplicatesConfig()
RATES = (0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.05)
COPIED = 20
"""Every n-th document is copied, at each of the rates in turn."""


def _given(made: StageOutput, data: str) -> StageInput:
    return StageInput(
        name="documents",
        artifact_id="documents",
        data=data,
        files=made.files,
        counters=made.counters,
        statistics=made.statistics,
    )


def _pages(dumps: Sequence[Path], folder: Path) -> Iterator[str]:
    sources = tuple(
        WikipediaSource(name=f"wiki-{number}", paths=(str(dump),), on_corrupt="keep-whole-pages")
        for number, dump in enumerate(dumps)
    )
    config = DocumentsConfig(sources=sources)
    made = build_documents(config, inputs={}, output=str(folder), execution=HERE)
    for entry in made.files:
        if entry.path.startswith("part-"):
            with open_shard(f"{folder}/{entry.stored_name}") as reader:
                for row in reader.read_all().column("sentences").to_pylist():
                    yield " ".join(row)


def _edited(text: str, chance: random.Random, rate: float) -> str:
    words = text.split(" ")
    edited = []
    for word in words:
        if chance.random() >= rate:
            edited.append(word)
        else:
            edited += chance.choice([[], [chance.choice(words)], [word, chance.choice(words)]])
    return " ".join(edited)


def _with_copies(texts: Sequence[str]) -> list[str]:
    chance = random.Random(1)
    all_texts = list(texts)
    for number, text in enumerate(texts[::COPIED]):
        if len(text.split(" ")) < 50:
            continue
        all_texts.append(_edited(text, chance, RATES[number % len(RATES)]))
        if number % 10 == 0:  # four revisions
            for _ in range(3):
                all_texts.append(_edited(all_texts[-1], chance, 0.004))
    chance.shuffle(all_texts)
    return all_texts


def _corpus(texts: Sequence[str], folder: Path) -> StageInput:
    """Write documents of these texts, in shards of about a thousand."""
    folder.mkdir()
    for first in range(0, len(texts), 1_000):
        rows = enumerate(texts[first : first + 1_000], first)
        lines = [json.dumps({"id": f"{number:07d}", "text": text}) for number, text in rows]
        (folder / f"{first:07d}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    source = TextSource(name="pages", paths=(f"{folder}/*.jsonl",), id_column="id")
    data = str(folder / "documents")
    made = build_documents(
        DocumentsConfig(sources=(source,)), inputs={}, output=data, execution=HERE
    )
    return _given(made, data)


def _measure(kind: str, where: Path) -> None:
    """Print the pairs that were found, CPU seconds and bytes in one line."""
    documents = StageInput.model_validate_json(
        (where / "documents.json").read_text(encoding="utf-8")
    )
    began = time.process_time()
    pairs: Any = _ours(documents, where) if kind == "ours" else _peer(documents)
    cpu = time.process_time() - began
    print(json.dumps({"found": pairs, "cpu": cpu, "memory": peak_memory()}))


def _ours(documents: StageInput, where: Path) -> list[tuple[str, str]]:
    """Return excluded documents, each with the document that it duplicates."""
    output = tempfile.mkdtemp(dir=where)
    made = find_near_duplicates(
        CONFIG, inputs={"documents": documents}, output=output, execution=HERE
    )
    (table,) = (entry for entry in made.files if not entry.path.startswith("part-"))
    with open_shard(f"{output}/{table.stored_name}") as reader:
        return [(row["document_id"], row["matched"]) for row in reader.read_all().to_pylist()]


def _ngrams(documents: StageInput) -> Iterator[tuple[str, set[str]]]:
    """Yield the documents that are no duplicates, each with its n-grams as text."""
    from pipelines.counters import Counters
    from pipelines.documents.exclusions import kept_rows, shard_items
    from pipelines.wordpiece.tokenizer import shared_pre_tokenizer

    words_of = shared_pre_tokenizer(lowercase=True).words
    for piece in shard_items(documents, remove_duplicates=True):
        for _, batch in kept_rows(piece, Counters()):
            for row in batch.select(["document_id", "sentences"]).to_pylist():
                text = " ".join(row["sentences"])
                words = [word for word in words_of(text) if any(map(str.isalnum, word))]
                last = max(1, len(words) - CONFIG.ngram_size + 1)
                grams = {" ".join(words[at : at + CONFIG.ngram_size]) for at in range(last)}
                yield row["document_id"], grams


def _peer(documents: StageInput) -> list[tuple[str, str]]:
    """Return the pairs of documents that `datasketch` finds."""
    from datasketch import MinHash, MinHashLSH

    lsh = MinHashLSH(threshold=CONFIG.threshold, num_perm=CONFIG.num_perm)
    pairs = []
    for name, grams in _ngrams(documents):
        signature = MinHash(num_perm=CONFIG.num_perm)
        signature.update_batch([gram.encode() for gram in grams])
        pairs += [(name, other) for other in lsh.query(signature)]
        lsh.insert(name, signature)
    return pairs


def _brute_force(documents: StageInput) -> tuple[list[str], Any]:
    """Return names, and the Jaccard similarities of all pairs that share an n-gram."""
    import numpy as np
    from scipy import sparse

    names, columns, starts = list[str](), list[int](), [0]
    known: dict[str, int] = {}
    for name, grams in _ngrams(documents):
        names.append(name)
        columns += (known.setdefault(gram, len(known)) for gram in grams)
        starts.append(len(columns))
    ones = np.ones(len(columns), np.int32)
    matrix = sparse.csr_matrix((ones, columns, starts), shape=(len(names), len(known)))
    both = sparse.triu(matrix @ matrix.T, k=1).tocoo()
    sizes = np.diff(starts)
    both.data = both.data / (sizes[both.row] + sizes[both.col] - both.data)
    return names, both


def _judge(sides: Mapping[str, Any], documents: StageInput) -> None:
    names, all_pairs = _brute_force(documents)
    numbers = {name: number for number, name in enumerate(names)}
    similar = {
        frozenset((int(row), int(column))): float(value)
        for row, column, value in zip(all_pairs.row, all_pairs.col, all_pairs.data, strict=True)
    }
    near = {pair for pair, value in similar.items() if value >= CONFIG.threshold}
    left = {numbers[one]: numbers[other] for one, other in sides["ours"]}
    right = [frozenset(pair) in near for pair in left.items()]
    settled = [any(one in left for one in pair) for pair in near]
    print(f"brute force: {len(near):,} pairs at {CONFIG.threshold} among {len(names):,} documents")
    print(
        f"ours: {len(left):,} excluded, precision {sum(right) / len(right):.4f}, recall "
        f"{sum(settled) / len(settled):.4f} (pairs of which not both are kept)"
    )
    pairs = {frozenset((numbers[one], numbers[other])) for one, other in sides["datasketch"]}
    print(
        f"datasketch: {len(pairs):,} pairs, precision {len(pairs & near) / len(pairs):.4f}, recall "
        f"{len(pairs & near) / len(near):.4f}"
    )


def main(arguments: Sequence[str]) -> None:
    parser = parser_for(__doc__)
    add_data_option(parser)
    parser.add_argument("--documents", type=int, nargs="+", default=[5_000, 2_200, 8_800])
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        _measure(options.measure[0], Path(options.measure[1]))
        return
    wikipedia = sorted((options.data / "wikipedia").glob("en-*.xml.bz2"))
    wikibooks = sorted((options.data / "wikibooks").glob("*.xml.bz2"))
    with tempfile.TemporaryDirectory() as folder:
        pages = list(_pages([*wikipedia, *wikibooks], Path(folder, "pages")))
        for amount in options.documents:
            if amount > len(pages):
                print(f"there are only {len(pages):,} pages in {options.data}", file=sys.stderr)
            where = Path(folder, str(amount))
            texts = _with_copies(pages[:amount])
            documents = _corpus(texts, where)
            (where / "documents.json").write_text(documents.model_dump_json(), encoding="utf-8")
            megabytes = sum(map(len, texts)) / 1e6
            print(f"\n{len(texts):,} documents, {megabytes:.1f} MB of text")
            sides = {}
            for kind in ("ours", "datasketch"):
                code = [sys.executable, "-m", "benchmarks.bench_near_duplicates"]
                command = [*code, "--measure", kind, str(where)]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
                measured = json.loads(done.stdout.splitlines()[-1])
                sides[kind] = measured["found"]
                print(
                    f"{kind:10} {measured['cpu']:7.1f} s of processor time, "
                    f"{measured['cpu'] / megabytes:.3f} s a MB, {measured['memory'] / 1e6:,.0f} MB"
                )
            if amount == options.documents[0]:
                _judge(sides, documents)


if __name__ == "__main__":
    main(sys.argv[1:])
