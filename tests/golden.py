"""What the stages make of a small sample: `python tests/golden.py` prints it anew."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from pipelines.io.row_digest import MODULUS
from schemas.manifest import StageOutput

GOLDEN: dict[str, str] = {
    "build-documents": "57767d174b09494e6d37895a0e9fb1e8",
    "build-instances.length-64": "5848de48cc307414bb2c0af34abb9427",
    "build-tokens": "dc8bd6dee6d88c94e7b6411bb7754387",
    "build-vocabulary": "20ae0b969131b9ddd482a1b87bae1c71",
    "build-vocabulary/vocab.txt": "37b620f546c9f1567e54f5878ebcb5ad",
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
