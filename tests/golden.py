"""What the stages make of a small sample: `python tests/golden.py` prints it anew."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from pipelines.io.row_digest import MODULUS
from schemas.manifest import StageOutput

GOLDEN: dict[str, str] = {
    "build-documents": "28bb3dec0c00b46961c7fc37ac22851b",
    "build-instances.length-64": "4dd20c55a48af99d9337d6237c4ef2e0",
    "build-tokens": "189176bb875b8d02b76e4436ee2f9d3f",
    "build-vocabulary": "f884bc0eaa55fed629f389503da78910",
    "build-vocabulary/vocab.txt": "5c8cd02ceab3e8f4451f6a3c66d2bc38",
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
