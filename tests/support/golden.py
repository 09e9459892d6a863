"""Digests of what the stages write for a small sample.

`PYTHONPATH=tests python -m support.golden` prints new ones.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from pipelines.io.row_digest import MODULUS
from schemas.manifest import StageOutput

GOLDEN: dict[str, str] = {
    "build-documents": "2612bbf246f483d45249186cd14ae752",
    "build-instances.length-64": "851059e3fcac582e42d4d27536301ae2",
    "build-tokens": "f6418a5629aac3054df66e0ead204e96",
    "build-vocabulary": "4d9b88789a8bfe5ca32df56c02311b5d",
    "build-vocabulary/vocab.txt": "5086d3845b295ab3ccc6ba0c343ca828",
}


def golden_digests(outputs: Mapping[str, StageOutput]) -> dict[str, str]:
    """For each stage the sum of its shards' row digests, and the vocabulary's digest."""
    digests = {}
    for stage, output in sorted(outputs.items()):
        rows = sum(int(entry.logical or "0", 16) for entry in output.files) % MODULUS
        digests[stage] = f"{rows:032x}"
        for entry in output.files:
            if entry.path == "vocab.txt":
                digests[f"{stage}/vocab.txt"] = entry.sha256[:32]
    return digests


def main() -> None:
    from support.corpus_builder import run_corpus, small_recipe, small_sample

    with tempfile.TemporaryDirectory() as folder:
        sample = small_sample(Path(folder) / "sample")
        found = golden_digests(run_corpus(small_recipe(sample), Path(folder)))
    for stage, digest in found.items():
        print(f'    "{stage}": "{digest}",')


if __name__ == "__main__":
    main()
