"""Jobs of engines: their names, why one failed, and processes that end with us. No Java here."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pipelines.runners import child_guard
from pipelines.runners.beam_worker import parser
from pipelines.runners.job_context import (
    Submission,
    current_submission,
    job_name,
    root_cause,
    submission_scope,
)
from schemas.errors import RunnerError

FLINK = """\
org.apache.flink.runtime.JobException: Recovery is suppressed by NoRestartBackoffTimeStrategy
\tat org.apache.flink.runtime.executiongraph.failover.ExecutionFailureHandler.handleFailure(\
ExecutionFailureHandler.java:180)
\t... 4 more
Caused by: java.lang.RuntimeException: java.util.concurrent.ExecutionException: \
java.lang.IllegalStateException: Process died with exit code 1
\tat org.apache.beam.vendor.guava.Throwables.propagate(Throwables.java:231)
"""
REFUSED = """\
java.lang.IllegalArgumentException: bad options [
  {"one": 1}
\tat a.B.c(B.java:1)
]
"""
PYTHON = """\
java.util.concurrent.ExecutionException: java.lang.RuntimeException: Error received from SDK \
harness for instruction 4: Traceback (most recent call last):
  File "worker.py", line 1, in process
    raise
ValueError: no such thing [while running 'DoWork']

\tat java.base/java.util.concurrent.CompletableFuture.reportGet(CompletableFuture.java:396)
Caused by: java.lang.RuntimeException: Error received from SDK harness for instruction 4: \
Traceback (most recent call last):
  File "worker.py", line 1, in process
    raise
ValueError: no such thing [while running 'DoWork']
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FLINK, "Process died with exit code 1 (IllegalStateException)"),
        (REFUSED, "bad options [ (IllegalArgumentException)"),
        (PYTHON, "ValueError: no such thing [while running 'DoWork']"),
        ("java.lang.NullPointerException\n\tat a.B.c(B.java:1)\n]", "NullPointerException"),
        ("]", ""),
        ("None", ""),
        ("", ""),
    ],
)
def test_the_root_cause_is_one_sentence(text: str, said: str) -> None:
    assert root_cause(text) == said


def test_an_error_of_ours_is_said_as_it_was_raised() -> None:
    text = f"{PYTHON}schemas.errors.InputError: a.bz2: cut at byte 7\n\n\tat a.B.c(B.java:1)"
    assert root_cause(text) == "InputError: a.bz2: cut at byte 7"


def test_a_job_bears_the_name_of_its_step() -> None:
    key = "0123456789abcdef" * 4
    name = job_name("english", "build-documents", key=key)
    assert name == "bertloom-english-build-documents-0123456789abcdef"
    long = job_name("a" * 60, "build-instances.length-128", key=key)
    assert len(long) == 63
    assert long.endswith("-0123456789abcdef")
    assert current_submission("build-tokens").name == "bertloom-build-tokens"
    with submission_scope(Submission(name)):
        assert current_submission("build-tokens").name == name


def test_waiting_ends_when_the_run_does() -> None:
    submission = Submission("one", stop_event=threading.Event())
    submission.sleep(0.001)
    submission.stop_event.set()
    with pytest.raises(RunnerError, match="one: cancelled because the run was stopped"):
        submission.sleep(600)


def test_the_boot_program_takes_the_arguments_of_beams_own() -> None:
    given = parser().parse_args(
        ["--id=2-1", "--provision_endpoint=h:1", "--logging_endpoint=h:2",
         "--artifact_endpoint=h:3", "--control_endpoint=h:4", "--semi_persist_dir=/tmp"]
    )  # fmt: skip
    assert (given.id, given.provision_endpoint, given.control_endpoint) == ("2-1", "h:1", "h:4")


def _is_there(process: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        # An orphan that has ended is a zombie until init reaps it.
        os.kill(process, 0)
        return b"Z" not in Path(f"/proc/{process}/stat").read_bytes().split(b")")[1].split()[0]
    return False


LAUNCHER = """
import subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-I", sys.argv[1], sys.executable, "-c",
     "import os, time; print(os.getpid(), flush=True); time.sleep(600)"],
    stdin=subprocess.PIPE, start_new_session=True,
)
child.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_launcher_started_ends_with_it_however_it_ends(number: int) -> None:
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(child_guard.__file__)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert launcher.stdout is not None
    process = int(launcher.stdout.readline())
    assert _is_there(process)
    launcher.send_signal(number)
    launcher.wait()
    for _ in range(200):
        if not _is_there(process):
            return
        time.sleep(0.05)
    pytest.fail(f"process {process} is there after its launcher ended")
