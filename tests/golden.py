"""What the stages make of a small sample: `python tests/golden.py` prints it anew."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from pipelines.io.row_digest import MODULUS
from schemas.manifest import StageOutput

GOLDEN: dict[str, str] = {
    "build-documents": "c1cbe5c162a6b2539f0f484d27090342",
    "build-instances.length-64": "bb2e492e12482425efa1edb5d9ed27d5",
    "build-tokens": "45a54335d415e403e3beb6560c4c5ae8",
    "build-vocabulary": "f59fd51219d61af64b80285fa11a2109",
    "build-vocabulary/vocab.txt": "1d1b4207779cd10f0de410cb9c9c702d",
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
    from corpus_runs import run_corpus, small_recipe, small_sample

    with tempfile.TemporaryDirectory() as folder:
        sample = small_sample(Path(folder) / "sample")
        found = golden_digests(run_corpus(small_recipe(sample), Path(folder)))
    for stage, digest in found.items():
        print(f'    "{stage}": "{digest}",')


if __name__ == "__main__":
    main()
