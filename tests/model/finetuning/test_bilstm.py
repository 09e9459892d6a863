"""The BiLSTM on an encoder that is fine-tuned (Table 5, last row): what it reads and leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.batch_builder import random_model, small_config, write_files
from support.finetuning_builder import (
    CASED_VOCAB,
    trial_config,
    trial_job,
    write_checkpoint,
)
from support.task_model_builder import (
    KINDS,
    LABELS,
    OUTPUTS,
    UNITS,
    random_task_model,
    real_places,
    task_batch,
    units_of,
    written,
)

from model.encoder.dropout import seed_dropout
from model.encoder.hf_weights import save_model
from model.finetuning.loop import FineTuningModule, train_trial
from model.finetuning.prediction import Predictor, answer
from model.finetuning.saved_models import load_task_model, save_task_model
from model.finetuning.setup import open_trial
from model.finetuning.task_model import TaskModel, task_model_from_checkpoint
from model.launch.distributed import ProcessGroup
from model.launch.stopping import StopRequest
from model.task_types.prediction_files import to_lines
from model.tasks.examples import read_examples
from model.training.checkpoints import Checkpoints
from model.training.loop import Trainer
from schemas.errors import CheckpointError, TrainingError
from schemas.finetune_configs import FinetuneConfig, TaskTypeName, TrialConfig
from schemas.manifest import StageInput

EACH_KIND = pytest.mark.parametrize("kind", KINDS)
UNITS_OF_LSTM = 12

pytestmark = pytest.mark.usefixtures("one_thread")


def bilstm_model(kind: TaskTypeName, **fields: Any) -> TaskModel:
    return random_task_model(
        kind, **{"lstm_hidden_size": UNITS_OF_LSTM, "is_causal": True, **fields}
    )


def real(kind: TaskTypeName, logits: torch.Tensor, batch: Any) -> torch.Tensor:
    return logits[real_places(batch)] if kind == "span" else logits


@EACH_KIND
def test_packed_padded_and_one_by_one_are_the_same(kind: TaskTypeName) -> None:
    model = bilstm_model(kind).eval()
    packed, padded = task_batch(kind), task_batch(kind, padded_length=40)
    found, other = model(packed), model(padded)
    expected = {"span": (int(packed.tokens.lengths.sum()), 2), "tagging": (15, 5)}
    expected |= {"classification": (3, 3), "regression": (3,), "choice": (3, 4)}
    assert found.logits.shape == expected[kind]
    assert found.logits.std() > 0.01
    logits = real(kind, found.logits, packed)
    torch.testing.assert_close(real(kind, other.logits, padded), logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(other.loss, found.loss, rtol=0, atol=1e-4)
    alone = [model(units_of(packed, kind, first=n, stop=n + 1)).logits for n in range(UNITS)]
    torch.testing.assert_close(torch.cat(alone), found.logits, rtol=0, atol=1e-5)


@EACH_KIND
def test_it_reads_what_torchs_lstm_reads_and_trains_the_encoder(kind: TaskTypeName) -> None:
    model = bilstm_model(kind)
    batch = units_of(task_batch(kind), kind, first=0, stop=1)
    peer = torch.nn.LSTM(model.config.hidden_size, UNITS_OF_LSTM, num_layers=2, bidirectional=True)
    with torch.no_grad():
        for name, value in peer.named_parameters():
            number = name.split("_l")[1][0]
            own = dict(model.lstm[int(number)].named_parameters())  # type: ignore[index]
            value.copy_(own[name.replace(f"_l{number}", "_l0")])
    tokens = batch.tokens
    encoded = model.bert(tokens).sequence.split(tokens.lengths.tolist())
    read = [peer(sequence)[0] for sequence in encoded]
    if kind == "span":
        chosen = read[0]
    elif kind == "tagging":
        chosen = read[0][batch.positions]
    else:  # the forward direction at the last token, the backward one at the first
        half = UNITS_OF_LSTM
        chosen = torch.stack([torch.cat([each[-1, :half], each[0, half:]]) for each in read])
    found = model(batch)
    torch.testing.assert_close(
        found.logits.flatten(), model.classifier(chosen).flatten(), rtol=1e-4, atol=1e-5
    )
    found.loss.backward()
    without = {name for name, value in model.named_parameters() if value.grad is None}
    pooler = {"bert.pooler.weight", "bert.pooler.bias"}
    assert without == pooler | ({"classifier.bias"} if kind == "choice" else set())
    assert without == {name for name, value in model.named_parameters() if not value.requires_grad}
    word = model.bert.embeddings.word.weight.grad
    assert word is not None
    assert bool((word[tokens.input_ids.unique()].abs().sum(1) > 0).all())


def test_under_autocast_it_stays_float32_and_finer_than_bfloat16() -> None:
    model, batch = bilstm_model("span"), task_batch("span")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(batch)
    output.loss.backward()
    assert output.logits.dtype == torch.float32
    assert not torch.equal(output.logits, output.logits.bfloat16().float())


def test_dropout_lies_between_its_layers_and_before_the_head() -> None:
    model, batch = bilstm_model("classification", dropout=0.5).train(), task_batch("classification")
    seed_dropout(model, 1)
    first, second = model(batch).logits, model(batch).logits
    seed_dropout(model, 1)
    assert torch.equal(model(batch).logits, first)
    assert not torch.equal(first, second)
    model.dropout.rate = 0.0
    assert not torch.equal(model(batch).logits, model(batch).logits)
    model.lstm_dropouts[0].rate = 0.0
    assert torch.equal(model(batch).logits, model(batch).logits)


@EACH_KIND
def test_a_saved_model_is_read_back_and_says_what_it_is(kind: TaskTypeName, tmp_path: Path) -> None:
    import transformers

    model = bilstm_model(kind, dropout=0.25)
    folder = written(model, tmp_path / "tuned", task="own")
    found = load_task_model(str(folder))
    assert (found.labels, found.about) == (LABELS.get(kind, ()), {"task": "own"})
    assert isinstance(found.model, TaskModel)
    assert (found.model.kind, found.model.outputs, found.model.is_causal) == (
        kind, OUTPUTS[kind], True,
    )  # fmt: skip
    again = save_task_model(found.model, labels=found.labels, about=found.about)
    assert {name: (folder / name).read_bytes() for name in again} == again
    batch = task_batch(kind)
    assert torch.equal(found.model.eval()(batch).logits, model.eval()(batch).logits)
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["BertModel"]
    assert "no class of transformers has" in config["bertloom_bilstm"]["note"]
    peer, info = transformers.BertModel.from_pretrained(
        folder, add_pooling_layer=False, output_loading_info=True
    )
    assert not info["missing_keys"]
    if kind == "classification":
        ids = batch.tokens.input_ids[: batch.tokens.lengths[0]]
        segments = batch.tokens.segment_ids[: len(ids)]
        expected = peer.eval()(ids[None], token_type_ids=segments[None]).last_hidden_state[0]
        own = model.bert(batch.tokens).sequence[: len(ids)]
        torch.testing.assert_close(own, expected, rtol=0, atol=1e-5)


def test_no_class_of_transformers_takes_its_head_for_one_on_the_encoder(tmp_path: Path) -> None:
    import transformers

    model = bilstm_model("classification", lstm_hidden_size=small_config().hidden_size // 2)
    folder = written(model, tmp_path)
    peer, info = transformers.BertForSequenceClassification.from_pretrained(
        folder, output_loading_info=True
    )
    assert "classifier.weight" in info["missing_keys"]
    assert "bilstm.classifier.weight" in info["unexpected_keys"]
    assert not torch.equal(peer.classifier.weight, model.classifier.weight)


@pytest.mark.parametrize(
    "changes",
    [{"lstm_hidden_size": 11}, {"kind": "spam"}, {"lstm_hidden_size": None}, {"kind": "choice"}],
)
def test_damaged_folders_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    files = save_task_model(bilstm_model("span"), labels=(), about={})
    config = json.loads(files["config.json"])
    config["bertloom_bilstm"] |= changes
    files["config.json"] = json.dumps(config).encode()
    with pytest.raises((CheckpointError, TrainingError)):
        load_task_model(str(write_files(files, tmp_path)))


def test_from_a_checkpoint_its_weights_are_the_seeds(tmp_path: Path) -> None:
    pretrained = random_model(objective="left-to-right")
    folder = str(write_files(save_model(pretrained), tmp_path))

    def start(seed: int, lstm_hidden_size: int | None = UNITS_OF_LSTM) -> TaskModel:
        return task_model_from_checkpoint(
            folder,
            kind="classification",
            outputs=3,
            dropout=0.1,
            seed=seed,
            lstm_hidden_size=lstm_hidden_size,
        ).model

    one, same, other = start(5), start(5), start(6)
    assert one.is_causal
    weights = [dict(model.named_parameters()) for model in (one, same, other)]
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name])
        is_new = name.startswith(("lstm.", "classifier.")) and value.ndim == 2
        assert is_new != torch.equal(value, weights[2][name]), name
    assert one.lstm[0].bias_ih_l0.sum().item() == UNITS_OF_LSTM  # type: ignore[index]
    # A model from nothing draws the same.
    fresh = TaskModel(
        small_config(), vocab_size=one.vocab_size, kind="classification", outputs=3,
        lstm_hidden_size=UNITS_OF_LSTM, seed=5,
    )  # fmt: skip
    assert torch.equal(fresh.lstm[1].weight_hh_l0, one.lstm[1].weight_hh_l0)  # type: ignore[index]
    # Another training may start from its encoder.
    files = save_task_model(one, labels=("a", "b", "c"), about={})
    tuned = write_files(files, tmp_path / "tuned") if (tmp_path / "tuned").mkdir() is None else None
    next_one = task_model_from_checkpoint(
        str(tuned), kind="span", outputs=2, dropout=0.1, seed=1
    ).model
    assert torch.equal(next_one.bert.layers[0].output.weight, one.bert.layers[0].output.weight)


# Whole trials


@pytest.fixture(scope="module")
def cased(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("cased") / "bert"
    return write_checkpoint(folder, vocab=CASED_VOCAB, lowercase=False)


@pytest.mark.parametrize("task", ["sst-2", "squad-2.0"])
def test_a_trial_is_a_model_that_answers(
    task: str, kinds: dict[str, StageInput], cased: str, tmp_path: Path
) -> None:
    config = trial_config(cased, bilstm=True, batching="padded", max_steps=4)
    job = trial_job(tmp_path, kinds[task], config=config)
    found = train_trial(job, stop=StopRequest())
    assert found["statistics"]["model"]["bilstm"] is True
    predictor = Predictor.open(str(job.results()), device="cpu")
    dev = read_examples(kinds[task], "dev")
    said = to_lines(answer([predictor], dev))
    assert said == (job.results() / "predictions-dev.jsonl").read_bytes()


def test_stopped_it_goes_on_to_the_bit(
    kinds: dict[str, StageInput], cased: str, tmp_path: Path
) -> None:
    config = trial_config(cased, bilstm=True, max_steps=6, checkpoints={"save_steps": 3})
    whole = trial_job(tmp_path / "whole", kinds["squad-1.1"], config=config)
    train_trial(whole, stop=StopRequest())
    cut = trial_job(tmp_path / "cut", kinds["squad-1.1"], config=config)
    checkpoints = Checkpoints(f"{cut.work}/checkpoints", keep_last=2)
    stop, device = StopRequest(), torch.device("cpu")
    training = FineTuningModule(open_trial(cut), device=device, checkpoints=checkpoints)
    note = training.on_step_end

    def note_and_stop(*args: Any) -> None:
        note(*args)
        if training.steps == 4:
            stop.request("test")

    training.on_step_end = note_and_stop  # type: ignore[method-assign]
    with pytest.raises(TrainingError, match="test"):
        Trainer(
            training, group=ProcessGroup(0, 1, device), checkpoints=checkpoints, stop=stop
        ).run()
    training.logger.close()
    assert checkpoints.list()[-1].step == 4
    train_trial(cut, stop=StopRequest())
    weights = [job.results() / "model.safetensors" for job in (whole, cut)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_bilstm_is_in_key_and_refused_for_other_methods() -> None:
    options = {"examples": "task", "batch_size": 8, "learning_rate": 1e-3, "num_epochs": 1}
    options["model"] = {"preset": "tiny"}
    plain = TrialConfig.model_validate(options).cache_key_fields()
    on_top = TrialConfig.model_validate({**options, "bilstm": True}).cache_key_fields()
    assert on_top == {**plain, "bilstm": True}
    for method in ({"method": "majority"}, {"method": "feature-based", "init_checkpoint": "x"}):
        with pytest.raises(ValueError, match="bilstm"):
            FinetuneConfig.model_validate({"examples": "task", "bilstm": True, **method})
