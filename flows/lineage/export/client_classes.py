"""OpenLineage's data classes without the transports that its client loads beside them.

`import openlineage.client` loads two HTTP libraries, an asynchronous transport and the facets of an
older interface: 0.27 s of processor time. The classes and their serialisation take 0.05. A run that
finds everything in the store writes its events too, and is to take a second or two in all.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_PACKAGE = "openlineage.client"
_LOCK = threading.Lock()


@contextmanager
def without_transports() -> Iterator[None]:
    """Within it, `openlineage.client`'s modules are imported without running its `__init__`.

    Afterwards the import system is as it was: whoever imports the client later gets all of it.
    """
    with _LOCK:
        spec = importlib.util.find_spec(_PACKAGE) if _PACKAGE not in sys.modules else None
        if spec is None:  # it is loaded already, or not installed: then the import says so
            yield
            return
        parent = sys.modules["openlineage"]
        sys.modules[_PACKAGE] = importlib.util.module_from_spec(spec)
        try:
            yield
        finally:
            for name in [name for name in sys.modules if f"{name}.".startswith(f"{_PACKAGE}.")]:
                del sys.modules[name]
            if hasattr(parent, "client"):
                del parent.client
