"""One process of a training job: `python -m model.pretraining.process JOB.json`, or the same under
torchrun, on as many machines as share the job's folders."""

from __future__ import annotations

import sys

from model.launch.worker import run_job_file


def main(arguments: list[str]) -> int:
    """Train; the exit code: 0 at the end of the budget, 1 for an error, which is left in a file."""
    return run_job_file("model.pretraining.loop:train", arguments[0])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
