"""Random and real questions with their features, for the tests of span tasks."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from support.qa_reference import SQUAD_1, TINY_VOCAB

from model.tasks import qa
from model.tasks.features import Encoding, Features
from model.tasks.squad import SQUAD_TASKS
from model.tasks.task import Row, Task
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from schemas.arrow import SPAN_EXAMPLES
from schemas.finetune_configs import FeaturesConfig

TINY = WordPieceTokenizer(TINY_VOCAB, lowercase=True)
TINY_CASED = WordPieceTokenizer(TINY_VOCAB, lowercase=False)
BERT_CONFIG = FeaturesConfig(max_seq_length=384)
PARTS = [
    *("the ", "miller", "1895", "(1895-1943)", " ", "\n", "\t", "\u202f", "\xa0", ".", "é", "E"),
    *("e\u0301", "\u200b", "日", "z" * 8, "☃", "(", "-", "İ"),
]
TEXT = st.lists(st.sampled_from(PARTS), min_size=1, max_size=40).map("".join)


@st.composite
def example(draw: st.DrawFn) -> dict[str, Any]:
    context = draw(TEXT.filter(str.strip))
    start = draw(st.integers(0, len(context) - 1))
    answer = context[start : start + draw(st.integers(1, 12))]
    question = draw(TEXT.filter(str.strip))
    if not answer.strip() or draw(st.integers(0, 5)) == 0:
        return {"context": context, "question": question}
    return {
        "context": context,
        "question": question,
        "answers": [answer.strip()],
        "answer_starts": [start + len(answer) - len(answer.lstrip())],
    }


def train(examples: pa.Table, tokenizer: WordPieceTokenizer, config: FeaturesConfig) -> Features:
    return qa.build_features(examples, encoding(tokenizer, config), is_training=True)


def encoding(
    tokenizer: WordPieceTokenizer, config: FeaturesConfig, *, task: Task = SQUAD_1
) -> Encoding:
    return Encoding(task=task, labels=(), tokenizer=tokenizer, config=config)


@functools.cache
def real_examples(real_data: Path, task: str, split: str, name: str) -> pa.Table:
    reader = SQUAD_TASKS[task].reader
    rows = reader(SQUAD_TASKS[task], split, str(real_data / "squad" / name))
    return pa.Table.from_pylist(
        [row.values for row in rows if isinstance(row, Row)], schema=SPAN_EXAMPLES
    )
