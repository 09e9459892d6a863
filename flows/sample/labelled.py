"""The sample's labelled sets: small tasks about the sample world, in the official formats.

`texts/README.md` says what each asks. Each split speaks of other regions, all of which are in the
default corpus, and repeats no sentence of another. The bytes depend on the sample's seed only.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, cycle, pairwise
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

from flows.sample.articles import daily_life, facts_of, nouns, opinions, told
from flows.sample.draws import Draws
from flows.sample.wording import cap, compiled, plain_text, tables, texts
from flows.sample.world import KINDS, Entity, World, everything
from pipelines.io.file_systems import file_system

_REGIONS = {"train": (0, 1), "dev": (2,), "test": (3,)}

Row = dict[str, str]  # a sentence (`first`), another (`second`), the `label`; more in some sets


class Cast:
    """What a split may speak of, and what all the splits have said already."""

    def __init__(self, split: str, seed: int, said: set[str]) -> None:
        self.split, self.seed, self.said = split, seed, said
        known = {part: [World(seed, 1).region(x) for x in _REGIONS[part]] for part in _REGIONS}
        self.regions = known.pop(split)
        self.things = [thing for region in self.regions for thing in everything(region)]
        self._foreign = {*chain(*map(_names, chain(*known.values())))}
        self._foreign -= {*chain(*map(_names, self.regions))}

    def draws(self, *purpose: str | int) -> Draws:
        """Draws of this split's own for one purpose."""
        return Draws(self.seed, "labelled", self.split, *purpose)

    def first(self, rows: Iterable[Row], number: int) -> list[Row]:
        """The first `number` different rows of which no other split has said anything, shuffled."""
        found: dict[tuple[str, ...], Row] = {}
        for row in rows:
            said = tuple(text for name, text in row.items() if text and name != "label")
            if all(map(self.may_say, said)):
                found.setdefault(said, row)
            if len(found) == number:
                break
        self.said.update(text for said in found for text in said)
        return self.draws("shuffled").some([*found.values()])

    def sentences(self, purpose: str) -> list[str]:
        """Plain sentences of its articles, told anew: the facts of the dump in other words."""
        found: dict[str, None] = {}
        for thing in self.things:
            draws = self.draws(purpose, thing.title)
            said = [p for section in told(thing, draws) for p in section.paragraphs]
            said += daily_life(thing, draws, 99) if thing.kind == "town" else []
            found |= dict.fromkeys(plain(text) for paragraph in said for text in paragraph)
        return [text for text in found if text and self.may_say(text)]

    def may_say(self, text: str) -> bool:
        """Whether no other split has said it, and it names nothing that belongs to another."""
        return text not in self.said and self._foreign.isdisjoint(re.findall(r"\w+", text))


def _names(region: Entity) -> set[str]:
    """The words of all names in a region."""
    named = [f"{thing.name} {thing.title}" for thing in everything(region)]
    named += [region.people, f"{region.people}s", *(river.source for river in region.rivers)]
    return {word for name in named for word in re.findall(r"\w+", name) if word[0].isupper()}


def plain(sentence: str) -> str:
    """The sentence without markup; "" if its words are not certain."""
    return plain_text(sentence) or ""


def judged(cast: Cast, number: int) -> list[Row]:
    """CoLA: well-formed sentences (1) and disturbed ones (0), half of each."""
    draws, rows = cast.draws("order"), list[Row]()
    fit = [t for t in cast.sentences("order") if 6 <= len(t.split()) <= 16 and '"' not in t]
    follow: dict[str, list[str]] = {}
    for before, word in chain(*(pairwise(text.split()) for text in fit)):
        follow.setdefault(before, []).append(word)
    for text in draws.some(fit):
        shown = disturbed(text, draws, follow) if len(rows) % 2 else text
        if len(rows) < number and shown:
            cast.said.add(text)
            label = len(rows) % 2
            rows.append({"first": shown, "label": str(1 - label), "star": "*" * label})
    return draws.some(rows)


def disturbed(text: str, draws: Draws, follow: Mapping[str, Sequence[str]]) -> str:
    """Half of the words (neither the first nor the last, nor names) exchanged for others that fit
    to what then stands before them; "" where none can be. `follow` has the words that come after
    each. So words and length say nothing, and pairs of words little."""
    words, is_changed = text.split(), False
    places = [place for place in range(1, len(words) - 1) if words[place].islower()]
    for place in sorted(draws.some(places, len(places) // 2 + 1)):
        before, word = words[place - 1 : place + 1]
        if fit := [other for other in follow.get(before, ()) if other.islower() and other != word]:
            words[place], is_changed = draws.pick(fit), True
    return " ".join(words) if is_changed else ""


def choices(cast: Cast, number: int) -> list[Row]:
    """SWAG: sentences, the first word of the next, four endings, the right one. All four come next
    after some sentence and start with the same word. 150 steps of a topic are used at most."""
    draws, topics = cast.draws("choices"), dict[str, dict[tuple[str, str, str], None]]()
    known = {kind: {kind: text} for kind, text in texts("mentions").items()}
    for thing in cast.things:
        telling = cast.draws("steps", thing.title)
        for topic, text in (known | {"town": texts("daily")}).get(thing.kind, {}).items():
            for said in (map(plain, text.sentences(thing, telling)) for _ in range(8)):
                for pair in pairwise(filter(None, said)):
                    if all(map(cast.may_say, pair)):
                        topics.setdefault(topic, {})[(*pair, topic)] = None
    steps = [step for found in topics.values() for step in draws.some([*found], 150)]
    spoken, rows = set[str](), list[Row]()
    starts = {"It", "Its", "The", "In", "He", "She", "His", "Her", "A", "On"}
    for first, second, topic in draws.some([s for s in steps if s[1].split()[0] in starts]):
        start, right = second.split()[0], len(rows) % 4
        others = [x[1] for x in steps if x[2] != topic and x[1].startswith(f"{start} ")]
        endings = [text for text in dict.fromkeys(draws.some(others, 60)) if text != second][:3]
        if len(rows) == number:
            break
        if len(endings) == 3:
            endings.insert(right, second)
            spoken.update((first, *endings))
            rest = {f"ending{i}": text[len(start) + 1 :] for i, text in enumerate(endings)}
            rows.append({"first": first, "second": start, "phrase": f"{first} {start}",
                         "video": f"sample_{len(rows)}", "label": str(right), **rest})  # fmt: skip
    cast.said.update(spoken)
    return draws.some(rows)


def _feelings(cast: Cast, draws: Draws) -> Iterator[Row]:
    """Praise and blame. The words of `train` are others than those of `dev` and `test`."""
    kinds = [*tables("opinions")["objects"]]
    part = slice(12) if cast.split == "train" else slice(12, None)
    while True:
        yield {side: opinions(draws.pick(kinds), draws, is_praise=side == "praise", part=part)[0]
               for side in ("praise", "blame")}  # fmt: skip


def _riddles(cast: Cast, draws: Draws) -> Iterator[Row]:
    """Of a beast and a tool one did something; `right` and `wrong` say which. Their names are in no
    dictionary, and those of `train` in no other split."""
    forms, tails = texts("household"), tables("nouns")["tails"]
    while True:
        dealt, region = draws.some(nouns(cast.seed, cast.split)), draws.pick(cast.regions)
        right, sort = dealt[0]
        wrong = next(word for word, other in dealt if other != sort)
        noun, other = draws.some((right, wrong))
        scope = SimpleNamespace(
            noun=noun, other=other, right=right, wrong=wrong, tail=draws.pick(tails[sort]),
            town=draws.pick(region.towns), person=draws.pick(region.persons),
        )  # fmt: skip
        yield {
            name: forms[name].sentences(scope, draws)[0] for name in ("riddle", "right", "wrong")
        }


def _answers(cast: Cast, draws: Draws) -> Iterator[Row]:
    """A question about daily life, a sentence that answers it and one that speaks of something
    else. The topics of `train` are in no other split: which words belong together, the wiki tells.
    """
    dealt = Draws(cast.seed, "topics").some([*texts("daily").values()])
    own = {"train": dealt[7:], "dev": dealt[2:7], "test": dealt[:2]}[cast.split]
    towns = [town for region in cast.regions for town in region.towns]
    while True:
        (asked, other), town = draws.some(own, 2), draws.pick(towns)
        ways = [said for say in asked.lead[0].says if (said := say(town, draws))[-1] == "?"]
        sides = {"stated": asked, "other": other}
        yield {"question": draws.pick(ways), **{
            name: draws.pick(topic.lead[1:]).say(town, draws) for name, topic in sides.items()
        }}  # fmt: skip


def _facts(cast: Cast, draws: Draws) -> Iterator[Row]:
    """A fact of a thing in several ways, as `texts/README.md` names them, as many of one kind of
    thing as of another."""
    while True:
        kind = draws.pick(KINDS)
        alike = [x for x in cast.things if x.kind == kind]
        thing, (fact, other) = draws.pick(alike), draws.some(facts_of(kind), 2)
        path, questions, statements, follows = fact
        answer = attrgetter(path)
        unlike = [x for x in alike if answer(x) != answer(thing)]
        if unlike:
            name = path.partition(".")[0]
            changed = SimpleNamespace(**vars(thing) | {name: getattr(draws.pick(unlike), name)})
            stated, same = draws.some(statements.says, 2)
            said = {
                "question": questions.say(thing, draws), "stated": stated(thing, draws),
                "same": same(thing, draws), "contrary": same(changed, draws),
                "echo": stated(changed, draws), "other": other[2].say(thing, draws),
                "beyond": other[3].say(thing, draws) if other[3] else "",
            }  # fmt: skip
            if follows:
                implied = draws.pick(follows.says)
                said |= {"implied": implied(thing, draws), "denied": implied(changed, draws)}
            if said.get("implied") != said.get("denied", ""):
                yield {name: text for name, text in said.items() if text}


def compared(cast: Cast, number: int, *, task: str) -> list[Row]:
    """Sets of sentences and pairs, as the `turns` of `task` in `texts/labelled.yaml` say."""
    make = {"sst-2": _feelings, "wnli": _riddles, "qnli": _answers}.get(task, _facts)(
        cast, cast.draws(task)
    )
    cases = zip(cycle(tables("labelled")[task]["turns"]), make, strict=False)
    rows = ({"first": plain(cap(case[one])), "second": plain(cap(case.get(two, ""))), "label": x}
            for (one, two, x), case in cases if two in case or not two)  # fmt: skip
    return cast.first(rows, number)


def _squad(cast: Cast, number: int, *, version: str) -> str:
    """SQuAD: passages and two questions each. In 2.0 there is a third, which they do not answer."""
    draws, found = cast.draws("questions", version), dict[str, list[dict[str, Any]]]()
    while len(found) < number:
        text, asked = _passage(cast, draws)
        if len(asked) == 5 and cast.may_say(text):
            found.setdefault(text, [*draws.some(asked[:-1], 2), *asked[-1:]])
    cast.said.update(found)
    paragraphs = []
    for index, (text, rows) in enumerate(found.items()):
        rows = [{"id": f"{cast.split}-{index:03d}-{i}", **row} for i, row in enumerate(rows)]
        asked = draws.some([row for row in rows if version == "2.0" or row["answers"]])
        paragraphs.append({"qas": asked, "context": text})
    data = [{"title": cast.regions[0].name, "paragraphs": paragraphs}]
    return json.dumps({"version": f"v{version}", "data": data}, ensure_ascii=False) + "\n"


def _passage(cast: Cast, draws: Draws) -> tuple[str, list[dict[str, Any]]]:
    """Four sentences on as many things, the questions about them, and one about a fifth thing.

    The answers are all persons or all towns, and each stands before the words that say what the
    person did or what is in the town: who reads only what comes before cannot know which it is. The
    questions do not name the things."""
    sort, region = draws.pick(("person", "town")), draws.pick(cast.regions)
    told = [(kind, fact) for kind in KINDS[1:] for fact in facts_of(kind) if fact[0][-5:] == ".name"
            and attrgetter(fact[0][:-5])(region.of_kind[kind][0]).kind == sort]  # fmt: skip
    said, rows = dict[str, str](), list[dict[str, Any]]()
    for kind, (path, questions, statements, _) in draws.some(told):
        thing, is_the = draws.pick(region.of_kind[kind]), kind in tables("world")["named_with_the"]
        answer = plain(attrgetter(path)(thing))
        form = re.compile(rf"\b{re.escape(answer)}\b.*{re.escape(plain(thing.name))}")
        ways = [x for say in statements.says if form.search(x := plain(say(thing, draws)))]
        way = draws.pick(ways) if ways else answer
        if ways and not any(answer in text or other in way for other, text in said.items()):
            named = SimpleNamespace(name=kind if is_the else f"the {kind}")
            rows.append({"question": questions.say(named, draws), "answers": [{"text": answer}]})
            said[answer] = way
        if len(rows) == 5:
            break
    text = " ".join(draws.some([*said.values()][:4]))
    for row in rows:
        for answer in row["answers"]:
            answer["answer_start"] = text.find(answer["text"])
        row["is_impossible"] = row is rows[-1]
    rows[-1]["answers"] = []
    return text, rows


_WORD = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")  # noqa: RUF001


def _conll(cast: Cast, number: int) -> str:
    """CoNLL-2003: sentences with a name in each; a word, its part of speech (NNP, CD or -X-), chunk
    and tag in IOB1. Every name that an article may say is known with its kind."""
    names, draws, found = dict[tuple[str, ...], str](), cast.draws("names"), list[list[str]]()
    for row in tables("labelled")["names"]:
        things, name, tag = row.split("|")
        for thing in (thing for region in cast.regions for thing in getattr(region, things)):
            names.setdefault(tuple(_WORD.findall(compiled(name)(thing, draws))), tag)
    for text in draws.some(cast.sentences("names")):
        words = _WORD.findall(text)
        if 6 <= len(words) <= 30 and len(found) < number:
            lines = _tagged(words, names)
            if any(line[-1] != "O" for line in lines):
                found.append(lines)
                cast.said.add(text)
    lines = []
    for index, tagged in enumerate(found):
        lines += ["-DOCSTART- -X- O O", ""] if index % 10 == 0 else []
        lines += [*tagged, ""]
    return "\n".join(lines) + "\n"


def _tagged(words: list[str], names: dict[tuple[str, ...], str]) -> list[str]:
    """The lines of the words, with the longest names that start at each of them."""
    lines: list[str] = []
    longest = max(map(len, names))
    while (start := len(lines)) < len(words):
        ends = range(min(len(words), start + longest), start, -1)
        end = next((end for end in ends if tuple(words[start:end]) in names), None)
        if end is None:
            word = words[start]
            part = "CD" if word[0].isdigit() else "-X-" if word[0].isalpha() else word
            lines.append(f"{word} {part} O O")
            continue
        tag = names[tuple(words[start:end])]
        # B- only where a name follows another of its kind at once.
        first = "B" if lines and lines[-1].endswith(f"-{tag}") else "I"
        for position, word in enumerate(words[start:end]):
            lines.append(f"{word} NNP I-NP {'I' if position else first}-{tag}")
    return lines


def _table(rows: list[Row], table: dict[str, Any], split: str) -> str:
    """A set whose files are tables, as `texts/labelled.yaml` says."""
    is_test, text = split == "test", io.StringIO()
    named = table.get("test", table["columns"]) if is_test else table["columns"]
    columns = [column.split("=") for column in named.split("|")]
    columns = [column for column in columns if not is_test or column[1] != "label"]
    # GLUE's files are not quoted, so no cell may hold a tab or the end of a line.
    form: Any = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None}
    is_csv = table["names"][0].endswith("csv")
    write = csv.writer(text, lineterminator="\n", **({} if is_csv else form)).writerow
    if any(head for head, _ in columns):  # CoLA's files have none
        write([head for head, _ in columns])
    for index, row in enumerate(rows):
        write([{"index": index, **row}.get(content, content) for _, content in columns])
    return text.getvalue()


_MAKERS: dict[str, Callable[[Cast, int], list[Row] | str]] = {
    "cola": judged, "swag": choices, "conll-2003": _conll,
    "squad-1.1": partial(_squad, version="1.1"), "squad-2.0": partial(_squad, version="2.0"),
    **{task: partial(compared, task=task)
       for task in ("sst-2", "mrpc", "sts-b", "mnli", "qnli", "rte", "wnli")},
}  # fmt: skip
TASKS = tuple(_MAKERS)


def write_labelled(folder: str, *, seed: int) -> str:
    """Write the labelled sets about the world of a seed, and return `FOLDER/tasks`."""
    fs, root = file_system(folder)
    base = f"{root.rstrip('/')}/tasks"
    said = set[str]()
    everyone = [Cast(split, seed, said) for split in _REGIONS]
    for task in TASKS:
        fs.makedirs(f"{base}/{task}", exist_ok=True)
        said.clear()
        table = tables("labelled")[task]
        for cast, name, number in zip(everyone, table["names"], table["counts"], strict=False):
            made = _MAKERS[task](cast, number)
            text = made if isinstance(made, str) else _table(made, table, cast.split)
            fs.pipe_file(f"{base}/{task}/{name}", text.encode())
    return fs.unstrip_protocol(base) if "://" in folder else base
