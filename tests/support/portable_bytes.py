"""Print as JSON what must be equal on every Python: `python tests/support/portable_bytes.py`.

Another Python runs this file too, with what a Beam worker has installed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]  # of a file that runs outside pytest, too
_NEWER = [*range(0x11F00, 0x11F5A), *range(0x1E4D0, 0x1E4FA), 0x1E030, 0x31350, 0x2EBF0]
"""Kawi and Nag Mundari with their marks, a Cyrillic modifier and an ideograph, of Unicode 15.0, and
an ideograph of 15.1: to Python 3.11 (14.0) all are unassigned, to 3.13 letters and marks."""


def portable_bytes() -> dict[str, object]:
    """Digests of the corpus's rows, and what `portable_facts` says."""
    from support.corpus_builder import run_corpus, small_recipe, small_sample
    from support.golden import golden_digests

    with tempfile.TemporaryDirectory() as folder:
        sample = small_sample(Path(folder) / "sample")
        golden = golden_digests(run_corpus(small_recipe(sample), Path(folder)), folder)
    return {"rows": golden, **portable_facts()}


def portable_facts() -> dict[str, object]:
    """Return words of new characters, and the versions in keys."""
    from flows.run.provenance import key_environment
    from pipelines.stages import STAGES

    stages = [stage for stage in STAGES if stage.python_independent]
    return {
        "words": [new_words(lowercase=lowercase) for lowercase in (False, True)],
        "keys": {
            stage.name: key_environment(
                stage.libraries, python_independent=stage.python_independent
            )
            for stage in stages
        },
    }


def new_words(*, lowercase: bool) -> list[list[str]]:
    """The words of texts whose characters only newer Pythons know."""
    from pipelines.wordpiece.tokenizer import FastPreTokenizer

    splitter = FastPreTokenizer(lowercase=lowercase)
    return [
        splitter.words(f"Aé{chr(code)}\u0301\u0323{chr(code)}z {chr(code)}B") for code in _NEWER
    ]


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    sys.stdout.write(json.dumps(portable_bytes()))
