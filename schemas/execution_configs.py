"""Configurations of runners and their machines. None of them changes an output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import field_validator

from schemas.base_configs import Config, not_in_key


class WorkerCodeConfig(Config):
    """Installation of bertloom's code on the Python workers of an engine."""

    environment: Literal["process", "external", "docker"] = not_in_key("process")
    """Beam SDK environment. `process`: each machine runs `worker_command`. `external`: a worker
    pool next to the engine's processes. `docker`: a container image."""

    worker_command: str | None = not_in_key(None)
    """`process`: path of the boot program on the engine's machines. None: `bertloom-beam-worker` of
    this Python, for a local engine or a shared installation."""

    worker_pool: str | None = not_in_key(None)
    """`external`: HOST:PORT of the pool, as seen by the engine's processes."""

    image: str | None = not_in_key(None)
    """`docker`: container image."""

    def _problems(self) -> Iterator[str]:
        fields = {"process": "worker_command", "external": "worker_pool", "docker": "image"}
        for environment, field in fields.items():
            is_set, is_used = getattr(self, field) is not None, environment == self.environment
            if is_set and not is_used:
                yield f"{field}: expected environment {environment}, got {self.environment}"
            if is_used and not is_set and environment != "process":
                yield f"{field}: required for environment {environment}"


class JobServerConfig(WorkerCodeConfig):
    """Engine behind a Beam job server."""

    job_endpoint: str | None = not_in_key(None)
    """HOST:PORT of a running job server. None: start one and stop it with this process."""

    job_server: str | None = not_in_key(None)
    """Beam's job server: a jar, or the folder that has it. None: `$BERTLOOM_JOB_SERVERS`."""

    download: bool = not_in_key(False)
    """Download Beam's job server from Maven Central if it is missing."""

    parallelism: int | None = not_in_key(None, ge=1, le=100_000)
    """Maximum number of work items at a time. None: number of free slots or of items."""

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        if self.job_endpoint and (self.job_server or self.download):
            yield "job_endpoint: not supported with job_server or download"


class FlinkConfig(JobServerConfig):
    """Apache Flink, 1.19 or newer."""

    master: str | None = not_in_key(None)
    """HOST:PORT of the cluster's REST interface, or `[local]` for Flink in the job server."""

    version: str = not_in_key("1.19", pattern=r"^\d+\.\d+$")
    """Flink version of the job server to download."""


class SparkConfig(JobServerConfig):
    """Apache Spark 3."""

    master: str | None = not_in_key(None)
    """`spark://HOST:PORT` of a standalone master, or `local[N]` for Spark in the job server."""


class PortableConfig(WorkerCodeConfig):
    """Any portable job service of Beam."""

    job_endpoint: str | None = not_in_key(None)
    """HOST:PORT of the job service."""


class DataflowConfig(Config):
    """Google Cloud Dataflow."""

    project: str | None = not_in_key(None)
    """Id of the Google Cloud project."""

    region: str | None = not_in_key(None)
    """Region of the jobs, such as `europe-west1`. Use the region of the buckets."""

    temp_location: str | None = not_in_key(None, pattern="^gs://.+")
    """Bucket folder for temporary files."""

    staging_location: str | None = not_in_key(None, pattern="^gs://.+")
    """Bucket folder for packages and the graph. None: `temp_location`."""

    service_account_email: str | None = not_in_key(None)
    """Email of the workers' service account."""

    machine_type: str | None = not_in_key(None)
    """Machine type of the workers, such as `n2-standard-4`. None: Dataflow's default."""

    disk_size_gb: int | None = not_in_key(None, ge=10, le=65_536)
    """Disk size of a worker."""

    max_num_workers: int | None = not_in_key(None, ge=1, le=4_000)
    """Maximum number of worker machines."""

    number_of_worker_harness_threads: int | None = not_in_key(None, ge=1, le=64)
    """Number of threads per worker process. None: 1, as each core has a process. More threads need
    more memory."""

    network: str | None = not_in_key(None)
    """VPC network of the workers. None: the project's default."""

    subnetwork: str | None = not_in_key(None)
    """Subnetwork such as `regions/REGION/subnetworks/NAME`. None: the default of the region."""

    use_public_ips: bool | None = not_in_key(None)
    """Public addresses for workers. If false, use an image with bertloom or a NAT, as workers
    install packages from the index."""

    flexrs_goal: Literal["cost", "speed"] | None = not_in_key(None)
    """Flexible resource scheduling. `cost`: start within six hours, partly on spot machines."""

    image: str | None = not_in_key(None)
    """Container image with bertloom."""

    packages: tuple[str, ...] = not_in_key(())
    """Wheels to install on workers, including bertloom's. Without packages and image, a wheel is
    built for the job, as by `bertloom worker-package`."""

    endpoint: str | None = not_in_key(None)
    """URL of Dataflow's API. None: Google's."""


class ExecutionConfig(Config):
    """Runner and resources of a run."""

    runner: str = not_in_key("local")
    """Name in `pipelines.runners.registry.RUNNERS`."""

    workers: int = not_in_key(1, ge=1, le=4096)
    """Number of worker processes on this machine (local runners)."""

    beam_options: tuple[str, ...] = not_in_key(())
    """Further Beam options as on its command line, such as `--project=P` (remote runners)."""

    verify_cached: Literal["size", "full"] = not_in_key("size")
    """Check of a cached artifact before its use: file sizes only, or all digests."""

    max_parallel_steps: int | None = not_in_key(None, ge=1, le=256)
    """Maximum number of independent steps at a time. None: one if steps share this machine, eight
    on a remote runner."""

    shared_filesystem: bool = not_in_key(False)
    """True if the paths of the store and the input are the same on every machine of the engine."""

    flink: FlinkConfig = not_in_key(FlinkConfig())
    """Options of `runner: flink`."""

    spark: SparkConfig = not_in_key(SparkConfig())
    """Options of `runner: spark`."""

    portable: PortableConfig = not_in_key(PortableConfig())
    """Options of `runner: portable`."""

    dataflow: DataflowConfig = not_in_key(DataflowConfig())
    """Options of `runner: dataflow`."""

    @field_validator("beam_options", mode="after")
    @classmethod
    def _join_values(cls, options: tuple[str, ...]) -> tuple[str, ...]:
        # Beam repeats unknown options in its messages. Secrets are only recognized there if a
        # value and the name of its option are one text.
        joined: list[str] = []
        for text in options:
            if joined and not text.startswith("--") and "=" not in joined[-1]:
                joined[-1] += f"={text}"
            else:
                joined.append(text)
        return tuple(joined)
