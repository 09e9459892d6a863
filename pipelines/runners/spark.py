"""Apache Spark, through Beam's job server."""

from __future__ import annotations

import re

from pipelines.runners.job_server import connection_error
from pipelines.runners.portable import PortableRunner
from pipelines.runners.runner import flag_names
from schemas.errors import ConfigError, RunnerError
from schemas.execution_configs import ExecutionConfig

_DEFAULTS = {
    # Otherwise executors end their Python workers after each of a job's four to seven stages.
    "--environment_cache_millis": "10000",
}
_WORKERS_FLAG = "--sdk_worker_parallelism"
_EMBEDDED = re.compile(r"local\[(\d+)\]")


class SparkRunner(PortableRunner):
    """Apache Spark: `execution.spark.master`."""

    name = "spark"
    _required = (
        "master to spark://HOST:PORT, or to local[2] for a Spark inside the job server; or "
        "execution.spark.job_endpoint to HOST:PORT of a running job server"
    )

    def __init__(self, execution: ExecutionConfig) -> None:
        super().__init__(execution)
        if self.master and not self.master.startswith(("spark://", "local")):
            raise ConfigError(
                f"execution.spark.master: expected spark://HOST:PORT or local[N], got "
                f"{self.master!r}"
            )

    def _own_flags(self) -> list[str]:
        defaults = dict(_DEFAULTS)
        if cores := _EMBEDDED.fullmatch(self.master):
            # Otherwise one Python process works for all cores of a Spark in its job server.
            defaults[_WORKERS_FLAG] = cores[1]
        configured = flag_names(self._execution.beam_options)
        return [f"{name}={value}" for name, value in defaults.items() if name not in configured]

    def _check_answers(self) -> None:
        super()._check_answers()
        if self.master.startswith("spark://") and (why := connection_error(self.master)):
            raise RunnerError(f"no Spark master answers at {self.master}: {why}")
