"""The same bytes and the same keys on every Python that we run on, of those that are at hand.

`make pythons` makes an environment for each that is found; $BERTLOOM_PYTHONS names others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from typing import Any

import pytest
from support.golden import GOLDEN
from support.paths import ROOT
from support.portable_bytes import new_words, portable_facts

from flows.run.provenance import key_environment
from flows.run.stages import STAGES
from pipelines.wordpiece.tokenizer import FastPreTokenizer

OTHERS = [name for name in ("3.11", "3.12", "3.13") if name != "{}.{}".format(*sys.version_info)]
NEEDED = "import apache_beam, pyarrow, pydantic, rensa, rfc8785, sentencex, tokenizers"


def _ran(python: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def _interpreter(version: str) -> str:
    """Return a Python of this version with the corpus packages, or skip with the reason."""
    named = [text for text in os.environ.get("BERTLOOM_PYTHONS", "").split(os.pathsep) if text]
    say = "import sys; print('%d.%d' % sys.version_info[:2])"
    looked_at = [*named, str(ROOT / f".venv.{version}/bin/python"), f"python{version}"]
    lacking = []
    for python in looked_at:
        try:
            asked = _ran(python, "-c", f"{say}; {NEEDED}")
        except OSError:
            continue
        if asked.returncode == 0 and asked.stdout.strip() == version:
            return python
        if asked.stdout.strip() == version:
            lacking.append(f"{python}: {asked.stderr.strip().splitlines()[-1]}")
    pytest.skip(f"no Python {version} with our packages: {'; '.join(lacking or looked_at)}")


@pytest.mark.slow
@pytest.mark.parametrize("version", OTHERS)
def test_another_python_makes_the_same_bytes_and_keys(version: str) -> None:
    done = _ran(_interpreter(version), str(ROOT / "tests/support/portable_bytes.py"))
    assert done.returncode == 0, done.stderr
    there: dict[str, Any] = json.loads(done.stdout)
    here: dict[str, Any] = json.loads(json.dumps(portable_facts()))
    assert there["rows"] == GOLDEN
    assert there["words"] == here["words"]
    for environment in there["keys"].values():
        assert environment["python"] == "3.11"


def test_python_is_in_the_keys_of_what_may_differ() -> None:
    """Documents ask Python's Unicode tables what a letter is; words and ids ask `tokenizers`."""
    same = {name for name, stage in STAGES.items() if stage.python_independent}
    assert same == {"build-vocabulary", "build-tokens", "build-instances"}
    assert key_environment([], python_independent=True) == {"python": "3.11"}
    assert key_environment([]) == {"python": "{}.{}".format(*sys.version_info)}


def test_words_do_not_depend_on_which_characters_python_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A character that is unassigned in older Pythons has the same result in newer ones."""
    known = [new_words(lowercase=lowercase) for lowercase in (False, True)]
    category = unicodedata.category
    text = "Aé\u0951\u0301 ßọ́x"
    plain = FastPreTokenizer(lowercase=True).words(text)
    monkeypatch.setattr(
        "pipelines.wordpiece.tokenizer.unicodedata.category",
        lambda character: "Cn" if character > "~" else category(character),
    )
    assert FastPreTokenizer(lowercase=True).words(text) == plain
    assert [new_words(lowercase=lowercase) for lowercase in (False, True)] == known
