"""Requests that the corpus half of the sample makes of S3: first, and again with all of it there.

    python -m benchmarks.bench_object_store [--workers 1] [--articles 4400] [--json]

The server is moto's; a proxy before it counts. The peer is a store in a folder, whose contents have
to be equal. Requests are counted, not timed: what one takes depends on the network.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.object_store import Proxy, S3Server, environment
from benchmarks.timing import parser_for
from flows.store.artifacts import ArtifactStore

_RUN = "from flows.cli.app import main; main()"


def run_corpus(store: str, *, sample: str, workers: int) -> None:
    """The corpus stages of the packaged sample."""
    options = ["--engine", "local", "--until", "build-instances", "--workers", str(workers)]
    subprocess.run(
        [sys.executable, "-c", _RUN, "run", "sample", "--store", store, *options],
        env={**os.environ, "BERTLOOM_SAMPLE": sample},
        check=True,
        stdout=subprocess.DEVNULL,
    )


def contents(store: str) -> list[str]:
    """Content digests of what is published."""
    return sorted(
        pointer.content_digest for pointer in ArtifactStore(store, create=False).pointers()
    )


def main() -> int:
    parser = parser_for(__doc__)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--articles", type=int, default=4400)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    requests: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as name, S3Server() as server, Proxy(server.url) as proxy:
        sample, folder = str(Path(name, "sample")), str(Path(name, "store"))
        command = [sys.executable, "-c", _RUN, "sample", sample]
        size = ["--articles", str(options.articles)]
        subprocess.run([*command, *size], check=True, stdout=subprocess.DEVNULL)
        os.environ.update(environment(proxy.url))
        store = f"{server.make_bucket('corpora')}/store"
        for turn in ("first", "again"):
            before = proxy.counts()
            run_corpus(store, sample=sample, workers=options.workers)
            requests[turn] = proxy.counts() - before
        run_corpus(folder, sample=sample, workers=1)
        is_equal = contents(store) == contents(folder)
    if options.json:
        print(json.dumps({**requests, "equal": is_equal}))
    else:
        for turn, counted in requests.items():
            parts = ", ".join(f"{amount} {kind}" for kind, amount in sorted(counted.items()))
            print(f"{turn:<6} {sum(counted.values()):>5} requests: {parts}")
        print(f"contents equal to those of a store in a folder: {'yes' if is_equal else 'NO'}")
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
