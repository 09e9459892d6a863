"""The step graph of a recipe: which stage runs, with which configuration, on which inputs."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from flows.run.stages import get_stage
from schemas.base_configs import Config
from schemas.errors import ConfigError
from schemas.stage import VARIADIC, Stage
from schemas.trial_names import entry_label


class UnknownStepError(ConfigError):
    """No step of a recipe has the requested name."""

    def __init__(self, pattern: str, *, known: Iterable[str]) -> None:
        """Find the closest of the known labels."""
        labels = list(dict.fromkeys(known))
        self.pattern = pattern
        self.suggestion: str = next(iter(difflib.get_close_matches(pattern, labels, n=1)), "")
        hint = f"did you mean {self.suggestion!r}?" if self.suggestion else ""
        entries = ", ".join(dict.fromkeys(entry_label(label) for label in labels))
        super().__init__(f"no step {pattern!r}; {hint or f'choose one of {entries}'}")


@dataclass(frozen=True)
class Step:
    """A stage with the configuration that a recipe gives it."""

    label: str
    """`build-tokens`, or `build-instances.NAME` where a recipe has several."""

    stage: Stage
    config: Config
    inputs: dict[str, str]
    """Label of the step that builds each input, by input name."""


class StepGraph:
    """Steps of a recipe in topological order."""

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        """Take steps, each after those that it reads."""
        self._steps = {step.label: step for step in steps}

    def __iter__(self) -> Iterator[Step]:
        return iter(self._steps.values())

    def __len__(self) -> int:
        return len(self._steps)

    def add(
        self, stage_name: str, config: Config, name: str = "", /, **inputs: Step | None
    ) -> Step:
        """Add a step after the steps that it reads, and return it.

        Args:
            stage_name: Name of the stage to run.
            config: Configuration of the stage.
            name: Entry of the recipe, where it has several steps of one stage.
            **inputs: Upstream step by input name. None: an optional input is absent.

        Raises:
            TypeError: A required input is missing, or the stage has no such input.
        """
        stage = get_stage(stage_name)
        upstream = {key: step.label for key, step in inputs.items() if step is not None}
        missing = {*stage.inputs} - {*upstream, VARIADIC}
        unknown = {*upstream} - {*stage.inputs, *stage.optional_inputs}
        if missing or (unknown and VARIADIC not in stage.inputs):
            raise TypeError(
                f"{stage.name}: expected inputs {stage.inputs}, optionally "
                f"{stage.optional_inputs}, got {tuple(upstream)}"
            )
        label = f"{stage.name}.{name}" if name else stage.name
        step = self._steps[label] = Step(label, stage, config, upstream)
        return step

    def get(self, stage: str, name: str | None = "") -> Step | None:
        """Return the step of a stage that was added before; None where `name` is None."""
        if name is None:
            return None
        return self._steps[f"{stage}.{name}" if name else stage]

    def select(self, pattern: str) -> set[str]:
        """Return the labels that match a label, a stage name or a label prefix: `finetune.cola`.

        Raises:
            UnknownStepError: Nothing matches; carries the closest label.
        """
        labels = {
            step.label
            for step in self
            if pattern in (step.label, step.stage.name) or step.label.startswith(f"{pattern}.")
        }
        if not labels:
            names = [name for s in self for name in (entry_label(s.label), s.stage.name, s.label)]
            raise UnknownStepError(pattern, known=names)
        return labels

    def select_all(self, patterns: Iterable[str]) -> frozenset[str]:
        """Return the labels that several patterns match; `all` matches every step.

        Raises:
            UnknownStepError: A pattern matches nothing.
        """
        everything = {step.label for step in self}
        return frozenset().union(
            *(everything if pattern == "all" else self.select(pattern) for pattern in patterns)
        )

    def with_upstream(self, labels: Iterable[str]) -> StepGraph:
        """Return the steps with these labels and everything that they read."""
        needed = set(labels)
        for step in reversed(self._steps.values()):
            if step.label in needed:
                needed.update(step.inputs.values())
        return StepGraph(step for step in self if step.label in needed)
