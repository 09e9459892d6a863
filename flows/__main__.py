"""The command `bertloom`, where it can be: a Beam worker's installation has no command line.

Importing this module prepares the process for the command.
"""

from __future__ import annotations

import os
import signal
import sys

_before = signal.getsignal(signal.SIGINT)
if _before is signal.default_int_handler:  # Ctrl-C while modules load ends the process quietly
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
try:
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
