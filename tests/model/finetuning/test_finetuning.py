"""The loop of one trial: what every kind, restart, micro-batch and resume must keep."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.finetuning_builder import (
    CASED_VOCAB,
    sentiment,
    text_rows,
    trial_config,
    trial_job,
    write_checkpoint,
    write_examples,
)
from support.paths import ROOT

import model.finetuning.loop
from model.finetuning.jobs import CURVE_FILE, TrialJob
from model.finetuning.loop import TrialTraining, train_trial
from model.finetuning.saved_models import load_task_model
from model.finetuning.setup import has_upper_case, open_trial
from model.processes.stopping import StopRequest
from model.task_types.prediction_files import read_lines
from model.tasks import TASKS
from model.tasks.examples import read_examples
from model.training.checkpoints import Checkpoints
from model.training.loop import Trainer
from pipelines.wordpiece.vocab_files import UNUSED
from schemas.errors import (
    CheckpointError,
    ConfigError,
    DivergenceError,
    ExamplesError,
    TrainingError,
)
from schemas.manifest import StageInput


@pytest.fixture(scope="module")
def cased(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("cased") / "bert"
    return write_checkpoint(folder, vocab=CASED_VOCAB, lowercase=False)


@pytest.fixture(scope="module")
def sst(tmp_path_factory: pytest.TempPathFactory) -> StageInput:
    return sentiment(tmp_path_factory.mktemp("sst"))


def files(job: TrialJob) -> dict[str, bytes]:
    """The results but for timings."""
    return {
        path.name: path.read_bytes()
        for path in sorted(job.results().iterdir())
        if path.name != "timing.json"
    }


def weights(job: TrialJob) -> dict[str, torch.Tensor]:
    return load_file(job.results() / "model.safetensors")


def trained(job: TrialJob) -> dict[str, Any]:
    return train_trial(job, stop=StopRequest())


def losses(job: TrialJob) -> list[float]:
    lines = (job.results() / CURVE_FILE).read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


@pytest.mark.parametrize("task", ["sst-2", "sts-b", "swag", "squad-1.1", "squad-2.0", "conll-2003"])
def test_every_kind_learns(
    task: str, kinds: dict[str, StageInput], cased: str, tmp_path: Path
) -> None:
    # The pooled vector of random weights tells little at first.
    how = {"num_epochs": 30, "learning_rate": 1e-3} if task == "sst-2" else {"learning_rate": 3e-3}
    config = trial_config(cased, **{"num_epochs": 8, "dropout": 0.0, **how})
    job = trial_job(tmp_path, kinds[task], config=config)
    found = trained(job)
    curve = losses(job)
    assert curve[-1] < 0.7 * curve[0]
    metrics = found["statistics"]["metrics"]["dev"]
    assert set(TASKS[task].metrics) <= set(metrics)
    assert all(-1.0 <= value <= 1.0 for value in metrics.values())
    predictions = read_lines(str(job.results() / "predictions-dev.jsonl"))
    dev = read_examples(kinds[task], "dev")
    assert [item["id"] for item in predictions] == dev["id"].to_pylist()
    # The artifact is a model that is read back with all that was said of it.
    tuned = load_task_model(str(job.results()))
    assert tuned.model.kind == TASKS[task].type
    assert tuned.about["task"] == task
    assert tuned.about["lowercase"] is False
    assert tuned.about["threshold"] == found["statistics"]["threshold"]
    assert found["counters"]["steps"] == found["statistics"]["training"]["steps"] > 0


def test_features_of_a_frozen_encoder_learn(
    kinds: dict[str, StageInput], cased: str, tmp_path: Path
) -> None:
    config = trial_config(
        cased,
        method="feature-based",
        feature_layers="last",
        num_epochs=8,
        learning_rate=1e-2,
        dropout=0.0,
    )
    job = trial_job(tmp_path, kinds["conll-2003"], config=config)
    found = trained(job)
    assert losses(job)[-1] < 0.5 * losses(job)[0]
    assert found["statistics"]["model"]["feature_layers"] == "last"
    before = load_file(Path(cased) / "model.safetensors")
    after = weights(job)
    same = [name for name in after if name in before]
    assert len(same) > 10
    assert all(torch.equal(after[name], before[name]) for name in same)


def test_what_is_learnt_shows_on_dev(checkpoint: str, tmp_path: Path) -> None:
    examples = sentiment(tmp_path / "examples", train=200, dev=40)
    config = trial_config(checkpoint, num_epochs=10, learning_rate=3e-3, dropout=0.0)
    found = trained(trial_job(tmp_path / "work", examples, config=config))
    assert found["statistics"]["metrics"]["dev"]["accuracy"] > 0.9


def test_its_seconds_are_those_of_pretraining(
    checkpoint: str, sst: StageInput, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    clock = SimpleNamespace(perf_counter=lambda: now[0], monotonic=time.monotonic)
    monkeypatch.setattr("model.training.loop.time", clock)
    batches = TrialTraining.batches

    def slow_batches(training: TrialTraining) -> Generator[Any]:
        for batch in batches(training):
            now[0] += 5.0  # to lay it out
            yield batch

    monkeypatch.setattr(TrialTraining, "batches", slow_batches)
    job = trial_job(tmp_path / "run", sst, config=trial_config(checkpoint, max_steps=3))
    train_trial(job, stop=StopRequest())
    assert json.loads((job.results() / "timing.json").read_bytes())["seconds"] == 15.0


def test_the_same_twice_and_restarts_differ(
    checkpoint: str, sst: StageInput, tmp_path: Path
) -> None:
    def run(name: str, **changes: Any) -> TrialJob:
        job = trial_job(tmp_path / name, sst, config=trial_config(checkpoint, **changes))
        trained(job)
        return job

    first, again = run("first"), run("again")
    assert files(first) == files(again)
    other, other_again = run("other", restart=1), run("other-again", restart=1)
    assert files(other) == files(other_again)
    assert not torch.equal(weights(first)["classifier.weight"], weights(other)["classifier.weight"])
    assert losses(first) != losses(other)
    assert losses(run("seed", seed=5)) != losses(first)


def test_a_restart_has_its_own_order_weights_and_dropout(
    checkpoint: str, sst: StageInput, tmp_path: Path
) -> None:
    def start(restart: int, **changes: Any) -> TrialTraining:
        config = trial_config(checkpoint, restart=restart, **changes)
        job = trial_job(tmp_path / "work", sst, config=config)
        found = Checkpoints(str(tmp_path / "none"), keep_last=1)
        return TrialTraining(open_trial(job), device=torch.device("cpu"), checkpoints=found)

    one, other = start(0), start(1)
    state, others = one.model.state_dict(), other.model.state_dict()
    assert not torch.equal(state["classifier.weight"], others["classifier.weight"])
    assert all(
        torch.equal(value, others[name])
        for name, value in state.items()
        if not name.startswith("classifier")
    )
    orders = [
        [
            unit
            for step in model.finetuning.loop.steps_of(training.phases[0], training.setup, done=0)
            for unit in step.units
        ]
        for training in (one, other)
    ]
    assert orders[0] != orders[1]
    first, second = orders[0][:40], orders[0][40:]
    assert sorted(first) == sorted(second) == list(range(40))
    assert first != second


@pytest.mark.parametrize("task", ["sst-2", "sts-b", "swag", "squad-1.1", "conll-2003"])
@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_micro_batches_are_the_whole_batch(
    task: str, layout: str, kinds: dict[str, StageInput], cased: str, tmp_path: Path
) -> None:
    found = {}
    for name, tokens, how in (("whole", 1 << 20, "packed"), ("parts", 30, layout)):
        # Without moments and with a plain step, so that weights differ as gradients do.
        config = trial_config(
            cased,
            dropout=0.0,
            per_device_max_tokens=tokens,
            batching=how,
            max_steps=2,
            warmup_ratio=0.0,
        )
        job = trial_job(tmp_path / name, kinds[task], config=config)
        trained(job)
        found[name] = (losses(job), weights(job))
    assert found["parts"][0] == pytest.approx(found["whole"][0], rel=1e-5)
    for name, tensor in found["whole"][1].items():
        # Adam's first updates are signs of gradients; where those are as good as 0, rounding
        # decides. So nearly all weights agree, not every one.
        close = torch.isclose(found["parts"][1][name], tensor, atol=1e-5)
        assert close.float().mean() > 0.98, name


def test_the_gradient_is_that_of_the_mean(checkpoint: str, sst: StageInput, tmp_path: Path) -> None:
    found = []
    for tokens in (1 << 20, 25):
        config = trial_config(checkpoint, dropout=0.0, per_device_max_tokens=tokens)
        start = open_trial(trial_job(tmp_path / "work", sst, config=config))
        (phase,) = model.finetuning.loop.phases_of(start)
        step = next(model.finetuning.loop.steps_of(phase, start, done=0))
        for part in step.micro_batches:
            start.model(part, scale=1.0 / step.count).loss.backward()
        found.append({n: p.grad for n, p in start.model.named_parameters() if p.grad is not None})
        assert (len(step.micro_batches) > 1) == (tokens == 25)
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, atol=1e-6, rtol=1e-4)


def test_the_last_batch_may_be_smaller_and_max_steps_cuts(
    checkpoint: str, sst: StageInput, tmp_path: Path
) -> None:
    config = trial_config(checkpoint, batch_size=12, num_epochs=3)
    found = trained(trial_job(tmp_path / "all", sst, config=config))
    assert found["statistics"]["training"] == {
        "steps": 12,  # 12 + 12 + 12 + 4 examples
        "examples": 120,
        "tokens": 3 * found["counters"]["tokens@train"],
    }
    job = trial_job(
        tmp_path / "cut", sst, config=trial_config(checkpoint, batch_size=12, max_steps=5)
    )
    assert trained(job)["statistics"]["training"]["steps"] == 5
    lines = [json.loads(line) for line in (job.results() / CURVE_FILE).read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5]
    # Warm-up of .1 of 5 steps is none; the decay ends where the steps end.
    assert [line["rate"] for line in lines] == pytest.approx([1e-3 * (1 - n / 5) for n in range(5)])
    assert lines[-1]["epoch"] == 1.25


def test_augmentation_is_a_fine_tuning_of_its_own(checkpoint: str, tmp_path: Path) -> None:
    more = {"augmentation": text_rows(20, split="augmentation")}
    examples = sentiment(tmp_path / "examples", **more)
    job = trial_job(tmp_path / "work", examples, config=trial_config(checkpoint, warmup_ratio=0.5))
    found = trained(job)
    lines = [json.loads(line) for line in (job.results() / CURVE_FILE).read_text().splitlines()]
    assert [line["split"] for line in lines] == ["augmentation"] * 3 + ["train"] * 10
    rates = [line["rate"] for line in lines]
    assert rates[0] == rates[3] == 0.0  # a schedule of its own
    assert found["statistics"]["training"]["examples"] == 20 + 2 * 40
    none = trial_config(checkpoint, augmentation_epochs=0)
    left_out = trained(trial_job(tmp_path / "without", examples, config=none))
    assert left_out["statistics"]["training"]["examples"] == 80
    assert "examples@augmentation" not in left_out["counters"]


# Going on after a stop


def start_process(job: TrialJob) -> subprocess.Popen[bytes]:
    code = (
        "import sys\n"
        "from model.finetuning.jobs import TrialJob\n"
        "from model.finetuning.loop import train_trial\n"
        "from model.processes.stopping import StopRequest\n"
        "with StopRequest() as stop:\n"
        "    train_trial(TrialJob.model_validate_json(sys.stdin.read()), stop=stop)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(job.model_dump_json().encode())
    process.stdin.close()
    process.stdin = None  # or communicate() would flush it
    return process


def wait_for_step(job: TrialJob, step: int, process: subprocess.Popen[bytes]) -> None:
    curve = Path(job.work) / CURVE_FILE
    end = time.monotonic() + 90
    while not curve.exists() or len(curve.read_bytes().splitlines()) < step:
        assert process.poll() is None, process.stderr.read().decode()  # type: ignore[union-attr]
        assert time.monotonic() < end
        time.sleep(0.002)


@pytest.mark.slow
def test_killed_it_goes_on_to_the_bit(checkpoint: str, tmp_path: Path) -> None:
    more = {"augmentation": text_rows(60, split="augmentation")}
    examples = sentiment(tmp_path / "examples", train=80, **more)
    config = trial_config(checkpoint, num_epochs=6, checkpoints={"save_steps": 7})
    whole = trial_job(tmp_path / "whole", examples, config=config)
    killed = trial_job(tmp_path / "killed", examples, config=config)
    trained(whole)
    # At three moments, wherever the process happens to be: perhaps before the first checkpoint, in
    # the augmentation or after it.
    resumed = 0
    for moment in (5, 16, 33):
        process = start_process(killed)
        wait_for_step(killed, moment, process)
        process.kill()
        process.communicate()
        latest = Checkpoints(f"{killed.work}/checkpoints", keep_last=2).latest()
        resumed = latest.saved.step if latest else 0
        assert resumed < 68
    assert not killed.results().exists()
    trained(killed)
    assert resumed >= 28
    assert files(killed) == files(whole)


def test_a_signal_stops_it_with_a_checkpoint(checkpoint: str, tmp_path: Path) -> None:
    examples = sentiment(tmp_path / "examples", train=80)
    config = trial_config(checkpoint, num_epochs=200)
    job = trial_job(tmp_path / "work", examples, config=config)
    process = start_process(job)
    wait_for_step(job, 3, process)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert b"TrainingError: finetune test: stopped after step" in said
    latest = Checkpoints(f"{job.work}/checkpoints", keep_last=2).latest()
    assert latest is not None
    assert latest.saved.step >= 3
    stop = StopRequest()
    stop.ask("SIGTERM")
    with pytest.raises(TrainingError, match=f"stopped after step {latest.saved.step} of 2000"):
        train_trial(job, stop=stop)


def test_a_stop_while_dev_is_answered_keeps_the_training(
    checkpoint: str, sst: StageInput, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = trial_job(tmp_path / "work", sst, config=trial_config(checkpoint))
    stop = StopRequest()
    run = Trainer.run

    def run_and_ask(self: Trainer[Any]) -> None:
        run(self)
        stop.ask("SIGTERM")

    monkeypatch.setattr(Trainer, "run", run_and_ask)
    with pytest.raises(TrainingError, match="dev: stopped"):
        train_trial(job, stop=stop)
    latest = Checkpoints(f"{job.work}/checkpoints", keep_last=2).latest()
    assert latest is not None
    assert latest.saved.step == 10
    monkeypatch.undo()
    monkeypatch.setattr(Trainer, "_step", None)  # no step more is made
    trained(job)
    other = trial_job(tmp_path / "whole", sst, config=trial_config(checkpoint))
    monkeypatch.undo()
    trained(other)
    assert files(job) == files(other)


def test_a_checkpoint_of_another_model_is_refused(
    checkpoint: str, sst: StageInput, tmp_path: Path
) -> None:
    config = trial_config(checkpoint, checkpoints={"save_steps": 5})
    trained(trial_job(tmp_path / "work", sst, config=config))
    other = write_checkpoint(tmp_path / "other", hidden_size=16)
    with pytest.raises(CheckpointError, match="does not fit the model"):
        trained(trial_job(tmp_path / "work", sst, config=trial_config(other)))


# What is refused, and what is said


def test_a_loss_that_is_not_finite_names_step_and_examples(
    checkpoint: str, sst: StageInput, tmp_path: Path
) -> None:
    config = trial_config(checkpoint, learning_rate=1e37, warmup_ratio=0.0)
    job = trial_job(
        tmp_path,
        sst,
        config=config.model_copy(
            update={"optimizer": config.optimizer.model_copy(update={"max_grad_norm": 0.0})}
        ),
    )
    with pytest.raises(
        DivergenceError, match=r"finetune test, step [23]: .* train-\d+, "
    ) as caught:
        trained(job)
    assert "Lower learning_rate" in str(caught.value)
    assert caught.value.__notes__[0].count("train-") == 8


def test_long_sequences_are_refused_before_the_first_step(sst: StageInput, tmp_path: Path) -> None:
    short = write_checkpoint(tmp_path / "short", max_position_embeddings=8)
    job = trial_job(tmp_path / "work", sst, config=trial_config(short))
    with pytest.raises(ConfigError, match=r"max_seq_length is 32.*max_position_embeddings") as said:
        trained(job)
    assert "positions for 8" in str(said.value)
    assert not (tmp_path / "work" / CURVE_FILE).exists()
    # It is the texts that count, not what they might have been.
    fitting = trial_config(short, max_seq_length=8)
    trained(trial_job(tmp_path / "fits", sst, config=fitting))


def test_training_data_must_have_labels(checkpoint: str, tmp_path: Path) -> None:
    rows = [{**row, "label": None} for row in text_rows(8, split="train")]
    unlabelled = write_examples(
        tmp_path / "unlabelled", "sst-2", splits={"train": rows}, labels=("0", "1")
    )
    with pytest.raises(ExamplesError, match="label"):
        trained(trial_job(tmp_path / "work", unlabelled, config=trial_config(checkpoint)))
    empty = write_examples(tmp_path / "empty", "sst-2", splits={"train": []}, labels=("0", "1"))
    with pytest.raises(ExamplesError, match="train"):
        trained(trial_job(tmp_path / "work", empty, config=trial_config(checkpoint)))
    only_dev = write_examples(
        tmp_path / "only-dev",
        "sst-2",
        splits={"dev": text_rows(4, split="dev")},
        labels=("0", "1"),
    )
    with pytest.raises(ExamplesError, match="train"):
        trained(trial_job(tmp_path / "work", only_dev, config=trial_config(checkpoint)))


def test_there_may_be_no_dev(checkpoint: str, tmp_path: Path) -> None:
    rows = text_rows(16, split="train")
    examples = write_examples(
        tmp_path / "examples", "sst-2", splits={"train": rows}, labels=("0", "1")
    )
    job = trial_job(tmp_path / "work", examples, config=trial_config(checkpoint))
    found = trained(job)
    assert found["statistics"]["metrics"] == {}
    assert any("no dev split" in note for note in found["notes"])
    assert not (job.results() / "predictions-dev.jsonl").exists()


def test_casing_is_what_the_tokenizer_says(
    kinds: dict[str, StageInput], sst: StageInput, tmp_path: Path
) -> None:
    def opened(examples: StageInput, folder: str) -> Any:
        return open_trial(trial_job(tmp_path / "work", examples, config=trial_config(folder)))

    silent = write_checkpoint(tmp_path / "silent", lowercase=None)
    start = opened(sst, silent)
    assert start.tokenizer.lowercase is True
    assert any("do_lower_case" in note and "uncased" in note for note in start.notes)
    cased = write_checkpoint(tmp_path / "cased", lowercase=None, vocab=CASED_VOCAB)
    assert opened(sst, cased).tokenizer.lowercase is False
    # NER was cased in the paper; where it is not, the artifact says so.
    notes = opened(kinds["conll-2003"], silent).notes
    assert any("is cased, this one uncased" in note for note in notes)
    notes = opened(kinds["conll-2003"], cased).notes
    assert not any("this one" in note for note in notes)
    assert not has_upper_case(["[CLS]", *UNUSED, "##ing", "ß", "été"])
    assert has_upper_case(["a", "##S"])


def test_a_vocabulary_that_is_not_the_models_is_refused(sst: StageInput, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "bert")
    vocab = Path(folder, "vocab.txt")
    vocab.write_text(vocab.read_text() + "more\n")
    with pytest.raises(CheckpointError):
        trained(trial_job(tmp_path / "work", sst, config=trial_config(folder)))


def test_features_are_for_tagging_alone(checkpoint: str, sst: StageInput, tmp_path: Path) -> None:
    config = trial_config(checkpoint, method="feature-based")
    with pytest.raises(ConfigError, match="expected a tagging task"):
        trained(trial_job(tmp_path, sst, config=config))


def test_bf16_trains(checkpoint: str, sst: StageInput, tmp_path: Path) -> None:
    jobs = {
        precision: trial_job(
            tmp_path / precision,
            sst,
            config=trial_config(checkpoint, precision=precision, dropout=0.0),
        )
        for precision in ("fp32", "bf16")
    }
    for job in jobs.values():
        trained(job)
    exact, rounded = losses(jobs["fp32"]), losses(jobs["bf16"])
    assert exact != rounded
    assert rounded == pytest.approx(exact, rel=0.05)


def test_a_trial_says_little(
    checkpoint: str, sst: StageInput, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        trained(trial_job(tmp_path, sst, config=trial_config(checkpoint)))
    lines = [record.getMessage() for record in caplog.records if "finetune" in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith("finetune test: dev accuracy ")
