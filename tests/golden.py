"""What the stages make of a small sample: `python tests/golden.py` prints it anew."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from pipelines.io.row_digest import MODULUS
from schemas.manifest import StageOutput

GOLDEN: dict[str, str] = {
    "build-documents": "f97490f8282bba4053f9c333a82bee7e",
    "build-instances.length-64": "c72ce60e77552d31a265980767e9e834",
    "build-tokens": "22f997a9a52ead15b844cd71c9cd7d5d",
    "build-vocabulary": "c714243b1556911c210a78d12c70af18",
    "build-vocabulary/vocab.txt": "7503a75050a1978ba3960d387f7cba0f",
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
