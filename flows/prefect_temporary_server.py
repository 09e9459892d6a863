"""Start Prefect's temporary server in a separate process, and stop it after the run.

`flows.prefect_settings` runs this file as a script. It imports nothing from bertloom.
"""

from __future__ import annotations

import sys

from prefect.server.api.server import SubprocessASGIServer

if __name__ == "__main__":
    with SubprocessASGIServer() as server:
        sys.stdout.write(f"{server.api_url}\n")
        sys.stdout.flush()
        sys.stdin.read()  # until the run ends, however it ends
