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
    "build-documents": "25f6d7d09a9735662fd083bfce8a9b9c",
    "build-instances.length-64": "5123c1f5c7514e21c38999df7c54a039",
    "build-tokens": "ee2a9f671989f37edb8b3402a7fbd384",
    "build-vocabulary": "7629085b35f80b33150648d0f95e6bfe",
    "build-vocabulary/vocab.txt": "4956eb64009e8ffa3b6dc1388a441dd9",
}


def golden_digests(outputs: Mapping[str, StageOutput]) -> dict[str, str]:
    """For each stage the sum of its shards' row digests, and the vocabulary's digest."""
    digests = {}
    for stage, output in sorted(outputs.items()):
        rows = sum(int(entry.rows_digest or "0", 16) for entry in output.files) % MODULUS
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
