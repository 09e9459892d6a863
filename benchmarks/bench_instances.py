"""Source tokens per second from tokenized documents to masked instances, one core, one pass.

    python -m benchmarks.bench_instances [--tokens 5000000] [--repeat 5]
    python -m benchmarks.bench_instances --guesses [--tokens 200000]

The peer, in the same run, is the reference procedure in plain Python
(benchmarks/plain_instances.py). Corpora are generated articles (about 20 sentences) and books
(about 4,000), with sentences of about 25 tokens. If the folder of real data exists
(BERTLOOM_DATA), English Wikipedia, Wikibooks and novels follow, cleaned and tokenized by this
project. Prints process times, the median of `--repeat` runs. The time of a step is the difference
between runs with and without it.

`--guesses` prints how well single features of a pair tell its label (benchmarks/label_guesses.py):
a row per corpus, length and procedure, over five passes.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.label_guesses import (
    FEATURES,
    as_lists,
    bertloom_pairs,
    corpora,
    guess_accuracies,
    reference_pairs,
)
from benchmarks.plain_instances import plain_instances
from benchmarks.timing import add_data_option, cpu_seconds, parser_for
from pipelines.arrays import offsets_of
from pipelines.counters import Counters
from pipelines.documents.build_shard import read_documents
from pipelines.documents.plan import plan
from pipelines.instances.masking import VocabularyIds, read_vocabulary_ids
from pipelines.instances.next_sentence_pool import NextSentencePool
from pipelines.instances.pairing import (
    BATCH_TOKENS,
    InstanceBatch,
    create_instances,
    document_groups,
    document_keys,
    next_sentence_pairs,
)
from pipelines.instances.token_documents import TokenDocuments
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from schemas.corpus_configs import (
    BooksSource,
    DocumentsConfig,
    InstancesConfig,
    MaskingConfig,
    WikipediaSource,
)

PLAIN_TOKENS = 400_000  # enough for a steady figure of the slow one


def synthetic_documents(tokens: int, *, sentences_a_document: int, seed: int = 0) -> TokenDocuments:
    """Sentences are lognormal with mean 25 tokens, documents lognormal in sentences."""
    rng = np.random.default_rng(seed)
    count = tokens // 25
    lengths = np.rint(rng.lognormal(np.log(25) - 0.18, 0.6, count)).clip(1).astype(np.uint32)
    spread = np.log(sentences_a_document) - 0.32
    documents = 2 * count // sentences_a_document + 10
    sizes = np.rint(rng.lognormal(spread, 0.8, documents)).clip(1).astype(np.int64)
    offsets = offsets_of(sizes)
    offsets = np.append(offsets[offsets < count], count)
    ids = rng.integers(104, 30_522, int(lengths.sum())).astype(np.uint16)
    return TokenDocuments(ids, lengths, offsets, [f"doc/{n}" for n in range(len(offsets) - 1)])


def real_documents(
    data: Path, *, tokens: int
) -> Iterator[tuple[str, TokenDocuments, VocabularyIds]]:
    """Yield name, documents and vocabulary of each corpus, of at least `tokens` tokens."""
    wikipedia = WikipediaSource(
        name="wiki",
        paths=(f"{data}/wikipedia/en-*.xml.bz2",),
        on_corrupt="keep-whole-pages",
        verify_checksums=False,
    )
    wikibooks = WikipediaSource(
        name="wikibooks",
        paths=(f"{data}/wikibooks/WikiDumpPart*.xml.bz2",),
        verify_checksums=False,
    )
    novels = BooksSource(name="novels", paths=(f"{data}/books/english-novels-100.tar.gz",))
    vocab = f"{data}/vocab/bert-base-uncased/vocab.txt"
    tokenizer = WordPieceTokenizer.from_vocab_file(vocab, lowercase=True)
    vocabulary = read_vocabulary_ids(vocab)
    for name, source in (("Wikipedia", wikipedia), ("Wikibooks", wikibooks), ("novels", novels)):
        config = DocumentsConfig(sources=(source,))
        ids: list[npt.NDArray[Any]] = []
        lengths, sizes, total = [], [], 0
        for piece in plan(config):
            for _, document in read_documents(piece.split, source, config, Counters()):
                encoded, per_sentence = tokenizer.encode_sentences(document.sentences)
                ids.append(encoded)
                lengths.append(per_sentence[per_sentence > 0])
                sizes.append(len(lengths[-1]))
                total += len(encoded)
                if total >= tokens:
                    break
            if total >= tokens:
                break
        names = [f"{name}/{number}" for number in range(len(sizes))]
        documents = TokenDocuments(
            np.concatenate(ids), np.concatenate(lengths), offsets_of(sizes), names
        )
        yield name, documents, vocabulary


def median_seconds(work: Callable[[], Any], repeat: int) -> float:
    """Return the median CPU seconds of some calls."""
    return statistics.median(cpu_seconds(work) for _ in range(repeat))


def _pair_only(documents: TokenDocuments, config: InstancesConfig) -> None:
    pool = NextSentencePool({0: documents})
    for rows in document_groups(documents, BATCH_TOKENS):
        names = documents.document_ids[rows.start : rows.stop]
        keys = document_keys(names, seed=config.seed, pass_number=0)
        next_sentence_pairs(documents, pool, config, rows=rows, keys=keys, own_shard=0)


def _batches(
    documents: TokenDocuments,
    config: InstancesConfig,
    vocabulary: VocabularyIds,
) -> Iterator[InstanceBatch]:
    return create_instances(
        NextSentencePool({0: documents}),
        config,
        vocabulary=vocabulary,
        pass_number=0,
        count=Counters().count,
    )


def _create(
    documents: TokenDocuments,
    config: InstancesConfig,
    vocabulary: VocabularyIds,
) -> Counters:
    totals = Counters()
    for batch in _batches(documents, config, vocabulary):
        totals.update(batch.statistics())
    return totals


def measure_plain(
    documents: TokenDocuments, config: InstancesConfig, vocabulary: VocabularyIds
) -> tuple[float, float, float]:
    """Return tokens per second, mean fill and random share of the reference."""
    lists = as_lists(documents, tokens=PLAIN_TOKENS)
    source = sum(len(sentence) for document in lists for sentence in document)
    made: list[Any] = []
    seconds = cpu_seconds(lambda: made.extend(plain_instances(lists, config, vocabulary)))
    length = config.max_seq_length
    lengths = np.array([len(one.input_ids) for one in made])
    labels = np.array([int(one.is_random) for one in made])
    return source / seconds, lengths.mean() / length, labels.mean()


def report(
    name: str, documents: TokenDocuments, vocabulary: VocabularyIds, *, length: int, repeat: int
) -> None:
    masking = MaskingConfig(max_predictions_per_seq=20 if length == 128 else 77)
    config = InstancesConfig(max_seq_length=length, masking=masking)
    tokens = len(documents.token_ids)

    def seconds(strategy: str) -> float:
        changed = masking.model_copy(update={"strategy": strategy})
        other = config.model_copy(update={"masking": changed})
        return median_seconds(lambda: _create(documents, other, vocabulary), repeat)

    totals = _create(documents, config, vocabulary)
    paired = median_seconds(lambda: _pair_only(documents, config), repeat)
    unmasked, whole = seconds("none"), seconds("wordpiece")
    words, spans = seconds("whole-word"), seconds("span")
    plain, plain_fill, plain_random = measure_plain(documents, config, vocabulary)
    shares = [part / whole for part in (paired, unmasked - paired, whole - unmasked)]
    fill = totals["tokens"] / totals["instances"] / length
    print(
        f"{name} at {length}: {tokens / whole / 1e6:.1f} M source tokens/s"
        f" ({tokens / words / 1e6:.1f} whole-word, {tokens / spans / 1e6:.1f} span);"
        f" plain Python {plain / 1e6:.2f}: x{tokens / whole / plain:.0f}\n"
        f"    shares: pairing {shares[0]:.0%}, assembling {shares[1]:.0%}, masking {shares[2]:.0%};"
        f" {totals['instances']:,} instances of {len(documents):,} documents\n"
        f"    emitted / source {totals['tokens'] / tokens:.3f}; fill {fill:.3f} (plain"
        f" {plain_fill:.3f}); random next {totals['random-next'] / totals['instances']:.3f} (plain"
        f" {plain_random:.3f}); masked {totals['masked-tokens'] / totals['tokens']:.4f}",
        flush=True,
    )


def print_guesses(*, tokens: int) -> None:
    """Print the accuracy of each feature's guess, for bertloom and the reference procedure."""
    for number, name in enumerate(FEATURES, 1):
        print(f"{number:2} {name}")
    print(f"{'':48} {'random':>6}", *(f"{number:>4}" for number in range(1, len(FEATURES) + 1)))
    for length in (128, 512):
        config = InstancesConfig(max_seq_length=length, masking=MaskingConfig(strategy="none"))
        for corpus, documents in corpora(tokens=tokens):
            for name, make in (("bertloom", bertloom_pairs), ("reference", reference_pairs)):
                pairs = make(documents, config, passes=5)
                values = guess_accuracies(pairs).values()
                row = " ".join(f"{value:4.2f}" for value in values)
                print(
                    f"{corpus:27} at {length} {name:12} {pairs.label.mean():8.3f} {row}", flush=True
                )


def main() -> None:
    parser = parser_for(__doc__, repeat=5)
    add_data_option(parser)
    parser.add_argument("--tokens", type=int, help="tokens of each corpus")
    parser.add_argument("--guesses", action="store_true", help="print guesses of labels only")
    options = parser.parse_args()
    if options.guesses:
        print_guesses(tokens=options.tokens or 200_000)
        return
    tokens = options.tokens or 5_000_000
    is_continuation = np.random.default_rng(1).random(30_522) < 0.15
    vocabulary = VocabularyIds(30_522, 101, 102, 103, is_continuation)
    for name, sentences in (("synthetic articles", 20), ("synthetic books", 4000)):
        documents = synthetic_documents(tokens, sentences_a_document=sentences)
        for length in (128, 512):
            report(name, documents, vocabulary, length=length, repeat=options.repeat)
    if (options.data / "README.md").is_file():
        for name, documents, own in real_documents(options.data, tokens=tokens):
            for length in (128, 512):
                report(name, documents, own, length=length, repeat=options.repeat)
    else:
        print(
            f"no real data at {options.data}: set BERTLOOM_DATA to its folder to see that as well"
        )


if __name__ == "__main__":
    main()
