"""The sample world: about 140 words of four topics, and the sentences they can form.

The words that decide a dev row of a labeled set never occur in a train row: `Words.half` cuts each
class of words in two, train rows use the first half, dev and test rows the second. Only the corpus
uses both halves, in the same places of the same sentences. A model trained from scratch meets
unknown words on dev; a pretrained model has learned that words of both halves behave alike.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

HAPPY, GLOOMY = "happy", "gloomy"
MOODS = (HAPPY, HAPPY, GLOOMY, GLOOMY)
"""Mood of each topic."""

_TOPICS = {
    "kitchen": (
        "soup bread butter dough rice sauce cheese honey",
        "boiled baked melted cooked simmered roasted fried steamed",
        "sweet hot creamy tasty crisp salted spicy golden",
    ),
    "orchard": (
        "fruit grass moss clover blossom ivy barley hay",
        "grew ripened sprouted bloomed spread thickened climbed flowered",
        "green ripe fresh sunny juicy leafy mild fragrant",
    ),
    "harbor": (
        "cargo rope canvas tar ballast seaweed foam driftwood",
        "sank drifted floated rocked swayed tossed anchored soaked",
        "wet stormy cold muddy windy foggy slimy murky",
    ),
    "workshop": (
        "timber steel iron brass glass wire leather copper",
        "bent cracked snapped split rusted shattered warped scraped",
        "dusty blunt noisy crooked brittle broken sharp dull",
    ),
}
"""Nouns, verbs and adjectives. Nouns need no article; verbs stand with an object or without."""

# Each of them can be the name of a person, a place, a club or a product.
_NAMES = (
    "Jordan Paris Florence Sydney Lincoln Chelsea Austin Victoria "
    "Madison Savannah Carolina Phoenix Dallas Houston Virginia Jackson"
)
_TIMES = "today yesterday later then soon once"
PARTICLE = "off"
"""Turns a verb of topic t before it into one of topic `opposite(t)`: meaning depends on context."""

PLAIN_FORMS = ("N V and N V", "N was A and A", "A N V")
_FORMS = (*PLAIN_FORMS, "X V N", "D X V N")
_VERB_FORMS = ("X v off N", "X v off", "D X v off", "N v off", "X V", "D X V")
"""`v` is a verb of the opposite topic, which the particle turns into one of this topic."""

_VERB_SHARE = 0.15
_MIXED_SHARE = 0.25


def seeded(purpose: str, *numbers: int) -> random.Random:
    """Return the random generator of one purpose; equal on all machines and versions of Python."""
    return random.Random(" ".join([purpose, *map(str, numbers)]))  # noqa: S311 - no secrets here


class Topic(NamedTuple):
    """The words of a topic."""

    nouns: Sequence[str]
    verbs: Sequence[str]
    adjectives: Sequence[str]


class Words(NamedTuple):
    """Words by class; all of the world's, or the half that a split of a labeled set may use."""

    topics: Sequence[Topic]
    names: Sequence[str]
    times: Sequence[str]

    @classmethod
    def of_world(cls, seed: int) -> Words:
        """Return all words of a world; the seed decides which half each belongs to."""
        draw = seeded("words", seed)

        def shuffle(text: str) -> list[str]:
            words = text.split()
            draw.shuffle(words)
            return words

        topics = [Topic(*map(shuffle, classes)) for classes in _TOPICS.values()]
        return cls(topics, shuffle(_NAMES), shuffle(_TIMES))

    def half(self, second: bool) -> Words:
        """Return the first or the second half of each class."""

        def cut(words: Sequence[str]) -> Sequence[str]:
            middle = len(words) // 2
            return words[middle:] if second else words[:middle]

        topics = [Topic(*map(cut, topic)) for topic in self.topics]
        return Words(topics, cut(self.names), cut(self.times))

    def fill(self, form: str, draw: random.Random, *topics: int) -> str:
        """Fill a form: N, V, A, X and D become a noun, verb, adjective, name and time.

        No word is used twice. With several topics, their words alternate; `v` is a verb of the
        opposite of the first topic. The text begins with a capital.
        """
        text = list[str]()
        num_words = 0
        for symbol in form.split():
            pool = self._pool(symbol, topics[num_words % len(topics)])
            if pool is not None:
                num_words += symbol in "NVA"
                symbol = draw.choice([word for word in pool if word not in text])
            text.append(symbol)
        return capitalize(" ".join(text))

    def _pool(self, symbol: str, topic: int) -> Sequence[str] | None:
        match symbol:
            case "N":
                return self.topics[topic].nouns
            case "V":
                return self.topics[topic].verbs
            case "v":
                return self.topics[opposite(topic)].verbs
            case "A":
                return self.topics[topic].adjectives
            case "X":
                return self.names
            case "D":
                return self.times
        return None

    def sentence(self, draw: random.Random, topic: int) -> str:
        """Return a sentence of the corpus."""
        forms = _VERB_FORMS if draw.random() < _VERB_SHARE else _FORMS
        return self.fill(draw.choice(forms), draw, topic) + "."

    def document(self, draw: random.Random) -> tuple[int, list[str]]:
        """Return a document's (main) topic and its 8 to 14 sentences; a quarter mix two topics."""
        topics = draw.sample(range(len(self.topics)), 2)
        if draw.random() >= _MIXED_SHARE:
            topics = topics[:1]
        count = draw.randint(8, 14)
        return topics[0], [self.sentence(draw, draw.choice(topics)) for _ in range(count)]


def opposite(topic: int) -> int:
    """Return the topic that a verb of `topic` belongs to when the particle follows it."""
    return (topic + 2) % len(MOODS)


def topic_names() -> tuple[str, ...]:
    """Return the topics' names, in order."""
    return tuple(_TOPICS)


def capitalize(text: str) -> str:
    """Return the text with its first letter in upper case, the others as they are."""
    return text[:1].upper() + text[1:]
