"""The Beam options of a job on Google Cloud Dataflow. Nothing here looks at a disk or a network."""

from __future__ import annotations

from pipelines.runners.engines import flags_once
from schemas.errors import ConfigError
from schemas.execution_configs import DataflowConfig, ExecutionConfig

DATAFLOW_RUNNER = "DataflowRunner"

_NEEDED = ("--project", "--region", "--temp_location")
_BRING_CODE = frozenset(
    {"--sdk_container_image", "--extra_package", "--extra_packages", "--setup_file"}
)
_GOALS = {"cost": "COST_OPTIMIZED", "speed": "SPEED_OPTIMIZED"}
_DEFAULTS = {
    # Each process of a worker has a core: more threads take memory, and wait for one another.
    "--number_of_worker_harness_threads": "--number_of_worker_harness_threads=1",
    # Else Beam sends what lies in `__main__`, which is a launcher here, and a notebook elsewhere.
    "--save_main_session": "--no_save_main_session",
}


def dataflow_flags(execution: ExecutionConfig) -> tuple[tuple[str, ...], bool]:
    """The options, but for the name, and whether they bring workers our code.

    Raises:
        ConfigError: one that Dataflow needs is missing, or one is said twice.
    """
    flags = flags_once(_own_flags(execution.dataflow), execution.beam_options)
    named = {flag.split("=", 1)[0] for flag in flags}
    missing = [name for name in _NEEDED if name not in named]
    if missing:
        fields = ", ".join(f"execution.dataflow.{name.removeprefix('--')}" for name in missing)
        raise ConfigError(
            f"the dataflow runner needs {', '.join(missing)}: set {fields}; "
            f"found {', '.join(sorted(named)) or 'none'}"
        )
    defaults = [flag for name, flag in _DEFAULTS.items() if not named & {name, flag}]
    return (*flags, *defaults), bool(named & _BRING_CODE)


def _own_flags(config: DataflowConfig) -> list[str]:
    given = {
        "--project": config.project,
        "--region": config.region,
        "--temp_location": config.temp_location,
        "--staging_location": config.staging_location,
        "--service_account_email": config.service_account_email,
        "--worker_machine_type": config.machine_type,
        "--disk_size_gb": config.disk_size_gb,
        "--max_num_workers": config.max_num_workers,
        "--number_of_worker_harness_threads": config.number_of_worker_harness_threads,
        "--network": config.network,
        "--subnetwork": config.subnetwork,
        "--flexrs_goal": config.flexrs_goal and _GOALS[config.flexrs_goal],
        "--sdk_container_image": config.image,
        "--dataflow_endpoint": config.endpoint,
    }
    own = [f"{name}={value}" for name, value in given.items() if value is not None]
    if config.use_public_ips is not None:
        own.append("--use_public_ips" if config.use_public_ips else "--no_use_public_ips")
    return own + [f"--extra_package={package}" for package in config.packages]
