"""The stage of one trial: artifact, raw inputs, resume after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest
import torch
from support.finetuning_builder import (
    SHAPE,
    sentiment,
    text_rows,
    trial_config,
    write_checkpoint,
)
from support.held_training import hold_before_checkpoint
from support.store_builder import as_given
from support.waiting import wait_until

from model.finetune import finetune, raw_inputs
from model.finetuning.jobs import CURVE_FILE, RECORDS
from model.finetuning.prediction import Predictor, answer
from model.tasks import TASKS
from model.tasks.examples import read_examples
from model.tasks.prediction_files import read_lines
from model.tasks.task_types import TASK_TYPES
from model.training import workers
from model.training.workers import stop_running_calls
from pipelines.wordpiece.vocab_files import TOKENIZER_CONFIG_FILE, VOCAB_FILE
from schemas.errors import MissingInputError, RunnerError, TrainingError
from schemas.execution_configs import ExecutionConfig
from schemas.finetune_configs import TrialConfig
from schemas.manifest import StageInput, StageOutput

pytestmark = pytest.mark.usefixtures("in_process")

CALL = workers.Worker.call
"""Call in a worker process, for the runs that a signal ends."""


def run(folder: Path, config: TrialConfig, **inputs: StageInput) -> StageOutput:
    return finetune(
        config,
        inputs=inputs,
        output=str(folder / "output"),
        execution=ExecutionConfig(),
        work=str(folder / "work"),
    )


def content(output: StageOutput) -> dict[str, str]:
    return {entry.path: entry.sha256 for entry in output.files if not entry.excluded_from_digest}


def test_artifact_is_a_model_with_its_tokenizer_and_scores(
    checkpoint: str, kinds: dict[str, StageInput], tmp_path: Path
) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    examples = kinds["sst-2"]
    config = trial_config(checkpoint, num_epochs=5, learning_rate=3e-3)
    output = run(tmp_path, config, examples=examples)
    model_files = {"config.json", "model.safetensors", "vocab.txt"}
    model_files |= {"tokenizer.json", "tokenizer_config.json"}
    results = {"curve.jsonl", "metrics.json", "predictions-dev.jsonl", "timing.json"}
    assert {entry.path for entry in output.files} == model_files | results
    assert {entry.path for entry in output.files if entry.excluded_from_digest} == RECORDS
    assert all(entry.stored_name == entry.path for entry in output.files)
    folder = tmp_path / "output"
    assert json.loads((folder / "metrics.json").read_text()) == output.statistics["metrics"]
    dev = read_examples(examples, "dev")
    predictions = read_lines(str(folder / "predictions-dev.jsonl"))
    again = TASK_TYPES["classification"].score(dev, predictions, task=TASKS["sst-2"])
    assert again == output.statistics["metrics"]["dev"]
    cell = {"batch_size": 8, "learning_rate": 3e-3, "num_epochs": 5, "restart": 0}
    assert output.statistics["cell"] == cell
    assert output.statistics["model"] == {
        name: SHAPE[name] for name in ("num_hidden_layers", "hidden_size", "num_attention_heads")
    }
    assert output.statistics["training"]["steps"] == 25
    assert "seconds" not in json.dumps(output.statistics)
    assert output.counters["examples@dev"] == 16
    assert {item.name for item in output.raw_inputs} >= {"vocab.txt", "tokenizer_config.json"}
    # transformers and our predictor read it and give the same answers.
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    theirs = AutoModelForSequenceClassification.from_pretrained(str(folder)).eval()
    for row, prediction in zip(dev.to_pylist(), predictions, strict=True):
        with torch.no_grad():
            logits = theirs(**tokenizer(row["text_a"], return_tensors="pt")).logits[0]
        shares = logits.softmax(-1).tolist()
        assert list(prediction["probabilities"].values()) == pytest.approx(shares, abs=1e-4)
    own = answer([Predictor.open(str(folder), device="cpu")], dev)
    assert [item["label"] for item in own] == [item["label"] for item in predictions]


def test_a_second_run_gives_the_same_bytes_and_a_restart_others(
    checkpoint: str, kinds: dict[str, StageInput], tmp_path: Path
) -> None:
    examples = kinds["squad-2.0"]
    first = run(tmp_path / "1", trial_config(checkpoint), examples=examples)
    again = run(tmp_path / "2", trial_config(checkpoint), examples=examples)
    assert content(first) == content(again)
    assert first.statistics == again.statistics
    assert first.counters == again.counters
    other = run(tmp_path / "3", trial_config(checkpoint, restart=1), examples=examples)
    assert content(other)["model.safetensors"] != content(first)["model.safetensors"]


def test_trial_starts_from_phase_folder_or_new_model(
    checkpoint: str, kinds: dict[str, StageInput], tmp_path: Path
) -> None:
    examples = kinds["sst-2"]
    from_folder = run(tmp_path / "folder", trial_config(checkpoint), examples=examples)
    config = trial_config(None, init_from_phase="phase-1")
    phase = as_given("checkpoint", checkpoint)
    from_phase = run(tmp_path / "phase", config, examples=examples, checkpoint=phase)
    assert content(from_phase) == content(from_folder)
    assert from_phase.raw_inputs == ()
    config = trial_config(None, model={**SHAPE, "hidden_size": 16}, init_from_phase=None)
    vocabulary = as_given("vocabulary", checkpoint).model_copy(
        update={"statistics": {"lowercase": True}}
    )
    scratch = run(tmp_path / "scratch", config, examples=examples, vocabulary=vocabulary)
    assert scratch.statistics["model"]["hidden_size"] == 16


def test_raw_inputs_are_the_files_of_the_checkpoint(checkpoint: str, tmp_path: Path) -> None:
    names = {item.name for item in raw_inputs(trial_config(checkpoint))}
    assert names == {"config.json", "model.safetensors", VOCAB_FILE, TOKENIZER_CONFIG_FILE}
    assert raw_inputs(trial_config(None, init_from_phase="phase")) == ()
    lacking = write_checkpoint(tmp_path / "lacking")
    Path(lacking, VOCAB_FILE).unlink()
    for folder in (str(tmp_path / "nothing"), lacking):
        with pytest.raises(MissingInputError, match=folder):
            raw_inputs(trial_config(folder))


def has_lines(folder: Path, count: int) -> bool:
    curve = folder / "work" / CURVE_FILE
    return curve.exists() and len(curve.read_bytes().splitlines()) >= count


def test_stopped_and_killed_trials_resume_exactly(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {"augmentation": text_rows(200, split="augmentation")}
    examples = sentiment(tmp_path / "examples", train=80, **more)
    config = trial_config(checkpoint, num_epochs=6, checkpoints={"save_steps": 20})
    errors: list[BaseException] = []
    terminate = subprocess.Popen.terminate

    def run_stopped() -> None:
        try:
            run(tmp_path / "stopped", config, examples=examples)
        except (TrainingError, RunnerError) as error:
            errors.append(error)

    def terminate_and_release(process: subprocess.Popen[bytes]) -> None:
        terminate(process)
        (tmp_path / "terminated").touch()

    # In the augmentation, which has 25 steps, and after it.
    for step, release, end in ((20, "terminated", stop_running_calls), (80, "never", kill_process)):
        held = hold_before_checkpoint(
            step, folder=tmp_path / f"held-{step}", release=tmp_path / release
        )
        with monkeypatch.context() as patch:
            patch.setattr(workers.Worker, "call", CALL)
            patch.setattr(subprocess.Popen, "terminate", terminate_and_release)
            patch.setenv("PYTHONPATH", held["PYTHONPATH"])
            thread = threading.Thread(target=run_stopped)
            thread.start()
            wait_until(
                lambda t=thread, n=step: not t.is_alive() or has_lines(tmp_path / "stopped", n)
            )
            end()
            thread.join(300)
    assert [type(error) for error in errors] == [TrainingError, RunnerError]
    assert "of 85" in str(errors[0])
    assert "SIGKILL" in str(errors[1])
    assert not (tmp_path / "stopped" / "output").exists()
    resumed = run(tmp_path / "stopped", config, examples=examples)
    whole = run(tmp_path / "whole", config, examples=examples)
    assert content(resumed) == content(whole)
    curves = [
        (tmp_path / name / "output" / CURVE_FILE).read_text() for name in ("stopped", "whole")
    ]
    assert curves[0] == curves[1]


def kill_process() -> None:
    [pid] = [process.popen.pid for w in workers._POOL.workers if (process := w._process)]
    os.kill(pid, signal.SIGKILL)
