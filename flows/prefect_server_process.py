"""Process of an ephemeral Prefect server, which ends with the process that started it.

`flows.prefect_server` runs this file as a script. It imports nothing from bertloom.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import uvicorn
from prefect.server.api.server import create_app

_POLL_SECONDS = 1.0


def end_with_launcher(launcher: int) -> None:
    """End this process as soon as its parent is no longer the launcher, which was killed then."""
    while os.getppid() == launcher:
        time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    port, launcher = map(int, sys.argv[1:])
    threading.Thread(target=end_with_launcher, args=[launcher], daemon=True).start()
    app = create_app(ephemeral=True, final=True)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", lifespan="on")
