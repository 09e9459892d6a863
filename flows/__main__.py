"""The command `bertloom`, where it can be: a Beam worker's installation has no command line.

Importing this module prepares the process for the command.
"""

from __future__ import annotations

import os
import signal
import sys


def _use_utf8() -> None:
    """Start Python again in UTF-8 mode if the locale has another encoding.

    File names, arguments, output and the processes that the command starts all depend on it.
    """
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - this command itself, no shell


def _open_closed_streams() -> None:
    """Open the null device for each standard stream that is closed, so that writes are dropped."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It takes the stream's number, the lowest free one. Child processes use it too.
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: PTH123, SIM115
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


_before = signal.getsignal(signal.SIGINT)
if _before is signal.default_int_handler:  # Ctrl-C while modules load ends the process quietly
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
try:
    _use_utf8()
    _open_closed_streams()
    from flows.cli.app import main
except ModuleNotFoundError as error:
    from flows.run.dependencies import install_hint

    how = install_hint(error.name or "")
    if how is None:
        raise
    sys.exit(f"error: {error.name} is not installed, which the command needs: {how}")
finally:
    signal.signal(signal.SIGINT, _before)

if __name__ == "__main__":
    main()
