"""`python -m flows.sample FOLDER`: write the sample corpus."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from flows.sample import write_sample


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a sample corpus as the command line says; 2 if an option is out of its range."""
    parser = argparse.ArgumentParser(prog="python -m flows.sample", description=__doc__)
    parser.add_argument("folder", help="where to write it: a path or any fsspec URL")
    parser.add_argument("--articles", type=int, default=400, help="default %(default)s")
    parser.add_argument("--tales", type=int, default=12, help="default %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default %(default)s")
    parser.add_argument("--date", default="20260101", help="default %(default)s")
    parser.add_argument(
        "--size-mb", type=float, help="MB of XML to write, in place of a number of articles"
    )
    parser.add_argument("--pages-per-stream", type=int, default=100, help="default %(default)s")
    parser.add_argument("--compresslevel", type=int, default=9, help="of bz2; default %(default)s")
    options = vars(parser.parse_args(arguments))
    try:
        files = write_sample(options.pop("folder"), **options)
    except ValueError as error:
        parser.error(str(error))
    sys.stdout.write(
        f"{files.pages}\n{files.page_index}\n{files.checksums}\n{files.books}\n{files.tasks}\n"
        f"{files.page_count} pages, {files.xml_bytes / 1e6:.1f} MB of XML\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
