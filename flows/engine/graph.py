"""The graph of a recipe: which steps each part of it adds, and who needs what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType

from flows.engine.stages import RecipeSteps, Step, steps_until, with_inputs
from schemas.recipe import Recipe
from schemas.stage import Stage

AddSteps = Callable[[Recipe, RecipeSteps], None]


class Graph:
    """The steps that a function adds to those of the parts before it."""

    def __init__(
        self,
        add_steps: AddSteps,
        *,
        flow_name: str,
        modules: Sequence[ModuleType] = (),
        after: Sequence[Graph] = (),
        is_whole: bool = False,
    ) -> None:
        """See `flows.orchestration.part.part`."""
        self.__name__, self.__doc__ = add_steps.__name__, add_steps.__doc__
        self.add_steps, self.flow_name, self.after = add_steps, flow_name, tuple(after)
        self.modules, self.is_whole = tuple(modules), is_whole

    @property
    def stages(self) -> list[Stage]:
        """The stages of its own steps, or all of the whole."""
        before = [stage for part in self.after for stage in part.stages] if self.is_whole else []
        return [*before, *(module.STAGE for module in self.modules)]

    def steps(self, recipe: Recipe, until: str = "") -> list[Step]:
        """Its steps and those that they need, each after those it reads from.

        Args:
            recipe: what would be run.
            until: a stage or a step: it and what it needs; "" for all.

        Raises:
            ConfigError: `until` names none.
        """
        found = RecipeSteps()
        for before in self.after:
            before.add_steps(recipe, found)
        inner = 0 if self.is_whole else len(list(found))
        self.add_steps(recipe, found)
        if until:
            return steps_until(list(found), until)
        return with_inputs(list(found), (step.label for step in list(found)[inner:]))

    def own(self, steps: Sequence[Step]) -> list[Step]:
        """Those of a run's steps that are of this part, and what they need of parts after it."""
        names = {stage.name for stage in self.stages}
        before = {stage.name for part in self.after for stage in part.stages}
        mine = (step.label for step in steps if step.stage.name in names)
        return [step for step in with_inputs(steps, mine) if step.stage.name not in before - names]
