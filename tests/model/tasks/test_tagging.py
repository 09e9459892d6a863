import numpy as np
import pyarrow as pa
import pytest

from model.tasks import tagging
from model.tasks.features import IGNORED, Encoding
from model.tasks.ner import NER_TASKS
from model.tasks.tagging import plan_windows
from model.tasks.task import Row
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from pipelines.wordpiece.vocab_files import SPECIAL_TOKENS
from schemas.arrow import TAG_EXAMPLES
from schemas.errors import PredictionsError
from schemas.finetune_configs import FeaturesConfig

TASK = NER_TASKS["tagging"]
LABELS = ("O", "B-A", "I-A")
VOCAB = [*SPECIAL_TOKENS, *"abcdefg", *(f"##{letter}" for letter in "abcdefg")]


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer(VOCAB, lowercase=False)


def table(*documents, tags=None):
    """Documents as lists of sentences, each a list of words."""
    rows = []
    for number, sentences in enumerate(documents):
        words = [word for sentence in sentences for word in sentence]
        rows.append(
            {
                "id": f"document-{number + 1}",
                "sentence_lengths": [len(sentence) for sentence in sentences],
                "words": words,
                "tags": ["O"] * len(words) if tags is None else tags[number],
            }
        )
    return pa.Table.from_pylist(rows, schema=TAG_EXAMPLES)


def features_of(examples, tokenizer, *, labels=LABELS, **config):
    return tagging.build_features(examples, encoding(tokenizer, labels, config), is_training=True)


def encoding(tokenizer, labels, config):
    return Encoding(task=TASK, labels=labels, tokenizer=tokenizer, config=FeaturesConfig(**config))


def score(examples, said):
    return tagging.score(examples, said, task=TASK)


def decoded(examples, outputs, tokenizer, *, labels=LABELS, **config):
    reads = encoding(tokenizer, labels, config)
    features = tagging.build_features(examples, reads, is_training=False)
    return tagging.decode(examples, features, outputs, encoding=reads)


def unit(features, number):
    """Ids, and the tagged places, of a unit."""
    ids = features.input_ids[features.offsets[number] : features.offsets[number + 1]]
    first, last = features.position_offsets[number : number + 2]
    return ids.tolist(), features.positions[first:last].tolist()


def pieces(features, number, tokenizer):
    return tokenizer.convert_ids_to_tokens(unit(features, number)[0])


def outputs_for(labels, *, count=3):
    return np.eye(count, dtype=np.float32)[labels]


# Windows


def oracle_context(starts, word, begin, end):
    """Pieces around a word's first piece in a window of words; all there are counts as no end."""
    before = starts[word] - starts[begin] if begin > 0 else float("inf")
    behind = starts[end] - 1 - starts[word] if end < len(starts) - 1 else float("inf")
    return min(before, behind)


def check_windows(starts, size):
    plan = plan_windows(starts, size=size)
    words = len(starts) - 1
    windows = list(zip(plan.first.tolist(), plan.last.tolist(), strict=True))
    assert len(plan.home) == words
    assert all(starts[end] - starts[begin] <= size for begin, end in windows)
    assert [begin for begin, _ in windows] == sorted({begin for begin, _ in windows})
    for word in range(words):
        contexts = [
            oracle_context(starts, word, begin, end) if begin <= word < end else -1
            for begin, end in windows
        ]
        assert plan.home[word] == contexts.index(max(contexts))  # the first of the best
        assert max(contexts) >= 0
    return plan


@pytest.mark.parametrize("size", [6, 7, 12, 30])
def test_every_word_is_tagged_where_it_has_most_context(size):
    rng = np.random.default_rng(size)
    for words in [*range(1, 40), 200]:
        short = np.minimum(rng.geometric(0.6, words), size)
        for lengths in (short, rng.choice([1, 2, size - 1, size], size=words)):
            check_windows(np.concatenate([[0], np.cumsum(lengths)]), size)


def test_windows_overlap_by_half_and_no_more():
    for count, windows in ((100, 1), (101, 2), (150, 2), (151, 3), (1000, 19), (1001, 20)):
        plan = check_windows(np.arange(count + 1), 100)
        assert len(plan.first) == windows
        assert (plan.last[-1], plan.last[-1] - plan.first[-1]) == (count, 100)
        contexts = [
            oracle_context(np.arange(count + 1), word, plan.first[home], plan.last[home])
            for word, home in enumerate(plan.home.tolist())
        ]
        assert min(contexts) >= 24


# Features


def test_windows_are_documents_or_sentences(tokenizer):
    tags = [["O", "B-A", "I-A", "O"]]
    features = features_of(table([["ab", "c"], ["de", "f"]], tags=tags), tokenizer)
    assert pieces(features, 0, tokenizer) == [
        "[CLS]", "a", "##b", "c", "d", "##e", "f", "[SEP]",
    ]  # fmt: skip
    assert unit(features, 0)[1] == [1, 3, 4, 6]
    assert features.labels.tolist() == [0, 1, 2, 0]
    assert features.units == 1
    assert features.b_starts.tolist() == [8]
    assert features.kind == "tagging"
    examples = table([["ab", "c"], ["de", "f"]], [["g"]])
    features = features_of(examples, tokenizer, document_context=False)
    assert [pieces(features, number, tokenizer) for number in range(3)] == [
        ["[CLS]", "a", "##b", "c", "[SEP]"],
        ["[CLS]", "d", "##e", "f", "[SEP]"],
        ["[CLS]", "g", "[SEP]"],
    ]
    assert features.rows.tolist() == [0, 0, 1]
    assert features.position_offsets.tolist() == [0, 2, 4, 5]


def test_neighbouring_sentences_stand_around_in_a_long_document(tokenizer):
    examples = table([["a"] * 3, ["b"] * 3, ["c"] * 3, ["d"] * 3])
    features = features_of(examples, tokenizer, max_seq_length=8)
    result = [pieces(features, number, tokenizer)[1:-1] for number in range(features.units)]
    assert result == [list("aaabbb"), list("bbbccc"), list("cccddd")]
    assert [unit(features, number)[1] for number in range(3)] == [
        [1, 2, 3, 4, 5],
        [3, 4, 5],
        [3, 4, 5, 6],
    ]
    assert features.counters["pieces"] == 12
    assert features.counters["pieces-again"] == 6


def test_long_words_are_cut_and_words_of_nothing_are_not_tagged(tokenizer):
    tags = [["B-A", "B-A", "I-A", "O"]]
    examples = table([["abcdefgabc", "\u200b", "\x01", "a"]], tags=tags)
    features = features_of(examples, tokenizer, max_seq_length=8)
    assert [pieces(features, number, tokenizer) for number in range(2)] == [
        ["[CLS]", "a", "##b", "##c", "##d", "##e", "##f", "[SEP]"],
        ["[CLS]", "a", "[SEP]"],
    ]
    assert features.labels.tolist() == [1, 0]
    assert features.counters["words-cut"] == 1
    assert features.counters["words-without-pieces"] == 2
    result = decoded(examples, outputs_for([2, 1]), tokenizer, max_seq_length=8)
    assert result == [{"id": "document-1", "tags": ["I-A", "O", "O", "B-A"]}]


def test_a_document_of_nothing_has_no_window_and_only_o(tokenizer):
    examples = table([["a"]], [["\u200b", "\x01"]], [["b"]])
    features = features_of(examples, tokenizer)
    assert features.rows.tolist() == [0, 2]
    result = decoded(examples, outputs_for([1, 2]), tokenizer)
    assert [prediction["tags"] for prediction in result] == [["B-A"], ["O", "O"], ["I-A"]]
    nothing = table([["\u200b"]])
    features = features_of(nothing, tokenizer)
    assert features.units == 0
    assert features.offsets.tolist() == features.position_offsets.tolist() == [0]
    result = decoded(nothing, np.empty((0, 3), np.float32), tokenizer)
    assert result == [{"id": "document-1", "tags": ["O"]}]


def test_tags_not_known_have_no_label(tokenizer):
    half = table([["a"]], [["b"]], tags=[["B-A"], None])
    assert features_of(half, tokenizer).labels.tolist() == [1, IGNORED]
    assert features_of(table([["a"]], tags=[None]), tokenizer).labels is None
    other = features_of(table([["a", "b"]], tags=[["B-B", "I-A"]]), tokenizer)
    assert other.labels.tolist() == [IGNORED, 2]
    assert other.counters["words-unknown-tag"] == 1


# Predictions and scores


def test_tags_come_back_to_their_words_through_windows(tokenizer):
    rng = np.random.default_rng(3)
    documents, tags = [], []
    for _ in range(12):
        sizes = rng.integers(1, 9, rng.integers(1, 8))
        words = [
            ["".join(rng.choice(list("abcdefg"), rng.integers(1, 5))) for _ in range(size)]
            for size in sizes
        ]
        documents.append(words)
        tags.append(rng.choice(LABELS, sizes.sum()).tolist())
    examples = table(*documents, tags=tags)
    for config in ({"max_seq_length": 12}, {"max_seq_length": 9, "document_context": False}):
        features = features_of(examples, tokenizer, **config)
        assert len(features.positions) == sum(map(len, tags))
        outputs = outputs_for(features.labels) + rng.uniform(0, 0.4, (len(features.labels), 3))
        result = decoded(examples, outputs.astype(np.float32), tokenizer, **config)
        assert [prediction["tags"] for prediction in result] == tags
        assert score(examples, result)["entity-f1"] == 1.0


def test_scores_by_sentence_and_only_where_tags_are_known():
    examples = table([["a"], ["b"]], [["c"]], tags=[["B-A", "I-A"], None])
    predictions = [
        {"id": "document-1", "tags": ["B-A", "B-A"]},
        {"id": "document-2", "tags": ["B-A"]},
    ]
    scores = score(examples, predictions)
    # Two sentences: the I- begins an entity, which is the same one.
    assert scores["entity-f1"] == 1.0
    assert scores["word-accuracy"] == 0.5
    assert scores["entity-f1:A"] == 1.0
    assert set(TASK.metrics) <= set(scores)
    assert score(examples.slice(1), predictions[1:]) == {}


@pytest.mark.parametrize(
    ("predictions", "expected"),
    [
        ([("1", ["O"]), ("2", ["O", "O"])], "expected 1 tags, one a word, found 2"),
        ([("1", ["O"]), ("2", ["LOC"])], "expected O or a tag such as B-LOC, found 'LOC'"),
    ],
)
def test_predictions_of_other_documents_are_refused(predictions, expected):
    said = [{"id": f"document-{number}", "tags": tags} for number, tags in predictions]
    with pytest.raises(PredictionsError, match=expected):
        score(table([["a"]], [["c"]]), said)


# Real data


@pytest.fixture(scope="module")
def wikigold(real_data):
    url = str(real_data / "ner" / "wikigold" / "data" / "wikigold.conll.txt")
    rows = [row.values for row in TASK.reader(TASK, "train", url) if isinstance(row, Row)]
    return pa.Table.from_pylist(rows, schema=TAG_EXAMPLES)


@pytest.fixture(scope="module")
def cased(real_data):
    vocab = str(real_data / "vocab" / "bert-base-cased" / "vocab.txt")
    return WordPieceTokenizer.from_vocab_file(vocab, lowercase=False)


@pytest.mark.parametrize(("length", "windows"), [(512, 213), (128, 701)])
def test_each_word_of_wikigold_is_tagged_once_with_most_context(wikigold, cased, length, windows):
    labels = ("O", *(f"{begin}-{kind}" for kind in ("LOC", "MISC", "ORG", "PER") for begin in "BI"))
    features = features_of(wikigold, cased, labels=labels, max_seq_length=length)
    assert features.units == windows
    assert len(features.positions) == len(features.labels) == 39_007
    assert features.lengths.max() <= length
    assert (features.input_ids[features.offsets[:-1]] == cased.cls_id).all()
    assert (features.input_ids[features.offsets[1:] - 1] == cased.sep_id).all()
    perfect = decoded(
        wikigold,
        outputs_for(features.labels, count=len(labels)),
        cased,
        labels=labels,
        max_seq_length=length,
    )
    scores = score(wikigold, perfect)
    assert scores["entity-f1"] == scores["word-accuracy"] == 1.0
