"""What the stages make of a small sample: `python tests/golden.py` prints it anew."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from pipelines.io.row_digest import MODULUS
from schemas.manifest import StageOutput

GOLDEN: dict[str, str] = {
    "build-documents": "17e9ff1258b7a81804bcd62b5cd15a6a",
    "build-instances.length-64": "92ca8303bd7598d7003e8376e3d8354d",
    "build-tokens": "0e7f3e5a89da4abd4d8efd008a83f642",
    "build-vocabulary": "3a28c84e3bfc5abe169eaffd883dd934",
    "build-vocabulary/vocab.txt": "76fc6683f9e97dbbfe7c44f4d0521b6a",
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
