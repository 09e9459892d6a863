"""Holes: templates that no rule is known for and that stand within sentences, by language.

    python -m benchmarks.bench_holes [--data DIR] [--before CHECKOUT] [--dump LANGUAGE=FILE ...]

Prints for each wiki its holes in 100,000 words (characters where words have no spaces between
them), and the names that occur most. With `--before`, a checkout of an older version, the same is
counted with what its table of templates knew: a name that the files of languages list as having no
words is a hole in neither. Pages are those of namespace 0 that are no redirects.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.bench_wikitext import read_articles
from pipelines.mediawiki import scanner as wikitext_scanner
from pipelines.mediawiki.languages import language_file
from pipelines.mediawiki.rules import Rule
from pipelines.mediawiki.templates import rule_for
from pipelines.mediawiki.wikitext import Holes, clean_wikitext, is_redirect, markup_for

DUMPS = {
    "en": ("en", "wikipedia/en-*.bz2"),
    "it": ("it", "wikipedia/it-*.gz"),
    "ja": ("ja", "wikipedia/ja-*.bz2"),
    "wikibooks": ("en", "wikibooks/*.bz2"),
}
_SHOWN = 10

# Run where the older version lies; it is given names and says which of them it knew.
_ASK = """
import json, sys
try:
    from pipelines.mediawiki import templates as t
except ImportError:  # before its modules had rooms
    from pipelines import wikitext_templates as t
language, names = json.load(sys.stdin)
find = getattr(t, "renderer_for", None) or t.rule_for
json.dump([name for name in names if find(name, language) is not None], sys.stdout)
"""


class Counts(NamedTuple):
    """The holes of one wiki."""

    holes: int
    amount: int
    """Words, or characters of a language without spaces."""

    names: list[tuple[str, int]]

    @property
    def rate(self) -> float:
        return 1e5 * self.holes / max(1, self.amount)


def count(articles: list[str], language: str, find: Callable[[str, str], Rule | None]) -> Counts:
    """Clean all articles, with `find` in place of the rules."""
    markup, holes, amount = markup_for(language), Holes(), 0
    spaceless = language_file(language).spaceless
    kept = wikitext_scanner._rule
    wikitext_scanner._rule = find  # type: ignore[assignment]
    try:
        for text in articles:
            for paragraph in clean_wikitext(text, markup, holes):
                amount += len(paragraph) if spaceless else len(paragraph.split())
    finally:
        wikitext_scanner._rule = kept
    return Counts(holes.total, amount, holes.most_common()[:_SHOWN])


def count_before(articles: list[str], language: str, checkout: Path) -> Counts:
    """As `count`, with what the version in `checkout` knew."""
    asked: dict[str, Rule | None] = {}

    def remember(name: str, code: str) -> Rule | None:
        if name not in asked:
            asked[name] = rule_for(name, code)
        return asked[name]

    count(articles, language, remember)
    done = subprocess.run(
        [sys.executable, "-c", _ASK],
        input=json.dumps([language, list(asked)]),
        cwd=checkout,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    known = set(json.loads(done.stdout))

    def find(name: str, code: str) -> Rule | None:
        rule = remember(name, code)
        return rule if rule is None or rule.is_drop or name in known else None

    return count(articles, language, find)


def show(wiki: str, label: str, counts: Counts, unit: str) -> None:
    names = ", ".join(f"{name} {number}" for name, number in counts.names)
    print(f"{wiki:10}{label:8}{counts.amount:>12,} {unit:10}{counts.holes:>7,}{counts.rate:>9.1f}")
    print(f"{'':10}{names}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("BERTLOOM_DATA"))
    parser.add_argument("--before", type=Path, help="checkout of an older version")
    parser.add_argument("--dump", action="append", default=[], metavar="LANGUAGE=FILE")
    options = parser.parse_args()
    data = Path(options.data or Path(__file__).parents[2] / "shared" / "data")
    wikis = {name: (code, sorted(data.glob(pattern))) for name, (code, pattern) in DUMPS.items()}
    if options.dump:
        given = [dump.partition("=") for dump in options.dump]
        wikis = {Path(file).name: (code, [Path(file)]) for code, _, file in given}

    print(f"{'wiki':10}{'':8}{'text':>12} {'':10}{'holes':>7}{'/100,000':>9}")
    for wiki, (language, paths) in wikis.items():
        articles = [t for path in paths for t in read_articles(path) if not is_redirect(t)]
        unit = "characters" if language_file(language).spaceless else "words"
        if options.before:
            show(wiki, "before", count_before(articles, language, options.before), unit)
        show(wiki, "after", count(articles, language, wikitext_scanner._rule), unit)


if __name__ == "__main__":
    main()
