"""Run a pipeline on a runner to its end."""

from __future__ import annotations

from collections.abc import Callable

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.runner import PipelineState

from pipelines.runners.dataflow import run_on_dataflow, wait_for_earlier_on_dataflow
from pipelines.runners.engine_jobs import run_on_engine, wait_for_earlier
from pipelines.runners.job_context import current_submission, root_cause, without_tracebacks
from pipelines.runners.runner_spec import DATAFLOW_RUNNER, Launch
from schemas.errors import BertloomError, RunnerError


def run_pipeline(
    job: str, build: Callable[[beam.Pipeline], None], *, launch: Launch, pieces: int = 1
) -> None:
    """Build a pipeline and run it to its end.

    Args:
        job: what people call it.
        build: adds it to a pipeline.
        launch: where to run it.
        pieces: how many it works on; no engine is asked for more slots.

    Raises:
        BertloomError: as a worker raised it, where it ran in this process.
        RunnerError: anything else that went wrong on the runner.
    """
    submission = current_submission(job)
    if launch.engine is not None:
        run_on_engine(
            job, build, launch=launch, engine=launch.engine, submission=submission, pieces=pieces
        )
        return
    if launch.runner == DATAFLOW_RUNNER:
        run_on_dataflow(job, build, launch=launch, submission=submission)
        return
    # `__main__` is a thin launcher: workers import what they need, nothing is pickled from it.
    # Beam reads sys.argv where it is given no flags; ours are not for Beam.
    options = PipelineOptions(list(launch.flags))
    # By name, `beam.Pipeline` would try to download Prism first.
    pipeline = beam.Pipeline(runner=fn_runner.FnApiRunner(), options=options)
    build(pipeline)
    try:
        with without_tracebacks():
            state = pipeline.run().wait_until_finish()
    except Exception as error:
        raise _explain(job, error) from error
    if state not in (PipelineState.DONE, None):
        raise RunnerError(
            f"{job}: the runner ended in state {state}, expected {PipelineState.DONE}; see its log"
        )


def _explain(job: str, error: BaseException) -> BertloomError:
    """The bertloom error a worker raised, dug out of the runner's own, or a `RunnerError`."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, BertloomError):
            return seen
        seen = seen.__cause__ or seen.__context__
    # Worker processes send their errors as text: the last line is what the worker raised.
    return RunnerError(f"{job}: {root_cause(str(error)) or repr(error)}")


def wait_for_earlier_job(job: str, launch: Launch) -> None:
    """Wait for the end of a job that an earlier run submitted for the same step, if there is one.

    The items that it finished are restored by this run's job.
    """
    if launch.runner == DATAFLOW_RUNNER:
        wait_for_earlier_on_dataflow(launch, current_submission(job))
    elif launch.engine is not None:
        wait_for_earlier(launch.engine, current_submission(job))
