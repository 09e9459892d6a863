"""TriviaQA's official files as what SQuAD's tasks are trained on first."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import fsspec
import pytest
from support.task_file_builder import write_task_file
from support.task_rows import build

from model.build_examples import raw_inputs
from model.tasks import TASKS
from model.tasks.examples import read_examples
from model.tasks.triviaqa import PASSAGE_TOKENS, find_answer, read_passage
from schemas.errors import MissingInputError, TaskDataError
from schemas.finetune_configs import ExamplesConfig
from schemas.manifest import StageOutput

WORDS = " ".join(f"w{number}" for number in range(PASSAGE_TOKENS - 2))


def page(name: Any, **more: Any) -> dict[str, Any]:
    return {"DocSource": "TagMe", "Filename": name, "Title": str(name)[:-4], **more}


def question(number: int, *pages: Any, web: Any = (), **more: Any) -> dict[str, Any]:
    return {
        "Answer": {"Value": "Sunset Boulevard", "NormalizedAliases": ["sunset blvd"]},
        "EntityPages": list(pages),
        "Question": f"Which musical is number {number}?",
        "QuestionId": f"tc_{number}",
        "SearchResults": list(web),
        **more,
    }


def write(root: Path, questions: list[Any], *, name: str = "wikipedia-train.json") -> str:
    """The official tree: a file of questions in `qa`, documents in `evidence`."""
    texts = {
        "wikipedia/Andrew.txt": "\n He wrote SUNSET\n boulevard, then sunset Blvd. ",
        "wikipedia/Late.txt": f"{WORDS} one two Sunset Boulevard",
        "wikipedia/Edge.txt": f"{WORDS} Sunset Boulevard and more",
        "wikipedia/Within.txt": "A ySunset Boulevards.",
        "wikipedia/Empty.txt": " \n",
        "web/35/35_995.txt": "\ufeffSunset Blvd was long.",
    }
    for path, text in texts.items():
        file = root / "evidence" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (root / "evidence/wikipedia/Latin.txt").write_bytes("Café Sunset Boulevard".encode("latin-1"))
    (root / "secret.txt").write_text("Sunset Boulevard")
    file = root / "qa" / name
    file.parent.mkdir(exist_ok=True)
    content = {"Data": questions, "Domain": "Web", "VerifiedEval": False, "Version": 1.0}
    data = json.dumps(content, indent=1).encode()
    file.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return str(file)


def squad(folder: Path, augmentation: str, **more: Any) -> ExamplesConfig:
    files = {
        split: (write_task_file(TASKS["squad-1.1"], split, folder=folder),)
        for split in ("train", "dev")
    }
    return ExamplesConfig(
        task="squad-1.1", data_files={**files, "augmentation": (augmentation,)}, **more
    )


def build_squad(config: ExamplesConfig, output: Path) -> tuple[StageOutput, list[dict[str, Any]]]:
    made, given = build(output, **config.model_dump())
    return made, read_examples(given, "augmentation").to_pylist()


def test_questions_on_the_first_400_tokens_of_their_documents(tmp_path: Path) -> None:
    pages = [page("Andrew.txt"), page("Late.txt"), page("Edge.txt"), page("Within.txt")]
    file = write(
        tmp_path,
        [
            question(1, *pages, web=[{"Filename": "35/35_995.txt", "Rank": 0}]),
            question(2, page("Andrew.txt"), page("Andrew.txt"), {"Title": "no file"}),
            question(3),
        ],
        name="web-train.json.gz",
    )
    made, rows = build_squad(squad(tmp_path, file), tmp_path / "out")
    assert [(row["id"], row["title"], row["answers"], row["answer_starts"]) for row in rows] == [
        ("tc_1--Andrew.txt", "Andrew", ["SUNSET\n boulevard"], [9]),
        ("tc_1--Edge.txt", "Edge", ["Sunset Boulevard"], [len(WORDS) + 1]),
        ("tc_1--35/35_995.txt", "", ["Sunset Blvd"], [0]),
        ("tc_2--Andrew.txt", "Andrew", ["SUNSET\n boulevard"], [9]),
    ]
    assert rows[0]["context"] == "He wrote SUNSET\n boulevard, then sunset Blvd."
    assert rows[1]["context"].endswith("w397 Sunset Boulevard")
    assert all(row["is_impossible"] is False for row in rows)
    counters = {n.partition("@")[0]: c for n, c in made.counters.items() if "@augm" in n}
    assert counters == {
        "rows-in": 9,
        "rows-kept": 4,
        "rows-dropped-answer-not-in-first-400-tokens": 2,
        "rows-dropped-same-document-again": 1,
        "rows-dropped-no-file-name": 1,
        "rows-dropped-no-document": 1,
    }
    assert made.counters["rows-also-in-train@dev"] == made.counters["rows-kept@dev"]


def test_each_fault_is_counted_and_said(tmp_path: Path) -> None:
    faulty = [page("Gone.txt"), page("Latin.txt"), page("Empty.txt"), page("../../secret.txt"),
              page("/etc/passwd"), page("a::memory://b"), page(7), page("a/../Late.txt"),
              page("./Late.txt"), page("a//Late.txt"), page("a\\Late.txt"), page("a\0"),
              page("a/"), page("s3://a"), page("a" * 256)]  # fmt: skip
    file = write(
        tmp_path,
        [
            question(1, page("Andrew.txt"), *faulty),
            question(2, page("Andrew.txt"), Answer={"Value": "", "Aliases": []}),
            question(3, EntityPages="Andrew.txt"),
            question(4, QuestionId=None),
            "no question",
        ],
    )
    made, rows = build_squad(squad(tmp_path, file, max_invalid_fraction=1.0), tmp_path / "out")
    assert [row["id"] for row in rows] == ["tc_1--Andrew.txt"]
    assert {n: c for n, c in made.counters.items() if n.endswith("@augmentation")} == {
        "rows-in@augmentation": 20,
        "rows-kept@augmentation": 1,
        "rows-dropped-no-evidence-file@augmentation": 1,
        "rows-dropped-evidence-not-utf-8@augmentation": 1,
        "rows-dropped-empty-evidence@augmentation": 1,
        "rows-dropped-unsafe-file-name@augmentation": 12,
        "rows-dropped-no-answer@augmentation": 1,
        "rows-dropped-malformed@augmentation": 3,
    }
    with pytest.raises(TaskDataError, match=r"19 of 20 rows are bad: question 1, EntityPages 2: "):
        build_squad(squad(tmp_path, file), tmp_path / "again")


def test_what_decides_the_key_is_what_is_read(tmp_path: Path) -> None:
    file = write(tmp_path, [question(1, page("Andrew.txt"))])
    config = squad(tmp_path, file)

    def keys() -> dict[str, str]:
        return {item.name: item.key_digest for item in raw_inputs(config)}

    before = keys()
    name = "augmentation/wikipedia-train.json/evidence/wikipedia"
    assert name in before
    assert not [other for other in before if other.endswith("/web")]
    assert keys() == before
    (tmp_path / "evidence/web/35/35_995.txt").write_text("no question of the file is on it")
    assert keys() == before
    (tmp_path / "evidence/wikipedia/Andrew.txt").write_text("Sunset Boulevard it was")
    assert {other for other, key in keys().items() if key != before[other]} == {name}


def test_evidence_may_be_elsewhere_and_on_any_file_system(tmp_path: Path) -> None:
    local = write(tmp_path / "rc", [question(1, page("Andrew.txt"))])
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "rc/evidence"), "/trivia/texts", recursive=True)
    unfiltered = tmp_path / "unfiltered.json"
    unfiltered.write_bytes(Path(local).read_bytes())
    with pytest.raises(MissingInputError, match=r"wikipedia or web .* found neither\. Unpack"):
        raw_inputs(squad(tmp_path, str(unfiltered)))
    evidence = "memory://trivia/texts"
    made, rows = build_squad(
        squad(tmp_path, str(unfiltered), evidence_dir=evidence), tmp_path / "out"
    )
    assert len(rows) == 1
    (given,) = [item for item in made.raw_inputs if item.uri.startswith("memory:")]
    here = raw_inputs(squad(tmp_path, local))
    assert given.sha256 in {item.sha256 for item in here}


def test_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path, [question(1, page("Andrew.txt"))])
    config = squad(tmp_path, file)
    as_dev = config.model_copy(update={"data_files": {**config.data_files, "dev": (file,)}})
    with pytest.raises(TaskDataError, match=r"has TriviaQA.s questions, which SQuAD 1\.1 can be"):
        build_squad(as_dev, tmp_path / "out")
    Path(file).write_bytes(Path(file).read_bytes()[:-30])
    with pytest.raises(TaskDataError, match=r"no JSON .*expected TriviaQA's questions"):
        build_squad(config, tmp_path / "out")


def test_the_first_and_longest_name_is_the_answer(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("Not U.S.A. the U.S. Army (US) or USA")
    passage = read_passage(str(file))
    assert passage is not None

    def found(*names: str) -> str:
        span = find_answer(passage, names)
        return passage.text[slice(*span)] if span else ""

    assert found("US") == "US"
    assert found("u.s.", "U.S. Army") == "U.S."
    assert found("u.s.a", "u.s.", "usa") == "U.S.A"
    assert found("u.s. army", "usa") == "U.S. Army"
    assert found("Arm", "", "?") == ""


def test_a_long_document_is_read_no_further_than_needed_and_rightly(tmp_path: Path) -> None:
    file = tmp_path / "text"
    for sign in ("é", "語"):  # whose bytes the first piece's end cuts in two
        file.write_text("x " * 300 + "a" + sign * 70_000 + " b" * 300)
        passage = read_passage(str(file))
        assert passage is not None
        assert len(passage.tokens) == PASSAGE_TOKENS
        assert passage.tokens[300][2] == "a" + sign * 70_000
