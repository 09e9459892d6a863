"""Count the templates within sentences that write nothing, by wiki.

    python -m benchmarks.bench_holes [--data DIR] [--dump LANGUAGE=FILE ...]

For each wiki, prints the characters and words kept, the holes and the dropped templates
(`pipelines.mediawiki.cleaning`) per 100,000 words, their most frequent names, and the text that is
dropped by reason, in sentences and characters. In a language without spaces, two characters are a
word. Pages are those of namespace 0 that are no redirects. To compare with another version, run the
command in its checkout as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from benchmarks.dump_parts import read_articles
from benchmarks.timing import add_data_option, parser_for
from pipelines.counters import DROPPED_TEMPLATE, UNKNOWN_TEMPLATE
from pipelines.mediawiki.dropped_text import DroppedText
from pipelines.mediawiki.wikitext import (
    UnknownTemplates,
    clean_wikitext,
    is_redirect,
    wiki_settings,
)

DUMPS = {
    "en": ("en", "wikipedia/en-*.bz2"),
    "it": ("it", "wikipedia/it-*.gz"),
    "ja": ("ja", "wikipedia/ja-*.bz2"),
    "wikibooks": ("en", "wikibooks/*.bz2"),
}
_SHOWN = 10
_TIMESTAMP = "2024-01-01T00:00:00Z"  # for templates that write the date of the revision


class Counts(NamedTuple):
    """Counts of one wiki."""

    characters: int
    words: int
    holes: UnknownTemplates
    dropped: DroppedText

    def rate(self, number: int) -> float:
        """Return a number per 100,000 words."""
        return 1e5 * number / max(1, self.words)


def count(paths: list[Path], language: str) -> Counts:
    """Clean all articles of the dumps and count what is left."""
    markup, holes, dropped = wiki_settings(language), UnknownTemplates(), DroppedText()
    characters = words = 0
    for path in paths:
        for title, text in read_articles(path):
            if is_redirect(text):
                continue
            paragraphs = clean_wikitext(
                text, markup, holes, title=title, timestamp=_TIMESTAMP, dropped=dropped
            )
            for paragraph in paragraphs:
                characters += len(paragraph)
                words += len(paragraph.split())
    words = characters // 2 if markup.spaceless else words
    return Counts(characters, words, holes, dropped)


def show(wiki: str, counts: Counts) -> None:
    holes = counts.holes
    print(
        f"{wiki:12}{counts.characters:>12,}{counts.words:>12,}{holes.total:>8,}"
        f"{counts.rate(holes.total):>9.1f}{holes.templates_dropped:>9,}"
        f"{counts.rate(holes.templates_dropped):>9.1f}"
    )
    for label, prefix in (("holes", UNKNOWN_TEMPLATE), ("dropped", DROPPED_TEMPLATE)):
        names = (f"{name} {number}" for name, number in holes.most_common(prefix)[:_SHOWN])
        print(f"  {label}: {', '.join(names)}")
    for counter, number in sorted(counts.dropped.counters()):
        is_share = counter.startswith("characters")
        share = f" ({number / (number + counts.characters):.1%})" if is_share else ""
        print(f"  {counter} {number:,}{share}")


def main() -> None:
    parser = parser_for(__doc__)
    add_data_option(parser)
    parser.add_argument("--dump", action="append", default=[], metavar="LANGUAGE=FILE")
    options = parser.parse_args()
    wikis = {
        name: (code, sorted(options.data.glob(pattern))) for name, (code, pattern) in DUMPS.items()
    }
    if options.dump:
        dumps = [dump.partition("=") for dump in options.dump]
        wikis = {Path(file).name: (code, [Path(file)]) for code, _, file in dumps}

    print(
        f"{'wiki':12}{'characters':>12}{'words':>12}{'holes':>8}{'/100,000':>9}"
        f"{'dropped':>9}{'/100,000':>9}"
    )
    for wiki, (language, paths) in wikis.items():
        show(wiki, count(paths, language))


if __name__ == "__main__":
    main()
