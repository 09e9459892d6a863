"""Heads of fine-tuning: equal to transformers', one by one and in training; and how they start."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from support.batch_builder import VOCAB, random_model, small_config, write_files
from support.task_model_builder import (
    CHOICES,
    KINDS,
    OUTPUTS,
    UNITS,
    peer_answers,
    peer_from,
    random_task_model,
    real_places,
    task_batch,
    terms_of,
    units_of,
    written,
)
from torch.nn import functional

from model.encoder.dropout import Dropout, seed_dropout
from model.encoder.hf_weights import save_model
from model.finetuning.batches import TaskBatch
from model.finetuning.task_model import (
    TaskModel,
    new_task_model,
    task_model_from_checkpoint,
)
from model.optim.adam import has_decay
from model.optim.optimizer import build_optimizer
from schemas.errors import CheckpointError, TrainingError
from schemas.finetune_configs import TaskTypeName
from schemas.model_configs import OptimizerConfig

LAYOUTS = pytest.mark.parametrize("padded_length", [None, 40], ids=["packed", "padded"])
EACH_KIND = pytest.mark.parametrize("kind", KINDS)


def answers(model: TaskModel, batch: TaskBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits, of real tokens alone, and the mean loss."""
    output = model(batch, scale=1 / terms_of(batch))
    logits = output.logits[real_places(batch)] if model.kind == "span" else output.logits
    return logits, output.loss


@LAYOUTS
@EACH_KIND
def test_logits_and_loss_are_those_of_transformers(
    kind: TaskTypeName, padded_length: int | None, tmp_path: Path
) -> None:
    model = random_task_model(kind).eval()
    peer, _ = peer_from(written(model, tmp_path), kind)
    for equal in (False, True):
        batch = task_batch(kind, padded_length=padded_length, equal=equal)
        with torch.no_grad():
            logits, loss = answers(model, batch)
            peer_logits, peer_loss = peer_answers(peer.eval(), batch, kind)
        if kind == "span":
            peer_logits = peer_logits[real_places(batch)]
        assert logits.std() > 0.05  # else nothing is compared
        torch.testing.assert_close(logits, peer_logits, rtol=0, atol=1e-5)
        if kind != "span" or equal:  # their softmax of spans includes padding
            torch.testing.assert_close(loss, peer_loss, rtol=0, atol=1e-5)


def test_padding_takes_part_in_the_span_loss_of_transformers_and_not_in_ours(
    tmp_path: Path,
) -> None:
    model = random_task_model("span").eval()
    peer, _ = peer_from(written(model, tmp_path), "span")
    with torch.no_grad():
        _, packed = answers(model, task_batch("span"))
        _, padded = answers(model, task_batch("span", padded_length=40))
        _, theirs = peer_answers(peer.eval(), task_batch("span"), "span")
    torch.testing.assert_close(packed, padded, rtol=0, atol=1e-6)
    assert theirs > packed + 0.01


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
    assert float(output.loss_sum) == pytest.approx(total, abs=1e-5)


@LAYOUTS
@EACH_KIND
def test_twenty_steps_are_those_of_transformers_and_torch(
    kind: TaskTypeName, padded_length: int | None, tmp_path: Path
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
        batch = task_batch(kind, padded_length=padded_length, equal=kind == "span", seed=step % 3)
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


@LAYOUTS
@EACH_KIND
def test_micro_batches_add_up_to_the_batch(kind: TaskTypeName, padded_length: int | None) -> None:
    model = random_task_model(kind)
    whole = task_batch(kind, padded_length=padded_length)
    scale = 1 / terms_of(whole)
    output = model(whole, scale=scale)
    output.loss.backward()
    expected = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    packed = task_batch(kind)
    loss, loss_sum = 0.0, 0.0
    for first, stop in ((0, 1), (1, UNITS)):
        part = model(units_of(packed, kind, first=first, stop=stop), scale=scale)
        part.loss.backward()
        loss += float(part.loss.detach())
        loss_sum += float(part.loss_sum)
    assert loss == pytest.approx(float(output.loss.detach()), abs=1e-5)
    assert loss_sum * scale == pytest.approx(loss, abs=1e-5)
    assert not output.loss_sum.requires_grad
    for name, parameter in model.named_parameters():
        if name in expected:
            torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-4, atol=1e-6)


@EACH_KIND
def test_gradients_on_the_cpu_are_the_same_to_the_bit(kind: TaskTypeName) -> None:
    config = small_config(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    found = []
    for _ in range(2):
        model = random_task_model(kind, config=config, dropout=0.1)
        seed_dropout(model, 5)
        output = model(task_batch(kind))
        output.loss.backward()
        found.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    for name, gradient in found[0].items():
        assert torch.equal(gradient, found[1][name]), name


@LAYOUTS
@EACH_KIND
def test_under_autocast_logits_are_float32_and_close(
    kind: TaskTypeName, padded_length: int | None
) -> None:
    model = random_task_model(kind)
    batch = task_batch(kind, padded_length=padded_length)
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
def test_what_has_no_part_in_the_answer_requires_no_gradient(kind: TaskTypeName) -> None:
    model = random_task_model(kind)
    model(task_batch(kind)).loss.backward()
    without = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert (
        without
        == {
            "classification": set(),
            "regression": set(),
            "choice": {"classifier.bias"},
            "span": {"bert.pooler.weight", "bert.pooler.bias"},
            "tagging": {"bert.pooler.weight", "bert.pooler.bias"},
        }[kind]
    )
    for name, parameter in model.named_parameters():
        assert (parameter.grad is None) == (name in without), name


@EACH_KIND
def test_without_labels_there_is_no_loss(kind: TaskTypeName) -> None:
    model, batch = random_task_model(kind).eval(), task_batch(kind)
    output = model(batch._replace(labels=None))
    assert (output.loss, output.loss_sum) == (None, None)
    assert torch.equal(output.logits, model(batch).logits)
    expected = {
        "classification": (UNITS, 3),
        "regression": (UNITS,),
        "choice": (UNITS, CHOICES),
        "span": (len(batch.tokens.input_ids), 2),
        "tagging": (UNITS * 5, 5),
    }
    assert output.logits.shape == expected[kind]


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


@EACH_KIND
def test_a_new_model_is_a_function_of_its_seed(kind: TaskTypeName) -> None:
    def made(seed: int) -> TaskModel:
        return new_task_model(
            small_config(), vocab_size=VOCAB, kind=kind, outputs=OUTPUTS[kind], dropout=0.2,
            seed=seed,
        )  # fmt: skip

    one, again, other = (dict(made(seed).named_parameters()) for seed in (1, 1, 2))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["classifier.weight"], other["classifier.weight"])
    assert one["classifier.weight"].abs().max() <= 0.04  # cut at two standard deviations
    assert {m.rate for m in made(1).modules() if isinstance(m, Dropout)} == {0.2}
    assert made(1).config.hidden_dropout_prob == made(1).config.attention_probs_dropout_prob == 0.2


def start(folder: Path, *, kind: TaskTypeName = "classification", seed: int = 7) -> Any:
    return task_model_from_checkpoint(
        str(folder), kind=kind, outputs=OUTPUTS[kind], dropout=0.3, seed=seed
    )


def assert_same_encoder(model: Any, other: Any, *, pooler: bool = True) -> None:
    theirs = dict(other.bert.named_parameters())
    for name, value in model.bert.named_parameters():
        if pooler or not name.startswith("pooler."):
            assert torch.equal(value, theirs[name]), name


@EACH_KIND
def test_starting_from_a_pretrained_checkpoint(kind: TaskTypeName, tmp_path: Path) -> None:
    pretrained = random_model()
    started = start(write_files(save_model(pretrained), tmp_path), kind=kind)
    assert started.notes == ()
    assert_same_encoder(started.model, pretrained)
    new = TaskModel(
        small_config(), vocab_size=VOCAB, kind=kind, outputs=OUTPUTS[kind], seed=7
    ).classifier
    assert torch.equal(started.model.classifier.weight, new.weight)
    assert not started.model.classifier.bias.any()
    assert {m.rate for m in started.model.modules() if isinstance(m, Dropout)} == {0.3}
    again, other = start(tmp_path, kind=kind), start(tmp_path, kind=kind, seed=8)
    assert torch.equal(again.model.classifier.weight, new.weight)
    assert not torch.equal(other.model.classifier.weight, new.weight)


@pytest.mark.parametrize("before", KINDS)
def test_starting_from_a_model_of_another_task(before: TaskTypeName, tmp_path: Path) -> None:
    tuned = random_task_model(before)
    folder = written(tuned, tmp_path)
    for kind in KINDS:
        started = start(folder, kind=kind)
        has_pooler = before in ("classification", "regression", "choice")
        assert_same_encoder(started.model, tuned, pooler=has_pooler)
        assert not torch.equal(started.model.classifier.weight[:1], tuned.classifier.weight[:1])
        assert any("its head is ignored" in note for note in started.notes)
        draws = not has_pooler and kind in ("classification", "regression", "choice")
        assert any("pooler not in checkpoint" in note for note in started.notes) == draws
        if not has_pooler:
            new = random_task_model(kind, seed=7).bert.pooler.weight
            assert torch.equal(started.model.bert.pooler.weight, new)


def test_starting_from_the_encoder_alone_as_transformers_saves_it(tmp_path: Path) -> None:
    import transformers

    shape = transformers.BertConfig(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64,
    )  # fmt: skip
    with torch.random.fork_rng():
        peer = transformers.BertModel(shape).eval()
    peer.save_pretrained(tmp_path)
    started = start(tmp_path)
    assert started.notes == ()
    batch = task_batch("classification")
    model = started.model.eval()
    inputs = batch.tokens.input_ids[None, : batch.tokens.lengths[0]]
    segments = batch.tokens.segment_ids[None, : batch.tokens.lengths[0]]
    with torch.no_grad():
        pooled = peer(input_ids=inputs, token_type_ids=segments).pooler_output
        expected = functional.linear(pooled, model.classifier.weight, model.classifier.bias)
        torch.testing.assert_close(model(batch).logits[:1], expected, rtol=0, atol=1e-5)


@EACH_KIND
def test_a_causal_model_stays_causal(kind: TaskTypeName, tmp_path: Path) -> None:
    pretrained = random_model(objective="left-to-right")
    started = start(write_files(save_model(pretrained), tmp_path), kind=kind)
    model = started.model.eval()
    assert model.is_causal
    assert any("causal" in note for note in started.notes)
    batch = task_batch(kind)
    before = model(batch).logits
    last = int(batch.tokens.lengths[0]) - 1
    batch.tokens.input_ids[last] += 1
    after = model(batch).logits
    if kind in ("span", "tagging"):  # no token before the changed one sees it
        same = last if kind == "span" else int((batch.positions < last).sum())
        assert torch.equal(before[:same], after[:same])
    else:  # read at the last token: at [CLS] nothing would be seen of the text
        assert not torch.equal(before[0], after[0])
        assert torch.equal(before[1:], after[1:])


@LAYOUTS
def test_a_causal_model_beside_transformers(padded_length: int | None, tmp_path: Path) -> None:
    """Tags see their left context alone; a label is what their pooler makes of the last token."""
    tagger = random_task_model("tagging", is_causal=True).eval()
    peer, info = peer_from(written(tagger, tmp_path / "tagger"), "tagging")
    assert not any(info.values())
    batch = task_batch("tagging", padded_length=padded_length)
    with torch.no_grad():
        expected = peer_answers(peer.eval(), batch, "tagging")
        torch.testing.assert_close(answers(tagger, batch), expected, rtol=0, atol=1e-5)

    model = random_task_model("classification", is_causal=True).eval()
    peer, _ = peer_from(written(model, tmp_path / "classifier"), "classification")
    batch = task_batch("classification", padded_length=padded_length)
    first = int(batch.tokens.lengths[0])
    with torch.no_grad():
        sequence = peer.eval().bert(
            input_ids=batch.tokens.input_ids[None, :first],
            token_type_ids=batch.tokens.segment_ids[None, :first],
        )[0]
        logits = peer.classifier(torch.tanh(peer.bert.pooler.dense(sequence[0, -1])))
        torch.testing.assert_close(model(batch).logits[0], logits, rtol=0, atol=1e-5)


def test_checkpoint_of_another_architecture_is_refused(tmp_path: Path) -> None:
    folder = written(random_task_model("classification"), tmp_path)
    path = folder / "model.safetensors"
    tensors = load(path.read_bytes())
    missing = "bert.encoder.layer.1.output.dense.weight"
    path.write_bytes(save({name: t for name, t in tensors.items() if name != missing}))
    with pytest.raises(CheckpointError, match=missing):
        start(folder)
    path.write_bytes(save({**tensors, "crf.weight": torch.zeros(2)}))
    with pytest.raises(CheckpointError, match="crf"):
        start(folder)


@pytest.mark.parametrize(("kind", "outputs"), [("span", 3), ("choice", 4), ("tagging", 0)])
def test_wrong_number_of_outputs_is_refused(kind: TaskTypeName, outputs: int) -> None:
    with pytest.raises(TrainingError, match=kind):
        TaskModel(small_config(), vocab_size=VOCAB, kind=kind, outputs=outputs)


def test_batches_that_do_not_fit_are_refused() -> None:
    short = random_task_model("span", config=small_config(max_position_embeddings=16))
    with pytest.raises(TrainingError, match=r"25 .*16 "):
        short(task_batch("span"))
    batch = task_batch("choice")
    for kind, wrong in (
        ("choice", batch._replace(units=np.arange(5))),
        ("classification", batch),
        ("tagging", task_batch("tagging")._replace(positions=None)),
    ):
        with pytest.raises(TrainingError, match=kind):
            random_task_model(kind)(wrong)  # type: ignore[arg-type]


def test_a_label_past_the_end_of_its_sequence_is_no_token_of_the_next() -> None:
    batch = task_batch("span")
    assert batch.labels is not None
    batch.labels[0, 1] = int(batch.tokens.lengths[0])
    assert torch.isinf(random_task_model("span")(batch).loss)
