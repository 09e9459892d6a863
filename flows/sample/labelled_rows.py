"""Rows of the labelled sets: who may speak in which split, and what is right.

Regions are dealt out: `train` speaks of other people, places and things than `dev`, and `test` of
others again. All of them are in the default corpus, so a model that read it has met them. No split
repeats a sentence of another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, cycle, pairwise
from types import SimpleNamespace
from typing import NamedTuple

from flows.sample.articles import daily_life, told
from flows.sample.draws import Draws
from flows.sample.facts import facts_of, opinions
from flows.sample.wording import Sentence, plain_text, tables, texts
from flows.sample.world import Entity, World, everything

SPLITS = ("train", "dev", "test")
_REGIONS = {"train": (0, 1), "dev": (2,), "test": (3,)}

Row = tuple[str, str, str]
"""A sentence, another one or "", and the label."""


class Cast:
    """What a split may speak of, and what the splits have said already."""

    def __init__(self, split: str, seed: int, said: set[str]) -> None:
        self.split, self.seed, self.said = split, seed, said
        self.regions = [World.build(seed, 1).region(index) for index in _REGIONS[split]]
        self.things: dict[str, list[Entity]] = {}
        for thing in (thing for region in self.regions for thing in everything(region)):
            self.things.setdefault(thing.kind, []).append(thing)

    def draws(self, *purpose: str | int) -> Draws:
        """Draws of this split's own for one purpose."""
        return Draws(self.seed, "labelled", self.split, *purpose)

    def first(self, rows: Iterable[Row], number: int) -> list[Row]:
        """The first `number` different rows of which no other split has said anything, shuffled."""
        found: dict[tuple[str, ...], Row] = {}
        for row in rows:
            if self.said.isdisjoint({*row[:2]} - {""}):
                found.setdefault(row[:2], row)
            if len(found) == number:
                break
        self.said.update(text for pair in found for text in pair)
        return self.draws("shuffled").some([*found.values()])

    def sentences(self, purpose: str) -> Iterator[str]:
        """Plain sentences of its articles, told anew: the facts of the dump in other words."""
        for thing in (thing for things in self.things.values() for thing in things):
            draws = self.draws(purpose, thing.title)
            found = [p for section in told(thing, draws) for p in section.paragraphs]
            found += daily_life(thing, draws, 99) if thing.kind == "town" else []
            plain = (plain_text(sentence) for paragraph in found for sentence in paragraph)
            yield from (text for text in plain if text is not None)

    def topics(self, purpose: str, *, tellings: int) -> Iterator[list[Told]]:
        """Paragraphs on daily life and on things, each told so many times, for other wordings."""
        for kind, things in self.things.items():
            is_life = kind == "town"
            topics = texts("daily") if is_life else {kind: texts("mentions").get(kind)}
            for thing in things:
                for telling in range(tellings):
                    draws = self.draws(purpose, thing.title, telling)
                    for topic, text in topics.items():
                        said = text.sentences(thing, draws) if text else []
                        yield [Told(plain, is_life, topic, place) for place, sentence
                               in enumerate(said) if (plain := plain_text(sentence))]  # fmt: skip


class Told(NamedTuple):
    """A sentence on a topic, of daily life or not, and its position in its paragraph."""

    text: str
    is_life: bool
    topic: str
    position: int

    def wording(self) -> str:
        """The sentence without names and numbers."""
        return re.sub(r"[^\W\d_a-z]\w*|\d[\d,]*", "_", self.text)

    def nearness(self, other: Told) -> int:
        """5 for the same said of anything, 3 for the same topic, 1 for the same sort of topic."""
        if self.topic == other.topic:
            return 5 if self.position == other.position else 3
        return int(self.is_life == other.is_life)


def casts(seed: int) -> list[Cast]:
    """The casts of train, dev and test, which share what is said; a function of the seed only."""
    said = set[str]()
    return [Cast(split, seed, said) for split in SPLITS]


def judged(cast: Cast, number: int) -> list[Row]:
    """CoLA: well-formed sentences (1) and disturbed ones (0), half of each.

    In a disturbed sentence a run of words is out of order, or a few words have been exchanged for
    words of other sentences. So words and length say nothing, only what fits where.
    """
    draws = cast.draws("order")
    fit = (t for t in cast.sentences("order") if 6 <= len(t.split()) <= 16 and '"' not in t)
    taken = draws.some([*dict.fromkeys(text for text in fit if text not in cast.said)], number)
    words = [word for text in taken for word in text.split()[1:-1] if word.islower()]
    cast.said.update(taken)
    rows = []
    for index, text in enumerate(taken):
        shown = text
        if index % 2:
            shown = exchanged(text, words, draws) if index % 4 == 1 else disordered(text, draws)
        rows.append((shown, "", str(1 - index % 2)))
    return draws.some(rows)


def disordered(text: str, draws: Draws) -> str:
    """The same words, all but the first and the last in another order."""
    first, *middle, last = text.split()
    while (mixed := draws.some(middle)) == middle:
        pass
    return " ".join([first, *mixed, last])


def exchanged(text: str, words: Sequence[str], draws: Draws) -> str:
    """A third of the words, not the first and not the last, replaced by some of `words`."""
    shown = text.split()
    inner = range(1, len(shown) - 1)
    for position in draws.some(inner, len(inner) // 3 + 1):
        while (word := draws.pick(words)) == shown[position]:
            pass
        shown[position] = word
    return " ".join(shown)


def felt(cast: Cast, number: int) -> list[Row]:
    """SST-2: praise (1) and blame (0).

    The words of praise and blame in `train` are others than those in `dev` and `test`: which side
    a word is on must be known from the corpus, which keeps them apart.
    """
    draws, kinds = cast.draws("feeling"), [*tables("opinions")["objects"]]
    part = slice(12) if cast.split == "train" else slice(12, None)
    said = (opinions(draws.pick(kinds), draws, is_praise=i % 2 == 0, part=part) for i in count())
    return cast.first(((text, "", str(1 - i % 2)) for i, (text, *_) in enumerate(said)), number)


def rated(cast: Cast, number: int) -> list[Row]:
    """STS-B: how much two sentences have to do with each other, as many pairs of each nearness.

    Two sentences never have the same wording, so what words they share says little; what belongs
    together, the corpus tells. The score is the mean of five judges, who differ by one at most.
    """
    draws = cast.draws("topics")
    found: dict[str, dict[str, Told]] = {}
    for sentence in (s for paragraph in cast.topics("topics", tellings=3) for s in paragraph):
        found.setdefault(sentence.topic, {})[sentence.text] = sentence
    pool = {topic: [*known.values()] for topic, known in found.items()}
    topics, rows = [*pool], dict[tuple[str, str], Row]()
    while len(rows) < number:
        level = (0, 1, 3, 5)[len(rows) % 4]
        topic = draws.pick(topics)
        first = draws.pick(pool[topic])
        second = draws.pick(pool[topic if level > 1 else draws.pick(topics)])
        pair = (first.text, second.text)
        is_new = first.wording() != second.wording() and cast.said.isdisjoint(pair)
        if is_new and first.nearness(second) == level:
            judges = [min(5, max(0, level + draws.pick((-1, 0, 0, 0, 1)))) for _ in range(5)]
            rows.setdefault(pair, (*pair, f"{sum(judges) / 5:.3f}"))
    return cast.first(rows.values(), number)


def _steps(cast: Cast, purpose: str, *, tellings: int) -> tuple[list[Row], Draws]:
    """Sentences, those that follow them, and their topics: 150 of each topic, so that none is the
    answer by being frequent. Draws to go on with."""
    draws, topics = cast.draws(purpose), dict[str, dict[Row, None]]()
    for paragraph in cast.topics(purpose, tellings=tellings):
        for first, second in pairwise(paragraph):
            if cast.said.isdisjoint((first.text, second.text)):
                step = (first.text, second.text, first.topic)
                topics.setdefault(first.topic, {})[step] = None
    return [step for steps in topics.values() for step in draws.some([*steps], 150)], draws


def sequels(cast: Cast, number: int) -> list[Row]:
    """RTE: up to `number` pairs, in half of which the second sentence goes on from the first.

    A second sentence that does not go on comes next in another topic, and those are drawn like the
    ones that do, so that no sentence tells the label.
    """
    steps, draws = _steps(cast, "pairs", tellings=3)
    rows: list[Row] = []
    for index, (first, second, topic) in enumerate(draws.some(steps, number)):
        others = [other[1] for other in steps if other[2] != topic]
        rows.append((first, draws.pick(others), "not_entailment") if index % 2
                    else (first, second, "entailment"))  # fmt: skip
    return cast.first(rows, number)


def choices(cast: Cast, number: int) -> list[tuple[str, str, list[str], int]]:
    """SWAG: up to `number` sentences, the first word of the next, four endings, the right one.

    All four endings come next after some sentence and start with the same word, one of those that
    may go on in any way. An ending is wrong as often as it is right: it is drawn from the steps.
    """
    steps, draws = _steps(cast, "choices", tellings=8)
    groups: dict[str, list[Row]] = {
        start: [] for start in ["It", "Its", "The", "In", "He", "She", "His", "Her", "A", "On"]
    }
    for step in steps:
        groups.setdefault(step[1].split()[0], []).append(step)
    usable = [step for start in list(groups)[:10] for step in groups[start]]
    rows: dict[tuple[str, str], tuple[str, str, list[str], int]] = {}
    for first, second, topic in draws.some(usable):
        start, right = second.split()[0], len(rows) % 4
        others = draws.some([other[1] for other in groups[start] if other[2] != topic], 60)
        endings = [text for text in dict.fromkeys(others) if text != second][:3]
        if len(endings) == 3 and (first, second) not in rows and len(rows) < number:
            endings.insert(right, second)
            cast.said.update((first, *endings))
            rest = [text[len(start) + 1 :] for text in endings]
            rows[first, second] = (first, start, rest, right)
    return draws.some([*rows.values()])


def _cases(cast: Cast, purpose: str) -> Iterator[dict[str, str]]:
    """A fact of a thing in several ways, without end, as many of one kind of thing as of another.

    It is asked (`question`), `stated`, stated in other words (`same`) and as it would be if it were
    not so (`contrary`). `implied` follows for one who knows the world: that those who sell jars
    knead clay; `denied` would follow if the fact were not so. `other` is another fact.
    """
    draws = cast.draws(purpose)
    while True:
        kind = draws.pick([*cast.things])
        thing = draws.pick(cast.things[kind])
        fact, other = draws.some(facts_of(kind), 2)
        unlike = [x for x in cast.things[kind] if fact.answer(x) != fact.answer(thing)]
        if unlike:
            attribute = fact.path.partition(".")[0]
            lent = {attribute: getattr(draws.pick(unlike), attribute)}
            changed = SimpleNamespace(**(vars(thing) | lent))
            stated, same = draws.some(fact.statements.says, 2)
            implied = draws.pick(fact.implied.says) if fact.implied else same
            beside = draws.pick((other.statements, other.implied or other.statements))
            said = {
                "question": fact.questions.say(thing, draws), "stated": stated(thing, draws),
                "same": same(thing, draws), "contrary": same(changed, draws),
                "implied": implied(thing, draws), "denied": implied(changed, draws),
                "other": beside.say(thing, draws),
            }  # fmt: skip
            if said["implied"] != said["denied"]:
                yield {name: plain_text(text) or "" for name, text in said.items()}


def compared(cast: Cast, number: int, *, task: str) -> list[Row]:
    """MNLI (what follows), MRPC (what says the same), QNLI (what answers), as the table of `task`
    says in which turns. What contradicts says the same of a thing of which it is not so."""
    turns = tables("labelled")[task]["turns"]
    cases = zip(cycle(turns), _cases(cast, task), strict=False)
    return cast.first(((case[one], case[two], label) for (one, two, label), case in cases), number)


class Question(NamedTuple):
    """A question about a passage; the empty answer at -1 means that the passage has none."""

    text: str
    answer: str = ""
    start: int = -1


def passages(cast: Cast, number: int) -> list[tuple[str, str, list[Question]]]:
    """SQuAD 2.0: `number` titles, passages and up to three questions, a third of them unanswered.

    An unanswered question is about the thing of the passage too: it asks what is not said of it.
    """
    draws = cast.draws("questions")
    kinds = [kind for kind in cast.things if kind in texts("mentions")]
    found: dict[str, tuple[str, str, list[Question]]] = {}
    while len(found) < number:
        kind = draws.pick(kinds)
        title, text, questions = _passage(draws.pick(cast.things[kind]), draws)
        if text not in cast.said:
            found.setdefault(text, (title, text, questions))
    cast.said.update(found)
    return [*found.values()]


def _passage(thing: Entity, draws: Draws) -> tuple[str, str, list[Question]]:
    def plain(sentence: Sentence) -> str:
        return plain_text(sentence.say(thing, draws)) or ""

    facts = facts_of(thing.kind)
    said = [plain(sentence) for sentence in texts("mentions")[thing.kind].lead]
    said += [plain(fact.statements) for fact in draws.some(facts, len(facts) - 2)]
    text = " ".join(sentence for sentence in said if sentence)
    answers, unanswered = [], []
    for fact in facts:
        answer = re.escape(plain_text(fact.answer(thing)) or "")
        if place := re.search(rf"\b{answer}\b", text, re.IGNORECASE):
            answers.append(Question(plain(fact.questions), place.group(), place.start()))
        else:
            unanswered.append(Question(plain(fact.questions)))
    # Two of three have an answer, as in the data that this imitates.
    chosen = [*draws.some(answers, 2), *draws.some(unanswered, 1)]
    return thing.region.name, text, draws.some(chosen)


_TAGS = {
    "person": "PER", "region": "LOC", "town": "LOC", "river": "LOC", "lake": "LOC",
    "building": "LOC", "guild": "ORG", "event": "MISC", "festival": "MISC", "animal": "MISC",
    "ship": "MISC", "work": "MISC",
}  # fmt: skip
_WORD = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")  # noqa: RUF001
Word = tuple[str, str, str, str]
"""A word or mark, its part of speech (NNP, CD or -X-), chunk and tag in IOB1."""


def tagged(cast: Cast, number: int) -> list[list[Word]]:
    """CoNLL-2003: `number` sentences with a name in each.

    The tags come from the world itself: every name that an article may say is known with its kind.
    """
    names: dict[tuple[str, ...], str] = {}
    for name, tag in (pair for region in cast.regions for pair in _names(region)):
        names.setdefault(tuple(_WORD.findall(plain_text(name) or name)), tag)
    found: dict[str, list[Word]] = {}
    for text in cast.draws("names").some([*dict.fromkeys(cast.sentences("names"))]):
        words = _WORD.findall(text)
        if 6 <= len(words) <= 30 and text not in cast.said and len(found) < number:
            row = _tagged(words, names)
            if any(word[3] != "O" for word in row):
                found[text] = row
    cast.said.update(found)
    return [*found.values()]


def _names(region: Entity) -> Iterator[tuple[str, str]]:
    """All names of a region with their tags; those of other regions that it knows."""
    yield from ((x.name, _TAGS[x.kind]) for x in everything(region) if x.kind in _TAGS)
    for person in region.persons:
        yield from ((person.given, "PER"), (person.surname, "PER"))
        yield person.masterpiece.removeprefix("the "), "MISC"
    yield from ((river.source, "LOC") for river in region.rivers)
    yield from ((town.eponym, "PER") for town in region.towns if town.eponym)
    yield from ((guild.motto, "MISC") for guild in region.guilds)
    for near in (region, *region.neighbours):
        yield from ((near.people, "MISC"), (f"{near.people}s", "MISC"), (near.name, "LOC"))
    yield from ((near.capital, "LOC") for near in region.neighbours)


def _tagged(words: list[str], names: dict[tuple[str, ...], str]) -> list[Word]:
    """The words with the longest names that start at each of them."""
    rows: list[Word] = []
    longest = max(map(len, names))
    while (start := len(rows)) < len(words):
        ends = range(min(len(words), start + longest), start, -1)
        end = next((end for end in ends if tuple(words[start:end]) in names), None)
        if end is None:
            word = words[start]
            part = "CD" if word[0].isdigit() else "-X-" if word[0].isalpha() else word
            rows.append((word, part, "O", "O"))
            continue
        tag = names[tuple(words[start:end])]
        # B- only where a name follows another of its kind at once.
        first = "B" if rows and rows[-1][3].endswith(f"-{tag}") else "I"
        for position, word in enumerate(words[start:end]):
            rows.append((word, "NNP", "I-NP", f"{'I' if position else first}-{tag}"))
    return rows
