"""`python guard.py PROGRAM ARGUMENTS`: runs a program that ends when this one's launcher does.

The launcher holds the other end of standard input. When that is closed, by it or by its death,
however it died, the program gets SIGTERM, and SIGKILL some seconds later.
"""

import signal
import subprocess
import sys
import threading
from types import FrameType

_GRACE_SECONDS = 2.0


def main() -> int:
    """Run the program to its end; its exit code."""
    # The command is a list from the launcher, without a shell.
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)  # noqa: S603

    def end(_number: int, _frame: FrameType | None) -> None:
        child.terminate()

    signal.signal(signal.SIGTERM, end)
    threading.Thread(target=_end_with_input, args=(child,), daemon=True).start()
    return child.wait()


def _end_with_input(child: subprocess.Popen[bytes]) -> None:
    sys.stdin.buffer.read()
    child.terminate()
    try:
        child.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()


if __name__ == "__main__":
    sys.exit(main())
