"""The command `bertloom`, where it can be: a Beam worker's installation has no command line."""

from __future__ import annotations

import sys

from flows.engine.extras import remedy

try:
    from flows.cli.app import main
except ModuleNotFoundError as error:
    how = remedy(error.name or "")
    if how is None:
        raise
    sys.exit(f"error: {error.name} is not installed, which the command needs: {how}")

if __name__ == "__main__":
    main()
