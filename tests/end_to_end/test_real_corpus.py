"""The four stages over all the real data: what is promised, checked on what others wrote."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.corpus_builder import run_corpus

from pipelines.documents.exclusions import document_shards
from pipelines.io.shards import open_shard
from pipelines.wordpiece.tokenizer import WordPieceTokenizer, bert_tokenizer
from schemas.corpus_configs import (
    BooksSource,
    DocumentsConfig,
    InstancesConfig,
    MaskingConfig,
    VocabularyConfig,
    WikipediaSource,
)
from schemas.errors import CorruptInputError
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import StageInput, StageOutput
from schemas.recipe import Recipe

pytestmark = pytest.mark.slow

# Markup that no cleaned text may contain, unless the page shows it as text (a function's name).
RESIDUE = (
    "{{", "}}", "[[", "]]", "{|", "|}", "<ref", "</", "&nbsp;", "&amp;", "formula_", "codice_",
    "( ", " ,", "  ",
)  # fmt: skip
VOCAB_SIZE, MASK, SPECIAL = 30522, 103, {0, 100, 101, 102, 103}
TWO = ExecutionConfig(workers=2)


def _recipe(data: Path, *, on_corrupt: str) -> Recipe:
    books = data / "books"
    return Recipe(
        name="english",
        build_documents=DocumentsConfig(
            sources=(
                WikipediaSource(
                    name="enwiki",
                    paths=(str(data / "wikipedia" / "en-*.bz2"),),
                    on_corrupt=on_corrupt,
                ),
                WikipediaSource(name="enwikibooks", paths=(str(data / "wikibooks" / "*.bz2"),)),
                BooksSource(name="novels", paths=(str(books / "english-novels-100.tar.gz"),)),
                BooksSource(
                    name="gutenberg", paths=(str(books / "gutenberg-raw-children-73.tar.gz"),)
                ),
                BooksSource(
                    name="children", paths=(str(books / "gutenberg-clean-children-71.tar.gz"),)
                ),
            )
        ),
        build_vocabulary=VocabularyConfig(
            vocab_file=str(data / "vocab" / "bert-base-uncased" / "vocab.txt")
        ),
        build_instances={
            "length-128": InstancesConfig(),
            "length-512": InstancesConfig(
                max_seq_length=512, masking=MaskingConfig(max_predictions_per_seq=80)
            ),
        },
    )


Run = tuple[Path, dict[str, StageOutput]]


@pytest.fixture(scope="module")
def english(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("english")
    return folder, run_corpus(
        _recipe(real_data, on_corrupt="keep-whole-pages"), folder, execution=TWO
    )


def _tables(run: Run, stage: str) -> Iterator[tuple[int, pa.Table]]:
    folder, outputs = run
    for number, entry in enumerate(outputs[stage].files):
        with open_shard(str(folder / stage / entry.stored_name)) as reader:
            yield number, reader.read_all()


def _documents(run: Run) -> Iterator[pa.RecordBatch]:
    folder, outputs = run
    output = outputs["build-documents"]
    made = StageInput(name="documents", artifact_id="x", data="", files=output.files)
    for entry in document_shards(made):
        with open_shard(str(folder / "build-documents" / entry.stored_name)) as reader:
            yield from reader.read_all().to_batches()


def test_truncated_dump_is_refused(real_data: Path, tmp_path: Path) -> None:
    recipe = _recipe(real_data, on_corrupt="fail")
    dumps = recipe.build_documents.model_copy(
        update={"sources": recipe.build_documents.sources[:1]}
    )
    with pytest.raises(
        CorruptInputError, match=r"en-wp2txt-truncated.*last whole page.*on_corrupt"
    ):
        run_corpus(recipe.model_copy(update={"build_documents": dumps}), tmp_path, execution=TWO)


def test_every_page_and_book_is_counted(english: Run) -> None:
    output = english[1]["build-documents"]
    counters = output.counters
    assert (counters["pages-in@enwiki"], counters["pages-in@enwikibooks"]) == (757, 24_000)
    assert counters["books-in"] == counters["books-kept"] == 100 + 73 + 71
    dropped = sum(amount for name, amount in counters.items() if _is_dropped(name, "pages"))
    assert counters["pages-in"] == counters["pages-kept"] + dropped
    dropped = sum(amount for name, amount in counters.items() if _is_dropped(name, "documents"))
    assert counters["documents-in"] == counters["documents-kept"] + dropped
    assert any("1 truncated" in note for note in output.notes)
    repeated = counters["documents-dropped-repeated-id"]  # rows that the table of duplicates names
    rows = sum(batch.num_rows for batch in _documents(english))
    assert rows == counters["documents-kept"] + repeated


def _is_dropped(name: str, things: str) -> bool:
    return name.startswith(f"{things}-dropped-") and "@" not in name


def test_cleaned_wikipedia_has_no_markup(english: Run) -> None:
    found: Counter[str] = Counter()
    for batch in _documents(english):
        if batch.num_rows and batch.column("source")[0].as_py() == "enwiki":
            text = "\n".join(batch.column("sentences").flatten().to_pylist())
            found.update({mark: text.count(mark) for mark in RESIDUE if mark in text})
            # Two marks that prose itself may hold: rename(), f''.
            found["()"] += len(re.findall(r"(?<!\w)\(\)", text))
            found["''"] += len(re.findall(r"(?<!')''\w{3,}", text))
    # One article quotes with doubled apostrophes inside nowiki: that is the source's own text.
    assert {mark: number for mark, number in found.items() if number > 3} == {}
    assert set(found) - {mark for mark, number in found.items() if not number} <= {"''"}


def test_ids_equal_those_of_tokenizers_for_every_sentence(english: Run, real_data: Path) -> None:
    path = str(real_data / "vocab" / "bert-base-uncased" / "vocab.txt")
    ours = WordPieceTokenizer.from_vocab_file(path, lowercase=True)
    library = bert_tokenizer(ours.vocab, lowercase=True)
    compared = 0
    for batch in _documents(english):
        sentences = batch.column("sentences").flatten().to_pylist()
        ids, lengths = ours.encode_sentences(sentences)
        expected = [found.ids for found in library.encode_batch_fast(sentences)]
        assert lengths.tolist() == list(map(len, expected))
        assert ids.tolist() == list(itertools.chain.from_iterable(expected))
        compared += len(sentences)
    assert compared > 1_000_000


def test_instances_have_fractions_of_the_paper(english: Run) -> None:
    output = english[1]["build-instances.length-128"]
    shares = output.statistics
    assert output.counters["instances"] > 100_000
    assert shares["random_next_share"] == pytest.approx(0.5, abs=0.01)
    assert shares["masked_share"] == pytest.approx(0.15, abs=0.002)
    assert shares["mean_fill"] >= 0.90
    masked = kept = chosen = 0
    counters = output.counters
    held_out = counters["held-out-documents-in"]
    assert held_out == pytest.approx(0.005 * counters["documents-in"], rel=0.4)
    paired = counters["held-out-random-next"] / counters["held-out-instances"]
    assert paired == pytest.approx(0.5, abs=0.05)
    for _, table in _tables(english, "build-instances.length-128"):
        originals = table.column("masked_lm_ids").combine_chunks().values.to_numpy()
        inputs = _chosen_inputs(table)
        assert not np.isin(originals, list(SPECIAL - {100})).any()
        chosen += len(originals)
        masked += int(np.count_nonzero(inputs == MASK))
        kept += int(np.count_nonzero(inputs == originals))
        is_random = table.column("next_sentence_label").to_numpy() == 1
        own = table.column("segment_b_shard").to_numpy() == 0
        same = own & (
            table.column("segment_b_row").to_numpy() == table.column("document_row").to_numpy()
        )
        assert not (is_random & same).any()
        assert same[~is_random].all()
    assert masked / chosen == pytest.approx(0.8, abs=0.005)
    assert kept / chosen == pytest.approx(0.1, abs=0.005)


def _chosen_inputs(table: pa.Table) -> np.ndarray:
    """Return the input ids at the masked positions."""
    inputs = table.column("input_ids").combine_chunks()
    positions = table.column("masked_lm_positions").combine_chunks()
    counts = np.diff(positions.offsets.to_numpy())
    starts = np.repeat(inputs.offsets.to_numpy()[:-1], counts)
    return inputs.values.to_numpy()[starts + positions.values.to_numpy()]


@pytest.mark.parametrize(("wiki", "language", "pages"), [("it-*", "it", 747), ("ja-*", "ja", 262)])
def test_other_languages_go_through(
    real_data: Path, tmp_path: Path, wiki: str, language: str, pages: int
) -> None:
    recipe = Recipe(
        name=language,
        build_documents=DocumentsConfig(
            sources=(
                WikipediaSource(
                    name=f"{language}wiki",
                    paths=(str(real_data / "wikipedia" / wiki),),
                    language=language,
                    on_corrupt="keep-whole-pages",
                ),
            )
        ),
        build_vocabulary=VocabularyConfig(vocab_size=8000, lowercase=False, limit_alphabet=3000),
    )
    outputs = run_corpus(recipe, tmp_path)
    assert outputs["build-documents"].counters["pages-in"] == pages
    tokens = outputs["build-tokens"].counters
    assert tokens["unknown-tokens"] / tokens["tokens"] < 0.005
    assert outputs["build-instances.length-128"].counters["instances"] > 3000
