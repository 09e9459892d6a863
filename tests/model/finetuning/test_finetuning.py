"""The loop of one trial: what every kind, restart, micro-batch and resume must keep."""

from __future__ import annotations

import json
import shutil
import threading
from contextlib import closing
from pathlib import Path
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

from model.bert import BertModel
from model.data.batches import TokenBatch
from model.finetuning import trial
from model.finetuning.batches import TaskStep
from model.finetuning.jobs import CURVE_FILE, TrialJob
from model.finetuning.prediction import Predictor, answer
from model.finetuning.saved_models import load_task_model
from model.finetuning.setup import TrialSetup, open_trial
from model.finetuning.trial import train_trial
from model.tasks import TASKS
from model.tasks.examples import read_examples
from model.tasks.prediction_files import read_lines, to_lines
from model.training.checkpoints import Checkpoints
from model.training.distributed import ProcessGroup
from model.training.loop import Trainer
from model.training.progress import PROGRESS_FILE
from model.training.stopping import StopRequest
from pipelines.progress import ProgressUpdate
from pipelines.wordpiece.tokenizer import WordPieceTokenizer, tokenizer_config_json
from pipelines.wordpiece.vocab_files import (
    TOKENIZER_CONFIG_FILE,
    UNUSED,
    VOCAB_FILE,
    has_upper_case,
)
from schemas.errors import (
    CheckpointError,
    ConfigError,
    DivergenceError,
    TaskDataError,
    TrainingError,
)
from schemas.finetune_configs import FinetuneConfig, TrialConfig
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
    return [line["loss"] for line in curve(job)]


def curve(job: TrialJob) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (job.results() / CURVE_FILE).read_text().splitlines()]


def latest_step(job: TrialJob) -> int:
    latest = Checkpoints(f"{job.work}/checkpoints", keep_last=2).latest()
    return latest.info.step if latest else 0


@pytest.mark.parametrize("task", ["sst-2", "sts-b", "swag", "squad-1.1", "squad-2.0", "conll-2003"])
def test_every_task_type_learns(
    task: str, kinds: dict[str, StageInput], cased: str, tmp_path: Path
) -> None:
    # The pooled vector of random weights tells little at first.
    how = {"num_epochs": 30, "learning_rate": 1e-3} if task == "sst-2" else {"learning_rate": 3e-3}
    config = trial_config(cased, **{"num_epochs": 8, "dropout": 0.0, **how})
    job = trial_job(tmp_path, kinds[task], config=config)
    result = trained(job)
    assert losses(job)[-1] < 0.7 * losses(job)[0]
    metrics = result["statistics"]["metrics"]["dev"]
    assert set(TASKS[task].metrics) <= set(metrics)
    assert all(-1.0 <= value <= 1.0 for value in metrics.values())
    shown = ProgressUpdate(**json.loads((job.folder() / PROGRESS_FILE).read_text()))
    assert (shown.job, shown.unit) == (f"{job.name}: dev", "token")
    assert shown.done == shown.total > 0
    predictions = read_lines(str(job.results() / "predictions-dev.jsonl"))
    dev = read_examples(kinds[task], "dev")
    assert [item["id"] for item in predictions] == dev["id"].to_pylist()
    tuned = load_task_model(str(job.results()))
    assert tuned.model.kind == TASKS[task].type
    assert tuned.about["task"] == task
    assert tuned.about["lowercase"] is False
    assert (job.results() / VOCAB_FILE).read_text().splitlines() == list(CASED_VOCAB)
    tokenizer = (job.results() / TOKENIZER_CONFIG_FILE).read_text()
    assert tokenizer == tokenizer_config_json(lowercase=False)
    assert tuned.about["threshold"] == result["statistics"]["threshold"]
    assert result["counters"]["steps"] == result["statistics"]["training"]["steps"] > 0


def test_features_of_frozen_encoder_learn_and_are_computed_once(
    kinds: dict[str, StageInput], cased: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded_tokens: list[int] = []
    read = BertModel.forward

    def count_and_read(self: BertModel, tokens: TokenBatch, **options: Any) -> Any:
        encoded_tokens.append(int(tokens.lengths.sum()))
        return read(self, tokens, **options)

    monkeypatch.setattr(BertModel, "forward", count_and_read)
    how = {"method": "feature-based", "feature_layers": "last", "dropout": 0.0}
    config = trial_config(cased, num_epochs=8, learning_rate=1e-2, **how)
    job = trial_job(tmp_path, kinds["conll-2003"], config=config)
    result = trained(job)
    assert losses(job)[-1] < 0.5 * losses(job)[0]
    counters = result["counters"]
    assert sum(encoded_tokens) == counters["tokens@train"] + counters["tokens@dev"]
    assert result["statistics"]["model"]["feature_layers"] == "last"
    before, after = load_file(Path(cased) / "model.safetensors"), weights(job)
    shared = before.keys() & after.keys()
    assert len(shared) > 10
    assert all(torch.equal(after[name], before[name]) for name in shared)


@pytest.mark.parametrize("task", ["squad-2.0", "conll-2003"])
def test_dev_is_tokenized_once(
    task: str,
    kinds: dict[str, StageInput],
    cased: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts: list[int] = []
    encode = WordPieceTokenizer.encode_sentences

    def count_and_encode(self: WordPieceTokenizer, sentences: Any) -> Any:
        texts.append(len(sentences))
        return encode(self, sentences)

    monkeypatch.setattr(WordPieceTokenizer, "encode_sentences", count_and_encode)
    job = trial_job(tmp_path, kinds[task], config=trial_config(cased, max_steps=1, dropout=0.25))
    setup = open_trial(job)
    before = len(texts)
    predictor = trained(job) and Predictor.open(str(job.results()), device="cpu")
    assert len(texts) == before
    assert answer([predictor], setup.splits["dev"].examples)
    assert len(texts) - before <= before / 2


def test_restarts_differ_in_order_and_in_new_weights_alone(
    checkpoint: str, sst: StageInput, tmp_path: Path
) -> None:
    states, orders = [], []
    for restart in (0, 1):
        config = trial_config(checkpoint, restart=restart)
        setup = open_trial(trial_job(tmp_path / "work", sst, config=config))
        states.append(setup.model.state_dict())
        (phase,) = trial.phases_of(setup)
        steps = trial.steps_of(phase, setup, done=0)
        orders.append([unit for step in steps for unit in step.units])
    changed = {name for name, value in states[0].items() if not torch.equal(value, states[1][name])}
    assert changed == {"classifier.weight"}
    assert orders[0] != orders[1]
    first, second = orders[0][:40], orders[0][40:]
    assert sorted(first) == sorted(second) == list(range(40))
    assert first != second


def test_consecutive_trials_share_features_but_not_weights(
    sst: StageInput, kinds: dict[str, StageInput], tmp_path: Path
) -> None:
    folder = write_checkpoint(tmp_path / "bert")

    def opened(restart: int, examples: StageInput = sst) -> TrialSetup:
        config = trial_config(folder, restart=restart)
        return open_trial(trial_job(tmp_path / "work", examples, config=config))

    first, second = opened(0), opened(1)
    assert first.splits["train"].features is second.splits["train"].features
    with torch.no_grad():
        second.model.bert.embeddings.word.weight.zero_()
    words = first.model.bert.embeddings.word.weight
    assert torch.equal(opened(2).model.bert.embeddings.word.weight, words)
    assert opened(0, kinds["sts-b"]).splits["train"].features.kind == "regression"
    # Another checkpoint in the same folder is read.
    shutil.rmtree(folder)
    write_checkpoint(tmp_path / "bert", intermediate_size=48)
    assert opened(0).model.config.intermediate_size == 48


def test_last_batch_may_be_smaller_and_max_steps_ends_training(
    checkpoint: str, sst: StageInput, tmp_path: Path
) -> None:
    config = trial_config(checkpoint, batch_size=12, num_epochs=3)
    splits = {"train": text_rows(40, split="train")}
    no_dev = write_examples(tmp_path / "examples", "sst-2", splits=splits, labels=("0", "1"))
    result = trained(trial_job(tmp_path / "all", no_dev, config=config))
    assert result["statistics"]["metrics"] == {}
    assert any("dev" in note for note in result["notes"])
    assert result["statistics"]["training"] == {
        "steps": 12,  # 12 + 12 + 12 + 4 examples
        "examples": 120,
        "tokens": 3 * result["counters"]["tokens@train"],
    }
    job = trial_job(
        tmp_path / "short", sst, config=trial_config(checkpoint, batch_size=12, max_steps=5)
    )
    assert trained(job)["statistics"]["training"]["steps"] == 5
    lines = curve(job)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5]
    # A warm-up of 0.1 of 5 steps rounds to 0; the decay ends with the steps.
    assert [line["rate"] for line in lines] == pytest.approx([1e-3 * (1 - n / 5) for n in range(5)])
    assert lines[-1]["epoch"] == 1.25


def test_augmentation_has_a_schedule_of_its_own(checkpoint: str, tmp_path: Path) -> None:
    more = {"augmentation": text_rows(20, split="augmentation")}
    examples = sentiment(tmp_path / "examples", **more)
    job = trial_job(tmp_path / "work", examples, config=trial_config(checkpoint, warmup_ratio=0.5))
    result = trained(job)
    lines = curve(job)
    assert [line["split"] for line in lines] == ["augmentation"] * 3 + ["train"] * 10
    assert lines[0]["rate"] == lines[3]["rate"] == 0.0
    assert result["statistics"]["training"]["examples"] == 20 + 2 * 40
    none = trial_config(checkpoint, augmentation_epochs=0)
    without = trained(trial_job(tmp_path / "without", examples, config=none))
    assert without["statistics"]["training"]["examples"] == 80
    assert "examples@augmentation" not in without["counters"]


# Resume after a stop


def test_stop_while_dev_is_predicted_keeps_the_training(
    checkpoint: str, sst: StageInput, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = trial_job(tmp_path / "work", sst, config=trial_config(checkpoint))
    stop = StopRequest()
    run = Trainer.run

    def run_and_ask(self: Trainer[Any]) -> None:
        run(self)
        stop.request("SIGTERM")

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "run", run_and_ask)
        with pytest.raises(TrainingError, match="dev"):
            train_trial(job, stop=stop)
    assert latest_step(job) == 10
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", None)  # no step more is made
        trained(job)
    other = trial_job(tmp_path / "whole", sst, config=trial_config(checkpoint))
    trained(other)
    assert files(job) == files(other)


# Errors and messages


def test_divergence_names_step_and_examples(
    checkpoint: str, sst: StageInput, tmp_path: Path
) -> None:
    optimizer = trial_config(checkpoint).optimizer.model_copy(update={"max_grad_norm": 0.0})
    config = trial_config(checkpoint, learning_rate=1e37, warmup_ratio=0.0)
    job = trial_job(tmp_path, sst, config=config.model_copy(update={"optimizer": optimizer}))
    with pytest.raises(DivergenceError, match=r"step [23]: .*train-\d+") as error:
        trained(job)
    assert error.value.__notes__[0].count("train-") == 8


def test_long_sequences_are_refused_before_the_first_step(sst: StageInput, tmp_path: Path) -> None:
    short = write_checkpoint(tmp_path / "short", max_position_embeddings=8)
    job = trial_job(tmp_path / "work", sst, config=trial_config(short))
    with pytest.raises(ConfigError, match=r"max_seq_length.*max_position_embeddings"):
        trained(job)
    assert not (tmp_path / "work" / CURVE_FILE).exists()
    fitting = trial_config(short, max_seq_length=8)
    trained(trial_job(tmp_path / "fits", sst, config=fitting))


@pytest.mark.parametrize(
    ("splits", "missing"),
    [
        ({"train": [{**row, "label": None} for row in text_rows(8, split="train")]}, "label"),
        ({"train": []}, "train"),
    ],
)
def test_training_data_must_have_labels(
    splits: dict[str, Any], missing: str, checkpoint: str, tmp_path: Path
) -> None:
    examples = write_examples(tmp_path / "sst", "sst-2", splits=splits, labels=("0", "1"))
    with pytest.raises(TaskDataError, match=missing):
        trained(trial_job(tmp_path / "work", examples, config=trial_config(checkpoint)))


def test_casing_is_that_of_the_tokenizer(
    kinds: dict[str, StageInput], sst: StageInput, tmp_path: Path
) -> None:
    def opened(examples: StageInput, folder: str) -> Any:
        return open_trial(trial_job(tmp_path / "work", examples, config=trial_config(folder)))

    unstated = write_checkpoint(tmp_path / "unstated", lowercase=None)
    start = opened(sst, unstated)
    assert start.tokenizer.lowercase is True
    cased = write_checkpoint(tmp_path / "cased", lowercase=None, vocab=CASED_VOCAB)
    assert opened(sst, cased).tokenizer.lowercase is False
    # NER is cased in the paper; otherwise there is a note.
    notes = [len(opened(kinds["conll-2003"], folder).notes) for folder in (unstated, cased)]
    assert notes[0] == notes[1] + 1
    assert not has_upper_case(["[CLS]", *UNUSED, "##ing", "ß", "été"])
    assert has_upper_case(["a", "##S"])


def test_a_vocabulary_that_is_not_the_models_is_refused(sst: StageInput, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "bert")
    vocab = Path(folder, "vocab.txt")
    vocab.write_text(vocab.read_text() + "more\n")
    with pytest.raises(CheckpointError):
        trained(trial_job(tmp_path / "work", sst, config=trial_config(folder)))


def test_bilstm_trains_and_answers(
    kinds: dict[str, StageInput], checkpoint: str, tmp_path: Path
) -> None:
    config = trial_config(checkpoint, bilstm=True, max_steps=4)
    job = trial_job(tmp_path, kinds["squad-2.0"], config=config)
    output = trained(job)
    assert output["statistics"]["model"]["bilstm"] is True
    dev = read_examples(kinds["squad-2.0"], "dev")
    said = answer([Predictor.open(str(job.results()), device="cpu")], dev)
    assert to_lines(said) == (job.results() / "predictions-dev.jsonl").read_bytes()


def test_bilstm_is_in_key_and_refused_for_other_methods() -> None:
    options = {"examples": "task", "batch_size": 8, "learning_rate": 1e-3, "num_epochs": 1}
    options["model"] = {"preset": "tiny"}
    plain = TrialConfig.model_validate(options).cache_key_fields()
    on_top = TrialConfig.model_validate({**options, "bilstm": True}).cache_key_fields()
    assert on_top == {**plain, "bilstm": True}
    options = {"examples": "task", "method": "feature-based", "init_checkpoint": "x"}
    with pytest.raises(ValueError, match="bilstm"):
        FinetuneConfig.model_validate({**options, "bilstm": True})


def test_gpu_batches_are_prepared_and_pinned_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def pin(step: TaskStep) -> TaskStep:
        threads.append(threading.current_thread().name)
        return step

    monkeypatch.setattr(TaskStep, "pin_memory", pin)
    config = trial_config(write_checkpoint(tmp_path / "bert"))
    job = trial_job(tmp_path, sentiment(tmp_path / "examples"), config=config)
    checkpoints = Checkpoints(str(tmp_path / "checkpoints"), keep_last=1)
    trainer = trial.FineTuningTrainer(open_trial(job), checkpoints=checkpoints, stop=StopRequest())
    with closing(trainer):
        plain = [step.units.tolist() for step in trainer.batches()]
        trainer.group = ProcessGroup(0, 1, torch.device("cuda"))
        assert [step.units.tolist() for step in trainer.batches()] == plain
    assert len(threads) == len(plain)
    assert all(name.startswith("bertloom-prefetch") for name in threads)
