"""moto's S3 server, which handles one request at a time.

moto compares the tag of `If-Match` and writes in two steps, so that two of its threads can both
succeed. S3 lets one of them succeed.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterable
from typing import Any

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import run_simple


class _Serial:
    def __init__(self, app: Any) -> None:
        self._app = app
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        # Read before the lock, so that a slow client delays no other one.
        if size := environ.get("CONTENT_LENGTH"):
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(size)))
        with self._lock:
            response: Iterable[bytes] = self._app(environ, start_response)
            return response


def main(port: int) -> None:
    """Serve on a port of this machine until the process is killed."""
    app = _Serial(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", port, app, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main(int(sys.argv[1]))
