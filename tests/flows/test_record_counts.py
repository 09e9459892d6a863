"""Record counts, read from counters."""

from __future__ import annotations

from flows.record_counts import record_counts


def test_record_counts_list_reasons_most_frequent_first() -> None:
    counters = {
        "pages-in": 1000,
        "pages-kept": 990,
        "pages-dropped-redirect": 9,
        "pages-dropped-empty": 1,
        "pages-dropped-never": 0,
        "pages-in@wiki": 5,
        "pages-kept@wiki": 5,
        "sentences": 4,
    }
    of_all, of_wiki = record_counts(counters)
    assert of_all.row == ("pages", "1,000", "990", "10", "redirect 9, empty 1")
    assert (of_wiki.source, of_wiki.row) == ("wiki", ("pages", "5", "5", "0", ""))
