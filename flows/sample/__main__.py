"""`python -m flows.sample FOLDER`: write the sample corpus, with every option of `write_sample`."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Sequence

from flows.sample import write_sample


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a sample corpus as the command line says; 2 if an option is out of its range."""
    parser = argparse.ArgumentParser(prog="python -m flows.sample", description=__doc__)
    parser.add_argument("folder", help="where to write it: a path or any fsspec URL")
    for name, option in list(inspect.signature(write_sample).parameters.items())[1:]:
        kind = float if option.default is None else type(option.default)
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=kind, default=option.default, help="default %(default)s")
    options = vars(parser.parse_args(arguments))
    try:
        files = write_sample(options.pop("folder"), **options)
    except ValueError as error:
        parser.error(str(error))
    sys.stdout.write("".join(f"{url}\n" for url in (*files[:4], files.tasks)))
    sys.stdout.write(f"{files.page_count} pages, {files.xml_bytes / 1e6:.1f} MB of XML\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
