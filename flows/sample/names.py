"""Names of the sample world: eight syllable systems, one for each region in turn.

The names of a region sound alike and unlike those of its neighbours, so a model has to learn them
as words. None is meant to be a real person or place.
"""

from __future__ import annotations

from typing import NamedTuple

from flows.sample.draws import Draws


class Phonology(NamedTuple):
    """What the names of one kind of region are made of."""

    onsets: tuple[str, ...]
    vowels: tuple[str, ...]
    codas: tuple[str, ...]
    towns: tuple[str, ...]
    waters: tuple[str, ...]
    women: tuple[str, ...]
    men: tuple[str, ...]
    region: str
    people: str
    """What turns the region's stem into the adjective for its people."""
    script: str
    """ISO 639 code of the language whose script glosses are written in."""


def _words(text: str) -> tuple[str, ...]:
    return tuple("" if word == "-" else word for word in text.split())


def _phonology(rows: str) -> Phonology:
    onsets, vowels, codas, towns, waters, women, men, last = (
        _words(row) for row in rows.strip().splitlines()
    )
    region, people, script = last
    return Phonology(onsets, vowels, codas, towns, waters, women, men, region, people, script)


PHONOLOGIES: tuple[Phonology, ...] = tuple(
    _phonology(rows)
    for rows in (
        """b d f g h k l m n r s st t v sk br gr
        a e i o u å ö
        - r n l rn ld rk st nd
        vik holm gard stad fjell
        elv ånga vatn
        a dis hild unn
        ar mund rik olf
        mark marker sv""",
        """b c d f g h j l m n p r s t v gr fl
        a e i o é ú
        - n r l s
        edo illo uña ales ar
        eja al ón
        ita uela encia ana
        uel ejo ín aldo
        eña eñan es""",
        """b d g k l m n p r s t v z dr kr pl zv
        a e i o u
        - n l r sk v st
        grad ov itsa ovka in
        va na ika
        mila ena ka ina
        mir slav an ko
        ova ovan ru""",
        """k s t n h m y r sh ch ky
        a e i o u
        - - - n
        mura saki hara zawa da
        gawa se numa
        ko mi ka ne
        ro shi ta ki
        shima shiman ja""",
        """d g k l m n p r s t th x phil khr
        a e i o y
        - n r s l
        opolis os antha issa
        eus ion ias
        oula ia ene ike
        os andros ides ias
        thia thian el""",
        """b c d f l m n p r s t v br cr tr
        a e i o u é
        - n r l s
        ena osa iglia ona esco
        ara ente ivo
        ina ella etta ia
        ino ando eo ardo
        ania anian it""",
        """b c d g gw ll m n p r rh t tr br cad
        a e i o y
        - n r l th dd
        wern bryn fan wyth ddol
        wy aeth on
        wen nedd fair lys
        wyn dan fyr og
        awyn awynian cy""",
        """b d g h k l m n q r s t y z kh
        a e i o u ü
        - r n l m sh
        abad kent lar tepe
        su rud chay
        gül aneh ira em
        han bek dar oush
        estan estani tr""",
    )
)


class RegionName(NamedTuple):
    """A region's name and that of its capital, known without building the region."""

    name: str
    people: str
    """Adjective and name of its people."""
    capital: str
    script: str
    """ISO 639 code of the language whose script it is written in."""


def region_name(seed: int, index: int) -> RegionName:
    """Names of region `index`, different for every index below a hundred thousand."""
    sounds = PHONOLOGIES[index % len(PHONOLOGIES)]
    onsets = [onset for onset in sounds.onsets if onset]
    vowels = [vowel for vowel in sounds.vowels if vowel.isascii()]
    # Mixed-radix digits of a permuted index: no two regions share them. A stem can be parsed back
    # (every syllable is consonants and one vowel), so no two names are the same either.
    radices = (len(onsets), len(vowels), 4, len(onsets), len(vowels))
    total = 1
    for radix in radices:
        total *= radix
    # A prime above every `total`, so multiplying by it permutes.
    number = (index // len(PHONOLOGIES) * 999_983 + Draws(seed, "regions").below(total)) % total
    digits = []
    for radix in radices:
        number, digit = divmod(number, radix)
        digits.append(digit)
    first, vowel, coda, second, last = digits
    stem = onsets[first] + vowels[vowel] + "lnrm"[coda] + onsets[second]
    ending = sounds.region
    if ending[0] not in "aeiou":
        stem += vowels[last]
    else:
        stem += vowels[last] + "ltrn"[coda]
    capital = Namer(Draws(seed, "capital", index), sounds).name(sounds.towns)
    people = stem + sounds.people
    return RegionName((stem + ending).capitalize(), people.capitalize(), capital, sounds.script)


_NO_NAMES = frozenset({"None", "Null", "Nan", "Mao", "Lenin", "Stalin", "Hitler"})
"""Words that a name must not be by chance: a value that is missing, a person who is known."""


class Namer:
    """Makes names of one region, no two alike."""

    def __init__(self, draws: Draws, sounds: Phonology, *taken: str) -> None:
        self._draws = draws
        self._taken = set(taken)
        # Each region speaks with a part of its system's sounds: neighbours of a kind differ too.
        self._onsets = draws.some(sounds.onsets, 11)
        self._vowels = draws.some(sounds.vowels, 4)
        self._codas = sounds.codas

    def syllable(self) -> str:
        """One pronounceable syllable."""
        draws = self._draws
        coda = draws.pick(self._codas) if draws.chance(45) else ""
        return draws.pick(self._onsets) + draws.pick(self._vowels) + coda

    def name(self, endings: tuple[str, ...], *, syllables: int = 2) -> str:
        """A fresh name with one of the endings."""
        while True:
            ending = self._draws.pick(endings)
            stem = "".join(self.syllable() for _ in range(syllables - 1))
            stem += self._draws.pick(self._onsets)
            stem += self._draws.pick(self._vowels)
            if ending[0] in "aeiouåöéúüóíy":
                stem += self._draws.pick("nlrtm")
            name = (stem + ending).capitalize()
            if name not in self._taken and name not in _NO_NAMES:
                self._taken.add(name)
                return name

    def word(self) -> str:
        """A word of the region's language, in lower case."""
        return self.syllable() + self.syllable()


_LATIN = "abcdefghijklmnopqrstuvwxyz"
_CYRILLIC = dict(zip(_LATIN, "абцдефгхийклмнопкрстуввхыз", strict=True))
_GREEK = dict(zip(_LATIN, "αβκδεφγηιικλμνοπκρστυβωξυζ", strict=True))
_HAN = "山川木林石田水火金土月日花草竹松梅雪風雲海島谷里村町橋寺"


def gloss(name: str, script: str) -> str:
    """The name as the region's own script would write it, for `{{lang}}` templates."""
    if script == "ru":
        return "".join(_CYRILLIC.get(letter, letter) for letter in name.lower()).capitalize()
    if script == "el":
        return "".join(_GREEK.get(letter, letter) for letter in name.lower()).capitalize()
    if script == "ja":
        # Letters, not hash(): that one changes from process to process.
        return "".join(_HAN[(ord(a) * 7 + ord(b)) % len(_HAN)] for a, b in _pairs(name))
    return name


def _pairs(name: str) -> list[tuple[str, str]]:
    return list(zip(name[::2], name[1::2], strict=False))
