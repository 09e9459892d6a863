"""Names of the sample world: syllable systems, one for each region in turn.

The names of a region sound alike and unlike those of its neighbours, so a model has to learn them
as words. None is meant to be a real person or place.
"""

from __future__ import annotations

from typing import NamedTuple

from flows.sample.draws import Draws
from flows.sample.wording import tables


class RegionName(NamedTuple):
    """What is known of a region without building it."""

    name: str
    people: str
    """Adjective and name of its people."""
    capital: str
    script: str
    native: str
    """Its name in the script of its language."""
    link: str


def sounds_of(index: int) -> dict[str, str]:
    """The syllable system of region `index`."""
    systems: list[dict[str, str]] = tables("world")["sounds"]
    return systems[index % len(systems)]


def region_name(seed: int, index: int) -> RegionName:
    """Names of region `index`, different for every index below a hundred thousand."""
    sounds = sounds_of(index)
    onsets = sounds["onsets"].split()
    vowels = [vowel for vowel in sounds["vowels"].split() if vowel.isascii()]
    # Mixed-radix digits of a permuted index: no two regions share them. A stem can be parsed back
    # (every syllable is consonants and one vowel), so no two names are the same either.
    radices = (len(onsets), len(vowels), 4, len(onsets), len(vowels))
    total = len(onsets) ** 2 * len(vowels) ** 2 * 4
    # A prime above every `total`, so multiplying by it permutes.
    turn = index // len(tables("world")["sounds"])
    number = (turn * 999_983 + Draws(seed, "regions").below(total)) % total
    digits = []
    for radix in radices:
        number, digit = divmod(number, radix)
        digits.append(digit)
    first, vowel, coda, second, last = digits
    stem = onsets[first] + vowels[vowel] + "lnrm"[coda] + onsets[second] + vowels[last]
    ending = sounds["region"]
    if ending[0] in "aeiou":
        stem += "ltrn"[coda]
    name, people = (stem + ending).capitalize(), (stem + sounds["people"]).capitalize()
    capital = Namer(Draws(seed, "capital", index), sounds).name("towns")
    script = sounds["script"]
    return RegionName(name, people, capital, script, gloss(name, script), f"[[{name}]]")


class Namer:
    """Makes names of one region, no two alike."""

    def __init__(self, draws: Draws, sounds: dict[str, str], *taken: str) -> None:
        self._draws = draws
        self._endings = {sort: text.split() for sort, text in sounds.items()}
        self._taken = {*tables("world")["no_names"], *taken}
        # Each region speaks with a part of its system's sounds: neighbours of a kind differ too.
        self._onsets = draws.some(self._endings["onsets"], 11)
        self._vowels = draws.some(self._endings["vowels"], 4)

    def syllable(self) -> str:
        """One pronounceable syllable."""
        coda = self._draws.pick(self._endings["codas"]) if self._draws.chance(33) else ""
        return self._draws.pick(self._onsets) + self._draws.pick(self._vowels) + coda

    def name(self, sort: str, *, syllables: int = 2) -> str:
        """A fresh name of a sort: `towns`, `waters`, `women` or `men`."""
        while True:
            ending = self._draws.pick(self._endings[sort])
            stem = "".join(self.syllable() for _ in range(syllables - 1))
            stem += self._draws.pick(self._onsets) + self._draws.pick(self._vowels)
            if ending[0] in "aeiouåöéúüóíy":
                stem += self._draws.pick("nlrtm")
            name = (stem + ending).capitalize()
            if name not in self._taken:
                self._taken.add(name)
                return name

    def word(self) -> str:
        """A word of the region's language, in lower case."""
        return self.syllable() + self.syllable()


def gloss(name: str, script: str) -> str:
    """The name as a region's own script would write it, for `{{lang}}` templates."""
    letters = tables("world")["scripts"].get(script)
    if letters is None:
        return name
    if len(letters) > 26:  # a sign for two letters; not by hash(), which changes with the process
        pairs = zip(name[::2], name[1::2], strict=False)
        return "".join(letters[(ord(x) * 7 + ord(y)) % len(letters)] for x, y in pairs)
    own = str.maketrans("abcdefghijklmnopqrstuvwxyz", letters)
    return name.lower().translate(own).capitalize()
