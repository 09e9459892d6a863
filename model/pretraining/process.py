"""One process of a training job: `python -m model.pretraining.process JOB.json`, or the same under
torchrun, on as many machines as share the job's folders."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from model.pretraining.job import TrainingJob, write_failure
from model.processes.child_processes import LAUNCHER_VARIABLE
from model.processes.core_share import bound_spinning
from schemas.disclosure import Guarded
from schemas.errors import BertloomError

_LOGGER = logging.getLogger("model.pretraining.process")  # run as a program, it has another name


def main(arguments: list[str]) -> int:
    """Train; the exit code: 0 at the end of the budget, 1 for an error, which is left in a file."""
    share = bound_spinning()  # before the next lines load torch
    from model.pretraining.loop import train
    from model.processes.stopping import StopRequest

    handler = logging.StreamHandler()
    handler.setFormatter(Guarded("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("model").setLevel(logging.INFO)
    job_file = Path(arguments[0])
    job = TrainingJob.model_validate_json(job_file.read_text(encoding="utf-8"))
    if share is not None and os.environ.get("RANK", "0") == "0":
        _LOGGER.info("%s: %s", job.name, share.text)
    launcher = os.environ.get(LAUNCHER_VARIABLE)
    try:
        with StopRequest(launcher=int(launcher) if launcher else None) as stop:
            train(job, stop=stop)
    except BertloomError as error:
        write_failure(job_file, error)
        return 1
    except BaseException as error:
        write_failure(job_file, error)
        raise
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
