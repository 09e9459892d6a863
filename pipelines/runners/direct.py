"""Runner of this machine, by Beam's `FnApiRunner` in this process."""

from __future__ import annotations

from pipelines.runners.job_context import bertloom_errors, suppress_worker_tracebacks
from pipelines.runners.runner import BuildPipeline, Runner
from schemas.execution_configs import ExecutionConfig


class LocalRunner(Runner):
    """This machine: in this process with one worker, in worker processes with more.

    With one worker, jobs run without Beam (`pipelines.shard_job.items`).
    """

    name = "local"
    is_local = True

    def __init__(self, execution: ExecutionConfig) -> None:
        self.flags = execution.beam_options
        self.workers = execution.workers

    def run(self, job: str, build: BuildPipeline, *, num_elements: int = 1) -> None:
        import apache_beam as beam  # lazy: `plan` does not run jobs
        from apache_beam.options.pipeline_options import PipelineOptions
        from apache_beam.runners.portability.fn_api_runner import fn_runner

        del num_elements
        # By name, `beam.Pipeline` would try to download Prism first.
        options = PipelineOptions(list(self.flags))
        pipeline = beam.Pipeline(runner=fn_runner.FnApiRunner(), options=options)
        build(pipeline)
        with bertloom_errors(job), suppress_worker_tracebacks():
            pipeline.run().wait_until_finish()
