"""Cleaning wikitext: `clean_wikitext` next to mwparserfromhell's `strip_code`, on one core.

    python -m benchmarks.bench_wikitext [--data DIR] [--repeat 5] [--megabytes 2]

Both read the same articles in turns; MB are bytes of UTF-8 wikitext. `strip_code` cleans Hugging
Face's and TensorFlow's Wikipedia sets; it does less: lists, headings and closing sections remain.
Prints medians of CPU seconds.
"""

from __future__ import annotations

import functools
import random
import statistics
from collections.abc import Callable
from pathlib import Path

import mwparserfromhell

from benchmarks.dump_parts import read_articles
from benchmarks.timing import add_data_option, cpu_seconds, parser_for, ratio, take_turns
from pipelines.mediawiki.wikitext import clean_wikitext, wiki_settings

DUMPS = {"en": "en-*.bz2", "it": "it-*.gz", "ja": "ja-*.bz2"}


def sample(articles: list[str], megabytes: float) -> list[str]:
    """Return shuffled articles with a total size of `megabytes`."""
    chosen, size = [], 0.0
    for text in random.Random(0).sample(articles, len(articles)):
        chosen.append(text)
        size += len(text.encode()) / 1e6
        if size >= megabytes:
            break
    return chosen


def seconds(clean: Callable[[str], object], articles: list[str]) -> float:
    return cpu_seconds(lambda: [clean(text) for text in articles])


def strip_code(text: str) -> str:
    return str(mwparserfromhell.parse(text).strip_code())


def main() -> None:
    parser = parser_for(__doc__, repeat=5)
    add_data_option(parser)
    parser.add_argument(
        "--megabytes", type=float, default=2.0, help="wikitext of each language that both clean"
    )
    options = parser.parse_args()
    data: Path = options.data
    if not (data / "wikipedia").is_dir():
        parser.error(f"{data} holds no folder wikipedia: name the real data with --data DIR")

    print(f"{'wiki':6}{'articles':>9}{'MB':>7}{'bertloom MB/s':>15}{'mwparser MB/s':>15}  ratio")
    for language, pattern in DUMPS.items():
        paths = sorted((data / "wikipedia").glob(pattern))
        articles = sample(
            [text for path in paths for _, text in read_articles(path)], options.megabytes
        )
        size = sum(len(text.encode()) for text in articles) / 1e6
        markup = wiki_settings(language)
        clean = functools.partial(clean_wikitext, markup=markup)
        sides = {
            "ours": functools.partial(seconds, clean, articles),
            "theirs": functools.partial(seconds, strip_code, articles),
        }
        ours, theirs = take_turns(sides, repeat=options.repeat, warmup=0).values()
        print(
            f"{language:6}{len(articles):>9}{size:>7.2f}{size / statistics.median(ours):>15.1f}"
            f"{size / statistics.median(theirs):>15.2f}  {ratio(ours, theirs)}"
        )


if __name__ == "__main__":
    main()
