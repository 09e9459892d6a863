"""The command `bertloom`, where it can be: a Beam worker's installation has no command line."""

from __future__ import annotations

import sys

from flows.engine.extras import remedy


def main() -> None:
    """Run the command; see `flows.cli.app.main`."""
    try:
        from flows.cli.app import main as command
    except ModuleNotFoundError as error:
        how = remedy(error.name or "")
        if how is None:
            raise
        sys.exit(f"error: {error.name} is not installed, which the command needs: {how}")
    command()


if __name__ == "__main__":
    main()
