"""What the counters and statistics of a corpus's artifacts say, as the page shows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from flows.formats import byte_text
from flows.report.result_tables import Row, Table
from flows.report.run_view import Fact
from pipelines.mediawiki.holes import UNKNOWN_TEMPLATE
from schemas.manifest import Manifest

PAPER_RANDOM_NEXT, PAPER_MASKED = 0.5, 0.15
"""Shares of the paper's section 3.1: of pairs whose B is random, of tokens that are predicted."""

_SHOWN_HOLES = 10
_BY_SOURCE = (
    ("documents-kept", "documents"),
    ("sentences", "sentences"),
    ("words", "words"),
    ("tokens", "tokens"),
    ("characters", "characters"),
    ("raw-bytes", "read"),
)


class Reason(NamedTuple):
    """Why things were dropped, and how many."""

    name: str
    number: int


@dataclass(frozen=True, kw_only=True)
class Balance:
    """Things that went in, and what became of them."""

    step: str
    things: str
    source: str
    """"" for all sources together."""

    went_in: int
    kept: int
    reasons: tuple[Reason, ...]

    @property
    def dropped(self) -> int:
        """In all."""
        return sum(reason.number for reason in self.reasons)

    @property
    def is_balanced(self) -> bool:
        """Whether in = kept + dropped, as every stage promises."""
        return self.went_in == self.kept + self.dropped


def balances(label: str, counters: Mapping[str, int]) -> list[Balance]:
    """Of all things that were counted in and out, all sources first, then each."""
    sources = sorted({name.partition("@")[2] for name in counters if "@" in name})
    return [balance for source in ("", *sources) for balance in _of_source(label, counters, source)]


def _of_source(label: str, counters: Mapping[str, int], source: str) -> Iterable[Balance]:
    own = {
        name.partition("@")[0]: value
        for name, value in counters.items()
        if name.partition("@")[2] == source
    }
    for name, went_in in own.items():
        things = name.removesuffix("-in")
        if things == name or f"{things}-kept" not in own:
            continue
        prefix = f"{things}-dropped-"
        found = [(k.removeprefix(prefix), n) for k, n in own.items() if k.startswith(prefix) and n]
        found.sort(key=lambda item: (-item[1], item[0]))
        yield Balance(
            step=label,
            things=things.replace("-", " "),
            source=source,
            went_in=went_in,
            kept=own[f"{things}-kept"],
            reasons=tuple(Reason(*item) for item in found),
        )


def source_table(manifests: Mapping[str, Manifest]) -> Table | None:
    """Documents, words and so on by source, summed below; None where nothing is counted so."""
    counters: dict[str, int] = {}
    for label in ("build-documents", "build-tokens"):
        if label in manifests:
            counters |= {
                name: value
                for name, value in manifests[label].counters.items()
                if label == "build-documents" or name.partition("@")[0] == "tokens"
            }
    sources = sorted({name.partition("@")[2] for name in counters if "@" in name})
    names = [
        (name, title)
        for name, title in _BY_SOURCE
        if any(f"{name}@{s}" in counters for s in sources)
    ]
    if not names:
        return None

    def cell(name: str, source: str) -> str:
        value = counters.get(f"{name}@{source}" if source else name)
        if value is None:
            return ""
        return byte_text(value) if name == "raw-bytes" else f"{value:,}"

    rows = [Row((source, *(cell(name, source) for name, _ in names))) for source in sources]
    total = Row(("all", *(cell(name, "") for name, _ in names)), is_ours=True)
    header = ("source", *(title for _, title in names))
    return Table("By source", header, (*rows, total))


def duplicate_facts(manifests: Mapping[str, Manifest]) -> list[Fact]:
    """How many duplicates were found, by what they have in common."""
    documents = manifests.get("build-documents")
    if documents is None:
        return []
    prefix = "duplicates-"
    return [
        Fact(f"{name.removeprefix(prefix).replace('-', ' ')} as another document", f"{count:,}")
        for name, count in documents.counters.items()
        if name.startswith(prefix) and "@" not in name
    ]


def hole_table(manifests: Mapping[str, Manifest]) -> Table | None:
    """Templates within sentences that no rule is known for, by source; None without any."""
    documents = manifests.get("build-documents")
    counters = {} if documents is None else documents.counters
    rows = []
    for name, holes in sorted(counters.items()):
        things, _, source = name.partition("@")
        if things != "templates-unknown" or not source:
            continue
        words = counters.get(f"words@{source}", 0)
        rate = f"{1e5 * holes / words:,.1f}" if words else ""
        named = [
            (-number, label.removeprefix(UNKNOWN_TEMPLATE).removesuffix(f"@{source}"))
            for label, number in counters.items()
            if label.startswith(UNKNOWN_TEMPLATE) and label.endswith(f"@{source}")
        ]
        most = ", ".join(f"{label} {-number:,}" for number, label in sorted(named)[:_SHOWN_HOLES])
        rows.append(Row((source, f"{holes:,}", rate, most)))
    if not rows:
        return None
    header = ("source", "templates", "in 100,000 words", "most often")
    notes = ("docs/languages.md says how a language's file is given rules for them.",)
    return Table("Unknown templates within sentences", header, tuple(rows), notes)


def vocabulary_facts(manifests: Mapping[str, Manifest]) -> list[Fact]:
    """Size of the vocabulary, and how much of the text it covers."""
    facts = []
    if (vocabulary := manifests.get("build-vocabulary")) is not None:
        counters = vocabulary.counters
        size = vocabulary.statistics.get("vocab_size", counters.get("vocabulary-size"))
        if isinstance(size, int):
            facts.append(Fact("Word pieces", f"{size:,}"))
        if (words := counters.get("distinct-words")) is not None:
            rare = counters.get("distinct-words-dropped-rare", 0)
            facts.append(Fact("Distinct words", f"{words:,}", f"{rare:,} too rare to learn from"))
    if (tokens := manifests.get("build-tokens")) is not None:
        total, unknown = (tokens.counters.get(name) for name in ("tokens", "unknown-tokens"))
        if total and unknown is not None:
            facts.append(Fact("Coverage", f"{100 * (1 - unknown / total):.4f} %", "of all tokens"))
            per_million = 1e6 * unknown / total
            note = f"{unknown:,} of {total:,} tokens"
            facts.append(Fact("Unknown rate", f"{per_million:,.1f} per million", note))
    return facts


def instance_table(manifests: Mapping[str, Manifest]) -> Table | None:
    """Pairs and masks of each length beside the paper's; None without instances."""
    found = [item for item in manifests.items() if item[1].stage == "build-instances"]
    if not found:
        return None
    rows = [_instance_row(label, manifest) for label, manifest in found]
    paper = Row(("the paper", "", "", f"{PAPER_RANDOM_NEXT:.3f}", f"{PAPER_MASKED:.3f}", ""))
    header = ("instances", "number", "held out", "random next", "masked", "mean fill")
    notes = (
        "random next: share of pairs whose second segment is of another document; masked: share of "
        "tokens that are to be predicted; mean fill: tokens over the longest length.",
    )
    return Table("Pairs and masks", header, (*rows, paper), notes)


def _instance_row(label: str, manifest: Manifest) -> Row:
    counters, statistics = manifest.counters, manifest.statistics

    def share(name: str) -> str:
        value = statistics.get(name)
        return f"{value:.3f}" if isinstance(value, (int, float)) else ""

    return Row(
        (
            label.partition(".")[2] or label,
            f"{counters.get('instances', 0):,}",
            f"{counters.get('held-out-instances', 0):,}",
            share("random_next_share"),
            share("masked_share"),
            share("mean_fill"),
        ),
        is_ours=True,
    )
