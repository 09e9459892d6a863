"""Heads of fine-tuning: equal to transformers', one by one and in training; and how they start."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.batch_builder import VOCAB, random_model, small_config, write_files
from support.task_model_builder import (
    KINDS,
    OUTPUTS,
    UNITS,
    peer_answers,
    peer_from,
    random_task_model,
    set_lstm,
    task_batch,
    terms_of,
    units_of,
    written,
)

from model.attention import Dropout, seed_dropout
from model.finetuning.batches import TaskBatch
from model.finetuning.task_model import (
    TaskModel,
    task_model_from_checkpoint,
    with_dropout,
)
from model.hf_weights import save_model
from model.optim import build_optimizer, has_decay
from schemas.finetune_configs import TaskTypeName
from schemas.model_configs import OptimizerConfig

UNITS_OF_LSTM = 12
LSTMS = pytest.mark.parametrize("lstm_hidden_size", [None, UNITS_OF_LSTM], ids=["dense", "bilstm"])
EACH_KIND = pytest.mark.parametrize("kind", KINDS)


def answers(model: TaskModel, batch: TaskBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and the mean loss."""
    output = model(batch, scale=1 / terms_of(batch))
    return output.logits, output.loss


@EACH_KIND
def test_logits_and_loss_are_those_of_transformers(kind: TaskTypeName, tmp_path: Path) -> None:
    model = random_task_model(kind).eval()
    peer, _ = peer_from(written(model, tmp_path), kind)
    for equal in (False, True):
        batch = task_batch(kind, equal=equal)
        with torch.no_grad():
            logits, loss = answers(model, batch)
            peer_logits, peer_loss = peer_answers(peer.eval(), batch, kind)
        assert logits.std() > 0.05  # else nothing is compared
        torch.testing.assert_close(logits, peer_logits, rtol=0, atol=1e-5)
        if kind != "span" or equal:
            torch.testing.assert_close(loss, peer_loss, rtol=0, atol=1e-5)
        else:  # their softmax of spans includes padding
            assert peer_loss > loss + 0.01
        output = model(batch._replace(labels=None))
        assert output.loss is None


def test_span_loss_by_hand() -> None:
    model = random_task_model("span").eval()
    batch = task_batch("span")
    with torch.no_grad():
        output = model(batch)
    assert batch.labels is not None
    total = 0.0
    ends = np.append(0, np.cumsum(batch.tokens.lengths))
    for row, (start, end) in enumerate(itertools.pairwise(ends)):
        own = torch.log_softmax(output.logits[start:end].double(), dim=0)
        total -= float(own[batch.labels[row, 0], 0] + own[batch.labels[row, 1], 1]) / 2
    assert float(output.loss) == pytest.approx(total, abs=1e-5)


@EACH_KIND
def test_twenty_steps_are_those_of_transformers_and_torch(
    kind: TaskTypeName, tmp_path: Path
) -> None:
    """Head, loss, gradients, clipping and AdamW together."""
    model = random_task_model(kind)
    peer, _ = peer_from(written(model, tmp_path), kind)
    peer.train()
    optimizer = build_optimizer(model.named_parameters(), OptimizerConfig(name="adamw"))
    decayed = [p for name, p in peer.named_parameters() if has_decay(name)]
    plain = [p for name, p in peer.named_parameters() if not has_decay(name)]
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}
    ]  # fmt: skip
    adamw = torch.optim.AdamW(groups, lr=1e-3, eps=1e-6)
    clipped, losses = 0, []
    for step in range(20):
        batch = task_batch(kind, equal=kind == "span", seed=step % 3)
        output = model(batch, scale=1 / terms_of(batch))
        output.loss.backward()
        _, peer_loss = peer_answers(peer, batch, kind)
        adamw.zero_grad()
        peer_loss.backward()
        torch.nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
        losses.append(float(output.loss.detach()))
        assert losses[-1] == pytest.approx(float(peer_loss.detach()), abs=1e-4), step
        clipped += optimizer.step(learning_rate=1e-3).item() > 1.0
        optimizer.zero_grad()
        adamw.step()
    assert clipped > 0
    assert np.mean(losses[-3:]) < 0.8 * np.mean(losses[:3])


@EACH_KIND
def test_micro_batches_add_up_to_the_batch(kind: TaskTypeName) -> None:
    model = random_task_model(kind)
    whole = task_batch(kind)
    scale = 1 / terms_of(whole)
    output = model(whole, scale=scale)
    output.loss.backward()
    expected = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    assert set(expected) == {n for n, p in model.named_parameters() if p.requires_grad}
    has_pooler = kind in ("classification", "regression", "choice")
    assert ("bert.pooler.weight" in expected) == has_pooler
    assert ("classifier.bias" in expected) == (kind != "choice")
    model.zero_grad()
    packed = task_batch(kind)
    loss = 0.0
    for first, stop in ((0, 1), (1, UNITS)):
        part = model(units_of(packed, kind, first=first, stop=stop), scale=scale)
        part.loss.backward()
        loss += float(part.loss.detach())
    assert loss == pytest.approx(float(output.loss.detach()), abs=1e-5)
    for name, parameter in model.named_parameters():
        if name in expected:
            torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-4, atol=1e-6)


@LSTMS
@EACH_KIND
def test_under_autocast_logits_are_float32_and_close(
    kind: TaskTypeName, lstm_hidden_size: int | None
) -> None:
    model = random_task_model(kind, lstm_hidden_size=lstm_hidden_size)
    batch = task_batch(kind)
    exact = model(batch, scale=1 / terms_of(batch))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(batch, scale=1 / terms_of(batch))
    output.loss.backward()
    assert output.logits.dtype == output.loss.dtype == torch.float32
    assert torch.isfinite(output.logits).all()
    torch.testing.assert_close(output.loss, exact.loss, rtol=0.05, atol=0.02)
    # Finer than bfloat16 holds.
    assert not torch.equal(output.logits, output.logits.bfloat16().float())
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all(), name


@EACH_KIND
def test_dropout_of_the_head(kind: TaskTypeName) -> None:
    """On the pooled vector or the tagged tokens; spans have none (run_squad.py)."""
    model = random_task_model(kind, dropout=0.5)
    batch = task_batch(kind)
    seed_dropout(model, 1)
    one, two = model(batch).logits, model(batch).logits
    assert torch.equal(one, two) == (kind == "span")
    model.eval()
    assert torch.equal(model(batch).logits, model(batch).logits)


def start(
    folder: Path, *, kind: TaskTypeName, seed: int = 7, lstm_hidden_size: int | None = None
) -> Any:
    return task_model_from_checkpoint(
        str(folder),
        kind=kind,
        outputs=OUTPUTS[kind],
        dropout=0.3,
        seed=seed,
        lstm_hidden_size=lstm_hidden_size,
    )


def assert_same_encoder(model: Any, other: Any, *, pooler: bool = True) -> None:
    theirs = dict(other.bert.named_parameters())
    for name, value in model.bert.named_parameters():
        if pooler or not name.startswith("pooler."):
            assert torch.equal(value, theirs[name]), name


@LSTMS
@EACH_KIND
def test_new_weights_are_those_of_the_seed(
    kind: TaskTypeName, lstm_hidden_size: int | None, tmp_path: Path
) -> None:
    pretrained = random_model()
    write_files(save_model(pretrained), tmp_path)
    states, fresh = [], []
    for seed in (7, 7, 8):
        model, notes = start(tmp_path, kind=kind, seed=seed, lstm_hidden_size=lstm_hidden_size)
        assert notes == []
        assert_same_encoder(model, pretrained)
        assert {m.rate for m in model.modules() if isinstance(m, Dropout)} == {0.3}
        states.append(model.state_dict())
        new = TaskModel(
            with_dropout(small_config(), 0.2), vocab_size=VOCAB, kind=kind, outputs=OUTPUTS[kind],
            dropout=0.2, seed=seed, lstm_hidden_size=lstm_hidden_size,
        )  # fmt: skip
        assert {m.rate for m in new.modules() if isinstance(m, Dropout)} == {0.2}
        assert new.classifier.weight.abs().max() <= 0.04  # cut at two standard deviations
        fresh.append(new.state_dict())
    for name in (name for name in states[0] if name.startswith(("classifier.", "lstm."))):
        assert torch.equal(states[0][name], fresh[0][name])
        assert torch.equal(states[0][name], states[1][name])
        assert torch.equal(states[0][name], states[2][name]) == (states[0][name].ndim == 1)


@pytest.mark.parametrize("before", KINDS)
def test_starting_from_a_model_of_another_task(before: TaskTypeName, tmp_path: Path) -> None:
    tuned = random_task_model(before)
    folder = written(tuned, tmp_path)
    for kind in KINDS:
        model, notes = start(folder, kind=kind)
        has_pooler = before in ("classification", "regression", "choice")
        assert_same_encoder(model, tuned, pooler=has_pooler)
        assert not torch.equal(model.classifier.weight[:1], tuned.classifier.weight[:1])
        assert any("its head is ignored" in note for note in notes)
        draws = not has_pooler and kind in ("classification", "regression", "choice")
        assert any("pooler not in checkpoint" in note for note in notes) == draws
        if not has_pooler:
            new = random_task_model(kind, seed=7).bert.pooler.weight
            assert torch.equal(model.bert.pooler.weight, new)


def test_a_causal_model_beside_transformers(tmp_path: Path) -> None:
    """Tags see their left context alone; a label is what their pooler makes of the last token."""
    files = save_model(random_model(objective="left-to-right"))
    model, notes = start(write_files(files, tmp_path), kind="span")
    assert model.is_causal
    assert any("causal" in note for note in notes)
    tagger = random_task_model("tagging", is_causal=True).eval()
    peer, info = peer_from(written(tagger, tmp_path / "tagger"), "tagging")
    assert not any(info.values())
    batch = task_batch("tagging")
    with torch.no_grad():
        expected = peer_answers(peer.eval(), batch, "tagging")
        torch.testing.assert_close(answers(tagger, batch), expected, rtol=0, atol=1e-5)

    model = random_task_model("classification", is_causal=True).eval()
    peer, _ = peer_from(written(model, tmp_path / "classifier"), "classification")
    batch = task_batch("classification")
    first = int(batch.tokens.lengths[0])
    with torch.no_grad():
        sequence = peer.eval().bert(
            input_ids=batch.tokens.input_ids[None, :first],
            token_type_ids=batch.tokens.segment_ids[None, :first],
        )[0]
        logits = peer.classifier(torch.tanh(peer.bert.pooler.dense(sequence[0, -1])))
        torch.testing.assert_close(model(batch).logits[0], logits, rtol=0, atol=1e-5)


def test_a_label_past_the_end_of_its_sequence_is_no_token_of_the_next() -> None:
    batch = task_batch("span")
    assert batch.labels is not None
    batch.labels[0, 1] = int(batch.tokens.lengths[0])
    assert torch.isinf(random_task_model("span")(batch).loss)


# BiLSTM on the encoder (Table 5, last row)


@EACH_KIND
def test_bilstm_is_that_of_torch_and_trains_the_encoder(kind: TaskTypeName) -> None:
    model = random_task_model(kind, lstm_hidden_size=UNITS_OF_LSTM, is_causal=True)
    whole = task_batch(kind)
    batch = units_of(whole, kind, first=0, stop=1)
    peer = torch.nn.LSTM(model.config.hidden_size, UNITS_OF_LSTM, num_layers=2, bidirectional=True)
    assert model.lstm is not None
    set_lstm(peer, model.lstm)
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
    result = model(batch)
    torch.testing.assert_close(
        result.logits.flatten(), model.classifier(chosen).flatten(), rtol=1e-4, atol=1e-5
    )
    result.loss.backward()
    without = {name for name, value in model.named_parameters() if value.grad is None}
    pooler = {"bert.pooler.weight", "bert.pooler.bias"}
    assert without == pooler | ({"classifier.bias"} if kind == "choice" else set())
    word = model.bert.embeddings.word.weight.grad
    assert word is not None
    assert bool((word[tokens.input_ids.unique()].abs().sum(1) > 0).all())


def test_dropout_of_a_bilstm_is_between_its_layers_and_before_the_head() -> None:
    model = random_task_model("classification", lstm_hidden_size=UNITS_OF_LSTM, dropout=0.5)
    batch = task_batch("classification")
    seed_dropout(model, 1)
    first, second = model(batch).logits, model(batch).logits
    seed_dropout(model, 1)
    assert torch.equal(model(batch).logits, first)
    assert not torch.equal(first, second)
    model.dropout.rate = 0.0
    assert not torch.equal(model(batch).logits, model(batch).logits)
    model.lstm_dropouts[0].rate = 0.0
    assert torch.equal(model(batch).logits, model(batch).logits)
