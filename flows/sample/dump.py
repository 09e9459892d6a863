"""The sample wiki in the format of the official dumps: multistream bz2, its index, sha1 sums."""

from __future__ import annotations

import bz2
import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from types import SimpleNamespace
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import numpy as np

from flows.sample.articles import write_article
from flows.sample.draws import Draws, fill
from flows.sample.wording import pieces
from flows.sample.world import ARTICLES_PER_REGION, Entity, World
from pipelines.io.file_systems import file_system


class Page(NamedTuple):
    """A page before it gets its numbers."""

    namespace: int
    title: str
    text: str
    redirect: str = ""  # the title it leads to
    sort: str = "article"  # or `duplicate`, `malformed`, or a sort of `texts/pages.txt`


def write_pages(world: World) -> Iterator[Page]:
    """All pages of a world, region after region; the last region may be cut short."""
    for region, entities in world.regions():
        draws = Draws(world.seed, "pages", region.index)
        others = _others(region, entities, draws)
        # Spread over the articles, as in a real dump.
        positions = sorted(draws.below(len(entities)) for _ in others)
        waiting = list(zip(positions, others, strict=True))[::-1]
        streams = [Draws(world.seed, "article", entity.title) for entity in entities]
        fill(streams)
        for position, (entity, own) in enumerate(zip(entities, streams, strict=True)):
            number = region.index * ARTICLES_PER_REGION + position
            text = write_article(entity, own, number=number).wikitext
            yield Page(0, entity.title, text)
            if number == 0:
                # A page whose author closed neither the infobox nor the table.
                text_ = text.replace("\n}}", "\n", 1) + "\n{| class=unclosed\n| [[never closed"
                draft = Page(0, f"{entity.title} (draft)", text_, sort="malformed")
                waiting.insert(0, (len(entities) - 1, draft))
            while waiting and waiting[-1][0] == position:
                yield waiting.pop()[1]
            if position % 50 == 7:
                yield Page(0, f"{entity.title} (copy)", text, sort="duplicate")


def _others(region: Entity, entities: list[Entity], draws: Draws) -> list[Page]:
    """Redirects, stubs and the like about some of the entities, and pages of other namespaces."""
    forms = pieces("pages")
    about: list[tuple[str, int, Any]] = [("others", i, region) for i in range(len(forms["others"]))]
    about += [("stub", 0, entity) for entity in draws.some(entities, 2)]
    persons = {x.surname: x for x in entities if x.kind == "person"}
    for surname in [*persons][:2]:
        people = [x for x in region.persons if x.surname == surname]
        lines = "".join(f"* {forms['person'][0](x, draws)}\n" for x in people)
        about.append(
            ("disambiguation", 0, SimpleNamespace(surname=surname, lines=lines, region=region))
        )
    pages = []
    for number, entity in enumerate(draws.some(entities, 14)):
        form = "person redirect" if entity.kind == "person" else "redirect"
        about.append((form, number % 6, entity))
    for form, number, thing in about:
        sort, key, title, redirect, text = forms[form][number](thing, draws).split("|", 4)
        pages.append(Page(int(key), title, text, redirect, sort))
    return draws.some(pages)


class SampleFiles(NamedTuple):
    """URLs (or paths, as the folder was given) of a sample corpus, and how much it holds."""

    pages: str
    page_index: str
    checksums: str
    page_count: int  # of the dump: articles, redirects and pages of other namespaces
    xml_bytes: int  # before compression
    books: str = ""
    tasks: str = ""  # the folder of the labelled sets, with a folder for each


_Stream = tuple[bytes, list[tuple[int, str]]]  # XML, and number and title of each page in it
_NOBODY = Draws(0)  # nothing in a dump's frame is drawn


def write_dump(
    folder: str, pages: Iterable[Page], *, date: str, pages_per_stream: int = 100,
    compresslevel: int = 9, size: int | None = None,
) -> SampleFiles:  # fmt: skip
    """Write the pages as `samplewiki-DATE-pages-articles-multistream.xml.bz2` with its companions.

    Arguments are those of `flows.sample.write_sample`; after the stream that reaches `size` bytes
    of XML no other is begun. Memory holds a few streams, whatever the size of the dump.
    """
    fs, root = file_system(folder)
    fs.makedirs(root, exist_ok=True)
    base = f"samplewiki-{date}-pages-articles-multistream"
    names = (f"{base}.xml.bz2", f"{base}-index.txt.bz2", f"samplewiki-{date}-sha1sums.txt")
    paths = [f"{root.rstrip('/')}/{name}" for name in names]
    sums = [hashlib.sha1(usedforsecurity=False) for _ in names[:2]]  # what the format asks for
    page_count = xml_bytes = written = 0
    entries = bz2.BZ2Compressor(compresslevel)
    streams = _streams(pages, size, date=date, count=pages_per_stream)
    with fs.open(paths[0], "wb") as out, fs.open(paths[1], "wb") as index:
        for stored, (xml, titles) in _compressed(streams, compresslevel):
            lines = "".join(f"{written}:{number}:{title}\n" for number, title in titles)
            listed = entries.compress(lines.encode())
            for file, digest, data in ((out, sums[0], stored), (index, sums[1], listed)):
                file.write(data)
                digest.update(data)
            written += len(stored)
            page_count += len(titles)
            xml_bytes += len(xml)
        index.write(last := entries.flush())
        sums[1].update(last)
    told = (f"{digest.hexdigest()}  {name}\n" for digest, name in zip(sums, names, strict=False))
    fs.pipe_file(paths[2], "".join(told).encode())
    urls = [fs.unstrip_protocol(path) if "://" in folder else path for path in paths]
    return SampleFiles(urls[0], urls[1], urls[2], page_count, xml_bytes)


def _streams(
    pages: Iterable[Page], size: int | None, *, date: str, count: int
) -> Iterator[_Stream]:
    yield f"{pieces('dump')['header'][0](None, _NOBODY)}\n".encode(), []
    source, written = enumerate(pages, 1), 0
    while (size is None or written < size) and (batch := list(islice(source, count))):
        # Deleted pages leave gaps between the numbers.
        numbered = [(10 + position + position // 7, page) for position, page in batch]
        xml = "".join(_page_xml(page, number, year=date[:4]) for number, page in numbered).encode()
        written += len(xml)
        yield xml, [(number, _escape(page.title)) for number, page in numbered]
    yield b"</mediawiki>\n", []


def _compressed(streams: Iterable[_Stream], compresslevel: int) -> Iterator[tuple[bytes, _Stream]]:
    # bz2 lets other threads run, so the next streams are written while these are compressed.
    waiting: deque[tuple[Future[bytes], _Stream]] = deque()
    with ThreadPoolExecutor(2) as pool:
        for stream in streams:
            waiting.append((pool.submit(bz2.compress, stream[0], compresslevel), stream))
            if len(waiting) > 4:
                done, compressed = waiting.popleft()
                yield done.result(), compressed
        yield from ((done.result(), compressed) for done, compressed in waiting)


def _page_xml(page: Page, number: int, *, year: str) -> str:
    data = page.text.encode()
    sha1 = int.from_bytes(hashlib.sha1(data, usedforsecurity=False).digest(), "big")
    is_code = page.namespace == 828
    who = f"<ip>192.0.2.{number % 250}</ip>"
    if number % 11:
        who = f"<username>Writer {number % 40}</username>\n        <id>{number % 40 + 1}</id>"
    hour, minute, second = number // 3600 % 24, number // 60 % 60, number % 60
    frame = SimpleNamespace(
        title=_escape(page.title), namespace=page.namespace, number=number,
        redirect=f'    <redirect title="{_escape(page.redirect)}" />\n' if page.redirect else "",
        revision=7 * number + 900_000, who=who, bytes=len(data),
        model="Scribunto" if is_code else "wikitext",
        form="text/plain" if is_code else "text/x-wiki",
        parent=f"      <parentid>{7 * number + 400_000}</parentid>\n" if number % 5 else "",
        time=f"{year}-01-01T{hour:02d}:{minute:02d}:{second:02d}Z",
        minor="" if number % 4 else "      <minor />\n",
        sha1=np.base_repr(sha1, 36).lower().zfill(31),
        text=f">{_escape(page.text)}</text>" if page.text else " />",
    )  # fmt: skip
    return pieces("dump")["page"][0](frame, _NOBODY) + "\n"


def _escape(text: str) -> str:
    return escape(text, {'"': "&quot;"})
