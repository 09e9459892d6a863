"""`python -m pipelines.runners.worker`: a Beam worker process on this machine that speaks when it
must.

Beam's own entry point logs twenty lines a worker and job at the level of information, and two
warnings that are always the same. What a worker really warns of still reaches the runner's log.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from pipelines.runners.quiet import without_tracebacks

ALWAYS_WARN = ("apache_beam.runners.worker.sdk_worker_main", "apache_beam.options.pipeline_options")


def load() -> Callable[[list[str]], None]:
    """Beam's entry point, loaded after logging is set up."""
    # With a handler on the root, no library's first warning starts logging to standard error;
    # records travel to the runner through the handler that Beam adds.
    logging.getLogger().addHandler(logging.NullHandler())
    for name in ALWAYS_WARN:
        logging.getLogger(name).setLevel(logging.ERROR)
    from apache_beam.runners.worker import sdk_worker_main  # start-up: after logging is set up

    found: Callable[[list[str]], None] = sdk_worker_main.main
    return found


def main() -> None:
    work = load()
    with without_tracebacks():
        work(sys.argv)


if __name__ == "__main__":
    main()
