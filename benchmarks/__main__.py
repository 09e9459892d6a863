"""`python -m benchmarks`: run every benchmark, one after another, each in its own process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> int:
    failed = []
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        print(f"\n== {path.stem} ==", flush=True)
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{path.stem}"], check=False)
        if done.returncode:
            failed.append(path.stem)
    if failed:
        print("failed:", ", ".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
