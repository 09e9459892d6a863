"""Events of a run, and listeners that fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fake_stages import LABELS, FakeStages

from flows.run.events import Event, RunFinished, StepFailed, StepFinished, StepSkipped
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from flows.store.runs import read_run, run_ids
from schemas.errors import InputError
from schemas.recipe import Recipe


class Recorder:
    """Listener that keeps the events of a run."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    @property
    def names(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


class Broken:
    """Listener that raises on every event."""

    def on_event(self, event: Event) -> None:
        raise ConnectionError("no server")


@pytest.fixture
def recipe(fakes: FakeStages, tmp_path: Path) -> Recipe:
    return fakes.recipe(str(tmp_path / "store"))


def test_each_step_starts_and_finishes_once(recipe: Recipe) -> None:
    recorder = Recorder()
    run_recipe(recipe, listeners=[recorder], engine="local")
    assert recorder.names == [
        "RunStarted",
        *["StepStarted", "StepFinished"] * len(LABELS),
        "RunFinished",
    ]
    finished = [event for event in recorder.events if isinstance(event, StepFinished)]
    assert [event.step.label for event in finished] == LABELS
    assert [list(event.remaining) for event in finished] == [
        LABELS[number:] for number in range(1, len(LABELS) + 1)
    ]


def test_cached_steps_finish_without_a_start(recipe: Recipe) -> None:
    run_recipe(recipe, listeners=[], engine="local")
    recorder = Recorder()
    run_recipe(recipe, listeners=[recorder], engine="local")
    assert recorder.names == ["RunStarted", *["StepFinished"] * len(LABELS), "RunFinished"]


def test_failed_step_skips_the_steps_that_need_it(recipe: Recipe, fakes: FakeStages) -> None:
    fakes.module.FAULTS["tokens"] = [InputError("bad tokens")]
    recorder = Recorder()
    with pytest.raises(InputError):
        run_recipe(recipe, listeners=[recorder], engine="local")
    (failed,) = (event for event in recorder.events if isinstance(event, StepFailed))
    assert (failed.step.label, failed.retry_delay) == ("build-tokens", None)
    skipped = [event for event in recorder.events if isinstance(event, StepSkipped)]
    assert [(event.step.label, event.missing) for event in skipped] == [
        (label, ("build-tokens",)) for label in LABELS[3:]
    ]
    last = recorder.events[-1]
    assert isinstance(last, RunFinished)
    assert (last.state, list(last.failures)) == ("failed", ["build-tokens"])


def test_transient_error_is_reported_with_the_delay_of_the_next_try(
    recipe: Recipe, fakes: FakeStages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.run.executor.RETRY_DELAYS", (0.0, 0.0))
    fakes.module.FAULTS["tokens"] = [ConnectionResetError("reset")]
    recorder = Recorder()
    run_recipe(recipe, listeners=[recorder], engine="local")
    (failed,) = (event for event in recorder.events if isinstance(event, StepFailed))
    assert failed.retry_delay == 0.0


def test_failing_listener_is_logged_and_fails_no_run(
    recipe: Recipe, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    results = run_recipe(recipe, listeners=[Broken(), recorder], engine="local")
    assert [result.label for result in results] == LABELS
    assert "Broken" in caplog.text
    assert recorder.names[-1] == "RunFinished"
    store = ArtifactStore(recipe.store)
    (run_id,) = run_ids(store)
    assert read_run(store, run_id).state == "completed"
