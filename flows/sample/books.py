"""The tales as plain text books in the shape of Project Gutenberg's, in one .tar.gz."""

from __future__ import annotations

import io
import re
import tarfile
import textwrap
import zlib
from collections.abc import Iterable
from functools import cache
from types import SimpleNamespace
from typing import NamedTuple

from jinja2 import Environment, StrictUndefined, Template

from flows.sample.draws import Draws
from flows.sample.wording import Sentence, read, tables, texts
from flows.sample.world import ARTICLES_PER_REGION, World
from pipelines.io.file_systems import file_system

_LENGTH = 14  # chapters of a tale
_PLAN = {0: "first", _LENGTH - 2: "last but one", _LENGTH - 1: "last"}
_SCENES = ("meal", "ask", "story", "work", "market", "rumour", "hall", "night", "river", "quarrel")


class Tale(NamedTuple):
    """A tale: chapters with their titles; _underscores_ are italics, as in real ones."""

    title: str
    author: str
    year: int
    region: str
    chapters: list[tuple[str, list[str]]]

    def paragraphs(self) -> list[str]:
        """The story's paragraphs as a reader sees them, without titles and marks."""
        return [text.replace("_", "") for _, texts_ in self.chapters for text in texts_]


def write_tale(world: World, number: int) -> Tale:
    """Tale `number`: a craftsperson goes after a stolen masterpiece, with a friend."""
    count = -(-world.articles // ARTICLES_PER_REGION)
    draws, region = Draws(world.seed, "tale", number), world.region(number % count)
    hero, friend, rival = draws.some(region.persons, 3)
    scope = SimpleNamespace(
        region=region, hero=hero, friend=friend, rival=rival, thing=hero.masterpiece,
        festival=draws.pick(region.festivals),
    )  # fmt: skip
    author = draws.pick([person for person in region.persons if person.role == "writer"])
    # Out along the route, and home again at the end.
    route = [hero.home, *draws.some(hero.home.others, _LENGTH - 4)]
    route += [route[-1]] * (_LENGTH - 1 - len(route)) + [hero.home]
    chapters = []
    for index, town in enumerate(route):
        scope.here, scope.there = town, route[min(index + 1, _LENGTH - 1)]
        if index in _PLAN:
            title, *names = texts("tales")[_PLAN[index]].sentences(scope, draws)
        else:  # titles in turn
            title = texts("tales")["chapter"].lead[0].says[(index + number) % 8](scope, draws)
            names = ["arrival" if index % 3 else "weather", *draws.some(_SCENES, 7), "road"]
        told = [text for name in names for text in _scene(name, scope, draws)]
        chapters.append((title, told))
    title = texts("tales")["title"].lead[0].says[(number + number // count) % 4](scope, draws)
    return Tale(title, author.name, author.moved + 20, region.name, chapters)


def _scene(name: str, scope: SimpleNamespace, draws: Draws) -> list[str]:
    region, cast = scope.region, (scope.hero, scope.friend, scope.rival)
    free = [person for person in region.persons if person not in cast]
    scope.met = draws.pick([person for person in free if person.home is scope.here] or free)
    scope.event, scope.dish = draws.pick(region.events), draws.pick(region.dishes)
    scope.is_at_home, scope.price = bool(scope.here.guilds), draws.between(6, 40)
    scope.guild = draws.pick(scope.here.guilds or region.guilds)
    scope.more, scope.half = scope.price + 2, scope.price // 2
    scope.chimneys = scope.here.population // 40
    scope.room = texts("tales")["room"].lead[0].say(scope, draws)
    paragraphs = []
    for items in texts("tales")[name].parts[0][2]:
        text = " ".join(item.say(scope, draws) for item in items if isinstance(item, Sentence))
        paragraphs += text.split("|")
    return paragraphs


def write_books(folder: str, tales: Iterable[Tale]) -> str:
    """Write the tales as `books.tar.gz` and return its URL; the bytes depend on the tales only."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for number, tale in enumerate(tales, 1):
            slug = re.sub("[^a-z0-9]+", "-", tale.title.lower()).strip("-")
            member = tarfile.TarInfo(f"books/{number:02d}-{slug}.txt")
            data = book_bytes(tale, number)
            member.size, member.mode = len(data), 0o644  # mtime and owner stay 0
            tar.addfile(member, io.BytesIO(data))
    fs, root = file_system(folder)
    fs.makedirs(root, exist_ok=True)
    path = f"{root.rstrip('/')}/books.tar.gz"
    fs.pipe_file(path, _stored_gzip(archive.getvalue()))
    return fs.unstrip_protocol(path) if "://" in folder else path


def book_bytes(tale: Tale, number: int) -> bytes:
    """One book: UTF-8, CRLF line ends, a byte-order mark in every second one."""
    mark, roman = "THE" if number % 3 else "THIS", tables("world")["words"]["roman"]
    text = _form().render(tale=tale, number=number, mark=mark, roman=roman)
    return (b"\xef\xbb\xbf" if number % 2 else b"") + text.replace("\n", "\r\n").encode()


@cache
def _form() -> Template:
    made = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
                       undefined=StrictUndefined, autoescape=False)  # noqa: S701  # fmt: skip
    made.filters["wrapped"] = lambda paragraph: textwrap.fill(
        paragraph, 70, break_long_words=False, break_on_hyphens=False
    )
    return made.from_string(read("book.txt.j2"))


def _stored_gzip(data: bytes) -> bytes:
    # Stored blocks, by hand: what zlib makes of the same bytes depends on its version.
    parts = [b"\x1f\x8b\x08\x00" + bytes(4) + b"\x00\xff"]
    for start in range(0, len(data), 0xFFFF):
        block = data[start : start + 0xFFFF]
        last = start + 0xFFFF >= len(data)
        size = len(block)
        parts.append(bytes([last]) + size.to_bytes(2, "little"))
        parts.append((size ^ 0xFFFF).to_bytes(2, "little") + block)
    parts.append(zlib.crc32(data).to_bytes(4, "little"))
    parts.append((len(data) & 0xFFFFFFFF).to_bytes(4, "little"))
    return b"".join(parts)
