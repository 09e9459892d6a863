"""Beats of a tale: short scenes about the world's people, each a few paragraphs of story."""

from __future__ import annotations

from flows.sample.draws import Draws
from flows.sample.entities import Person, Region, Town


class Teller:
    """Tells scenes of one tale; a wording comes back only when its pool has been used up."""

    def __init__(self, region: Region, draws: Draws) -> None:
        self.d = draws
        self.region = region
        self._decks: dict[str, list[int]] = {}
        self.hero, self.friend, self.rival = draws.some(region.persons, 3)
        self.thing = self.hero.masterpiece
        self.here: Town = self.hero.home
        self.there: Town = self.here

    def say(self, pool: str, options: tuple[str, ...]) -> str:
        """One of the options; the name of the pool remembers which were used."""
        deck = self._decks.get(pool)
        if not deck:
            deck = self._decks[pool] = self.d.shuffled(range(len(options)))
        return options[deck.pop()]

    def go(self, town: Town, after: Town) -> None:
        """Move the story to a town; `after` is where it will go next."""
        self.here, self.there = town, after

    def stranger(self) -> Person:
        """Somebody of the town, or of the region if the town has no one left."""
        cast = (self.hero, self.friend, self.rival)
        free = [p for p in self.region.persons if p not in cast]
        return self.d.pick([p for p in free if p.home is self.here] or free)
