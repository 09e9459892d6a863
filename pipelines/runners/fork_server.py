"""Workers as forks of one process that has a worker's imports done: a fork server.

    call 1 -> no server yet: becomes its parent, then a caller like the others
    call N -> connects -> the server forks -> the fork is the worker; the caller waits for its end

An engine starts a program for each worker and ends a worker by ending that program: so the caller
lives as long as its worker, ends with its exit code, and takes it along when it is killed. The
server belongs to one user, one Python, one state of the code and one environment: whatever
differs has a server of its own. It has no threads of Python's and no channel of gRPC's, and ends
after two minutes without a worker. Linux only; elsewhere, and wherever anything is not as it has to
be, a caller becomes the worker itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import hashlib
import json
import os
import selectors
import signal
import socket
import stat
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pipelines.runners.code import code_digest

SWITCH = "BERTLOOM_WORKER_FORK"
"""An environment variable: `0` for workers that are no forks."""

_IDLE_SECONDS = 120.0
_BEGIN_SECONDS = 180.0  # the server's imports, on a busy machine
_BEGUN = b"B"
_LENGTH = struct.Struct("!I")
_OF_A_CALL = frozenset({"_", "OLDPWD", "PWD", "SHLVL"})
"""Environment variables that differ from call to call and are read by no import."""

_OF_AN_EXECUTOR = "SPARK_"  # Spark's executors have folders of their own


class Worker(NamedTuple):
    """What this process is to do as a worker."""

    arguments: list[str]


def fork_worker(
    arguments: Sequence[str], load: Callable[[], None], *, idle_seconds: float = _IDLE_SECONDS
) -> Worker | int:
    """Have a worker forked and wait for its end.

    Args:
        arguments: the worker's.
        load: does a worker's imports; called once, in the server.
        idle_seconds: so long the server stays without a worker.

    Returns:
        In the caller the worker's exit code. In the fork, and where nothing can be forked, the
        worker to become.
    """
    here = Worker(list(arguments))
    try:
        place = _socket_path()
        if place is None:
            return here
        connection, is_server = _connect(place)
    except OSError:  # a disk that is full, a name that is too long: do without
        return here
    if is_server:
        return _serve(connection, place, load, idle_seconds=idle_seconds)
    with connection:
        code = _wait_for_end(connection, arguments)
    return here if code is None else code


def _wait_for_end(connection: socket.socket, arguments: Sequence[str]) -> int | None:
    """The exit code of a worker that the server has forked; None if it forks none."""
    call = {
        "arguments": list(arguments),
        "environment": dict(os.environ),
        "folder": str(Path.cwd()),
    }
    text = json.dumps(call).encode()
    try:
        socket.send_fds(connection, [_LENGTH.pack(len(text))], [0, 1, 2])
        connection.sendall(text)
        connection.settimeout(_BEGIN_SECONDS)
        if connection.recv(1) != _BEGUN:  # the server ended, or could not load
            return None
    except OSError:
        return None
    connection.settimeout(None)
    code = connection.recv(1)
    return code[0] if code else 1


# Where the server of this user, code, Python and environment listens


def _socket_path() -> Path | None:
    if sys.platform != "linux" or os.environ.get(SWITCH) == "0":
        return None
    folder = Path(tempfile.gettempdir()) / f"bertloom-workers-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not is_ours or stat.S_IMODE(found.st_mode) & 0o077:
        return None
    return folder / server_name(os.environ)


def server_name(environment: Mapping[str, str]) -> str:
    """What a server has in common with all its callers, as a name.

    Args:
        environment: the caller's environment variables, which imports may read.
    """
    installed = [_changed(place) for place in sys.path if place.endswith("-packages")]
    variables = {
        name: value
        for name, value in environment.items()
        if name not in _OF_A_CALL and not name.startswith(_OF_AN_EXECUTOR)
    }
    python = [sys.executable, sys.version, sys.path, installed]
    told = [code_digest(), python, sorted(variables.items()), _limits()]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def _limits() -> list[str]:
    """What the system lets this process see and use, which forks of a server share with it."""
    own = Path("/proc/self")
    spaces = [str((own / "ns" / name).readlink()) for name in ("mnt", "net", "pid", "user")]
    texts = {
        name: (own / name).read_text(encoding="utf-8", errors="replace")
        for name in ("status", "cgroup", "limits")
    }
    umask = next(line for line in texts["status"].splitlines() if "Umask" in line)
    cores = str(sorted(os.sched_getaffinity(0)))
    return [*spaces, texts["cgroup"], texts["limits"], umask, cores]


def _changed(place: str) -> int:
    """When something was installed in a folder last."""
    try:
        return Path(place).stat().st_mtime_ns
    except OSError:
        return 0


def _connect(place: Path) -> tuple[socket.socket, bool]:
    """A connection to the server, and False; in a server forked on the way where it listens, and
    True."""
    with _locked(place):
        connection = socket.socket(socket.AF_UNIX)
        with _short(place) as address:
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                connection.connect(address)
                return connection, False
            place.unlink(missing_ok=True)
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(address)
            listening.listen(socket.SOMAXCONN)
            connection.connect(address)
        _flush()
        is_server = os.fork() == 0
    (connection if is_server else listening).close()
    return (listening if is_server else connection), is_server


@contextlib.contextmanager
def _short(place: Path) -> Iterator[str]:
    """A name of a socket that fits the 108 bytes that one may have, wherever its folder is."""
    folder = os.open(place.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{place.name}"
    finally:
        os.close(folder)


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[None]:
    with (place.parent / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# The server


def _serve(
    listening: socket.socket, place: Path, load: Callable[[], None], *, idle_seconds: float
) -> Worker:
    """Fork workers until none is asked for; returns in the forks only."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):  # a pipe of the first caller's is not to stay open with the server
        os.dup2(nothing, standard)
    os.close(nothing)
    digest = code_digest()
    load()
    _flush()
    os.chdir("/")
    # Unchanged meanwhile, and nothing that a fork would break: else callers work on their own.
    if code_digest.__wrapped__() == digest and threading.active_count() == 1:
        gc.freeze()
        worker = _fork_until_idle(listening, idle_seconds)
        if worker is not None:
            return worker
    with _locked(place):
        place.unlink(missing_ok=True)
        listening.close()
    sys.exit()


def _flush() -> None:
    """Write out what each fork would else write once more."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def _fork_until_idle(listening: socket.socket, idle_seconds: float) -> Worker | None:
    """The worker, in a fork; None in the server at its end."""
    running: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as waiting:
        waiting.register(listening, selectors.EVENT_READ)
        while ready := waiting.select(None if running else idle_seconds):
            for key, _ in ready:
                if key.fileobj is not listening:
                    ended = key.fd
                    waiting.unregister(ended)
                    _tell_end(*running.pop(ended))
                    os.close(ended)
                    continue
                connection, _ = listening.accept()
                process = os.fork()
                if not process:
                    listening.close()
                    for handle, (_, other) in running.items():
                        os.close(handle)
                        other.close()
                    return _become(connection)
                handle = os.pidfd_open(process)
                running[handle] = (process, connection)
                waiting.register(handle, selectors.EVENT_READ)
    return None


def _tell_end(process: int, connection: socket.socket) -> None:
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    with connection, contextlib.suppress(OSError):  # the caller may be gone
        connection.send(bytes([code if code >= 0 else 128 - code]))


def _become(connection: socket.socket) -> Worker:
    """Take over a caller's place: its files, folder and environment."""
    head, handles, _, _ = socket.recv_fds(connection, _LENGTH.size, 3)
    if len(head) != _LENGTH.size or len(handles) != 3:
        os._exit(1)  # the caller is gone
    with connection.makefile("rb") as reader:
        call = json.loads(reader.read(*_LENGTH.unpack(head)))
    for standard, handle in enumerate(handles):
        os.dup2(handle, standard)
        os.close(handle)
    os.chdir(call["folder"])
    os.environ.clear()
    os.environ.update(call["environment"])
    threading.Thread(target=_end_with_caller, args=(connection,), daemon=True).start()
    connection.sendall(_BEGUN)
    return Worker(call["arguments"])


def _end_with_caller(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)
