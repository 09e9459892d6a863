"""From sections of sentences to a wiki page with every kind of markup around them."""

from __future__ import annotations

from typing import Any

from flows.sample.draws import Draws
from flows.sample.wording import Section, pieces
from flows.sample.world import Entity

NEVER_PROSE = ("Quillmark", "Tallystone", "Itemward", "Platemark", "Navstone", "Boxstone",
               "Hatnoteworthy", "Unseenremark")  # fmt: skip
"""Words of `texts/markup.txt` that occur in what a cleaner drops, and nowhere else."""

_NUMBERS = {"many": (20, 400), "few": (2, 9), "year": (1510, 1890)}


class _Around:
    """What markup speaks of: the article's entity, and what is drawn when it is first named."""

    def __init__(self, entity: Entity, draws: Draws) -> None:
        self.e = entity
        self.kinds = f"{entity.kind.capitalize()}s"
        self.script = entity.region.sounds["script"]
        self._draws = draws
        self._first: dict[str, int] = {}

    def __setattr__(self, name: str, value: Any) -> None:  # what the bottom of a page is made of
        self.__dict__[name] = value

    def __getattr__(self, name: str) -> Any:
        found: Any
        if name in _NUMBERS:
            found = self._draws.between(*_NUMBERS[name])
        elif name in ("more", "later"):
            found = 1 + int(self.few if name == "more" else self.year)
        else:  # `town1`, `town2`, ...: different towns, one after the other from one that is drawn
            kind, things = name[:-1], self.e.region.of_kind[name[:-1]]
            if kind not in self._first:
                self._first[kind] = self._draws.below(len(things))
            found = things[(self._first[kind] + int(name[-1])) % len(things)]
        setattr(self, name, found)
        return found


def enrich(entity: Entity, sections: list[Section], draws: Draws, *, number: int) -> list[Section]:
    """The sections with a few sentences that carry templates or tags, kinds taken in turn."""
    inline, around = pieces("markup")["inline"], _Around(entity, draws)
    lead = sections[0].paragraphs[0]
    if number % 3 == 0:
        head, bold, tail = lead[0].rpartition("'''")
        lead[0] = f"{head}{bold}{pieces('markup')['gloss'][0](around, draws)}{tail}"
    for step in range(2):
        paragraphs = sections[1 + (number + step) % (len(sections) - 1)].paragraphs
        paragraphs[0].append(inline[(2 * number + step) % len(inline)](around, draws))
    return sections


def render(entity: Entity, sections: list[Section], draws: Draws, *, number: int) -> str:
    """The whole page."""
    forms, around = pieces("markup"), _Around(entity, draws)
    rows = forms.get(f"infobox.{entity.kind}")
    around.rows = f"\n{rows[0](around, draws)}" if rows else ""
    page = [forms["top"][number % 5](around, draws), forms["infobox"][0](around, draws)]
    for index, section in enumerate(sections):
        if section.heading:
            page.append(f"== {section.heading} ==" if number % 2 else f"=={section.heading}==")
        if index == 1 and number % 5 != 4:
            page.append(draws.pick(forms["file"])(around, draws))
        paragraphs = [_paragraph(sentences, draws, around) for sentences in section.paragraphs]
        if len(paragraphs) > 2:
            paragraphs.insert(1, f"=== {draws.pick(forms['subheading'])(around, draws)} ===")
        if len(paragraphs) > 4:
            paragraphs.insert(3, "==== Other matters ====")
        page += paragraphs
        if index in (1, 3):
            page.append(forms["blocks"][(number + index) % len(forms["blocks"])](around, draws))
    extras = {"reading": number % 4 == 0, "sort_key": entity.kind == "person",
              "languages": number % 3 == 0}  # fmt: skip
    for name, is_there in extras.items():
        setattr(around, name, forms[name][0](around, draws) if is_there else "")
    around.references = forms["references"][number % 2](around, draws)
    return "\n\n".join([*page, forms["bottom"][0](around, draws)])


def _paragraph(sentences: list[str], draws: Draws, around: _Around) -> str:
    # A reference at every sixth sentence or so, a remark to other authors now and then.
    forms = pieces("markup")
    remark, position = divmod(draws.below(24 * 6), 6)
    if position < len(sentences):
        sentences = [*sentences]
        sentences[position] += draws.pick(forms["reference"])(around, draws)
    if remark == 0:
        sentences = [sentences[0], forms["remark"][0](around, draws), *sentences[1:]]
    return " ".join(sentences)


def summary(entity: Entity, draws: Draws) -> str:
    """One line on an entity, for disambiguation pages and stubs."""
    forms = pieces("markup")
    return forms.get(f"summary.{entity.kind}", forms["summary"])[0](entity, draws)
