"""Worker processes of the local runner, if it has several workers.

Beam's in-process runner executes the graph of a job; its `DoFn`s hand work items to a pool of
processes. A pool starts on first use, serves one job at a time, and is reused by the next job.
Workers do not load Beam.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import logging.handlers
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver
from typing import Any

from pipelines.progress import RecordItem, current_record_item, set_record_item
from pipelines.runners.job_context import current_submission
from schemas.error_serialization import deserialize_error, serialize_error
from schemas.errors import RunnerError

_PRELOAD = (
    "pipelines.contamination.scan",
    "pipelines.near_duplicates.sketches",
    "pipelines.documents.build_shard",
    "pipelines.mediawiki.pages",
    "pipelines.books.clean_book",
    "pipelines.shard_job.items",
    "pandas",  # pyarrow loads it, if it is installed, to convert the first list
    "pipelines.vocabulary.word_counts",
    "pipelines.instances.build_shard",
    "pipelines.tokens.build_shard",
)
"""Modules that the fork server imports once for all workers."""

_MAX_SOCKET_FOLDER = 70
"""Maximum length of the path of the temporary folder, in which the fork server has its socket."""

_QUEUED_PER_WORKER = 2
_POLL_SECONDS = 0.5
_GRACE_SECONDS = 5.0


def start_fork_server() -> Any:
    """Return the context of worker processes; their modules are loaded in the background."""
    has_fork_server = "forkserver" in multiprocessing.get_all_start_methods()
    fits = len(tempfile.gettempdir()) <= _MAX_SOCKET_FOLDER
    if not (has_fork_server and fits):
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_PRELOAD))
    forkserver.ensure_running()
    return context


class WorkerPool:
    """Processes that call functions of a job."""

    def __init__(self, workers: int) -> None:
        """Start no process yet.

        Args:
            workers: Maximum number of processes.
        """
        self.workers = workers
        self.environment = dict(os.environ)
        context = start_fork_server()
        messages = context.Queue()
        self._listener = _Listener(messages, _LogHandler())
        self._listener.start()
        self._max_queued = workers * _QUEUED_PER_WORKER
        self._executor = ProcessPoolExecutor(
            workers,
            mp_context=context,
            initializer=_initialize_worker,
            initargs=(self.environment, messages, logging.getLogger().level),
        )

    def map_unordered(
        self, function: Callable[[Any], Any], arguments: Iterable[Any]
    ) -> Iterator[Any]:
        """Call a function in worker processes and yield the results as they come.

        Args:
            function: Importable function or object. A worker unpickles it once.
            arguments: One argument for each call.

        Raises:
            Exception: The error of a call.
            RunnerError: A worker process was killed, or the run was asked to stop.
        """
        pickled, waiting = pickle.dumps(function), iter(arguments)
        submission, running = current_submission("job"), set[Future[Any]]()
        self._listener.record_item = current_record_item()
        try:
            while True:
                for argument in waiting:
                    running.add(self._submit(pickled, argument))
                    if len(running) >= self._max_queued:
                        break
                if not running:
                    return
                done, running = wait(running, _POLL_SECONDS, FIRST_COMPLETED)
                submission.sleep(0)
                for future in done:
                    result, error = future.result()
                    if error is not None:
                        # Calls that started before may record the same error.
                        wait([future for future in running if not future.cancel()], _GRACE_SECONDS)
                        raise deserialize_error(error, name="worker process")
                    yield result
        except BrokenProcessPool as error:
            raise RunnerError(
                "a worker process was killed, perhaps for lack of memory. Use fewer workers and "
                "rerun: finished items are cached"
            ) from error

    def _submit(self, pickled: bytes, argument: Any) -> Future[Any]:
        with hidden_main_module():
            return self._executor.submit(_call, pickled, argument)

    def close(self) -> None:
        """End the processes. Calls in progress end by SystemExit."""
        processes = list((self._executor._processes or {}).values())
        for process in processes:  # `ProcessPoolExecutor.terminate_workers` from Python 3.14
            process.terminate()
        deadline = time.monotonic() + _GRACE_SECONDS
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
        self._executor.shutdown(cancel_futures=True)
        self._listener.stop()


class _Listener(logging.handlers.QueueListener):
    """Receives log records, and progress of items by number, from the workers."""

    record_item: RecordItem | None = None

    def handle(self, record: Any) -> None:
        if isinstance(record, logging.LogRecord):
            super().handle(record)
        elif self.record_item is not None:
            self.record_item(*record)


class _LogHandler(logging.Handler):
    """Passes a record of a worker to the loggers of this process."""

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger(record.name).handle(record)


_main_lock = threading.Lock()


@contextlib.contextmanager
def hidden_main_module() -> Iterator[None]:
    """Keep processes that start in the block from importing the user's script again.

    A script without `if __name__ == "__main__"` would start a second run in each worker. The lock
    keeps a thread from taking the placeholder of another thread for the script.
    """
    with _main_lock:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


# Pools of this process

_idle: list[WorkerPool] = []
_lock = threading.Lock()


@contextlib.contextmanager
def open_pool(workers: int) -> Iterator[WorkerPool]:
    """Take an idle pool, or start a new one; close it if the block raises.

    Pools that started with other environment variables, such as credentials, are closed.
    """
    with _lock:
        outdated = [pool for pool in _idle if pool.environment != os.environ]
        for pool in outdated:
            _idle.remove(pool)
        idle = next((pool for pool in _idle if pool.workers == workers), None)
        if idle is not None:
            _idle.remove(idle)
    for pool in outdated:
        pool.close()
    pool = idle or WorkerPool(workers)
    try:
        yield pool
    except BaseException:
        pool.close()
        raise
    with _lock:
        _idle.append(pool)


def map_items(
    function: Callable[[Any], Any], items: Iterable[Any], *, workers: int
) -> Iterator[Any]:
    """Call a function on each item, in worker processes if that is faster; yield the results.

    Args:
        function: See `WorkerPool.map_unordered`.
        items: Work items of a job, or other arguments.
        workers: Maximum number of worker processes. 1: call it in this process.
    """
    if workers == 1:
        yield from map(function, items)
        return
    listed = list(items)
    if len(listed) <= 1:
        yield from map(function, listed)
        return
    with open_pool(workers) as pool:
        # The heaviest item first: no long one is left for the end.
        heaviest_first = sorted(listed, key=lambda item: -getattr(item, "weight", 0))
        yield from pool.map_unordered(function, heaviest_first)


def close_pools() -> None:
    """End the worker processes that no job uses."""
    with _lock:
        pools = _idle.copy()
        _idle.clear()
    for pool in pools:
        pool.close()


# In a worker process


def _initialize_worker(environment: dict[str, str], messages: Any, level: int) -> None:
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends workers
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    logging.getLogger().addHandler(logging.handlers.QueueHandler(messages))
    logging.getLogger().setLevel(level)
    set_record_item(lambda number, progress: messages.put_nowait((number, progress)))
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None  # noqa: S101
    parent.join()
    os._exit(1)


@functools.lru_cache(maxsize=1)
def _load(pickled: bytes) -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = pickle.loads(pickled)  # noqa: S301 - from the parent
    return function


def _call(pickled: bytes, argument: Any) -> tuple[Any, dict[str, Any] | None]:
    """Return the result of a call, or its error: exceptions with attributes cannot be pickled."""
    try:
        return _load(pickled)(argument), None
    except SystemExit:  # an executor's worker would continue with the next call
        os._exit(1)
    except Exception as error:
        return None, serialize_error(error)
