"""Training on a GPU: values, gradients, dropout, compilation, resuming, NCCL, and every head.

Needs a CUDA device. `BERTLOOM_TEST_DEVICE=cpu` tries the same code and its tolerances with the CPU
in its place. On a machine that has only what a training needs, run it without the fixtures of other
tests: `python -m pytest --noconftest -p no:cacheprovider tests/model/test_cuda.py`.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from functools import partialmethod
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from support.batch_builder import random_batch, random_model
from support.flash_on_cpu import register_flash_on_cpu
from support.generated_training import generated_job, logged_losses
from torch import nn

from model import bert
from model.attention import Dropout, SelfAttention, attention_layout, seed_dropout
from model.bert import Dense
from model.data.batches import PretrainingBatch
from model.optim import build_optimizer
from model.pretraining.loop import PretrainingTrainer, train
from model.training.distributed import ProcessGroup, choose_precision
from model.training.loop import compile_blocks, wrap_model
from model.training.stopping import StopRequest
from schemas.errors import TrainingError
from schemas.finetune_configs import TaskTypeName
from schemas.model_configs import ModelConfig, Objective, OptimizerConfig

DEVICE = torch.device(os.environ.get("BERTLOOM_TEST_DEVICE", "cuda"))
IS_CUDA = DEVICE.type == "cuda"
LENGTHS = (64, 19, 31, 12, 24, 57)
OBJECTIVES: list[Objective] = ["mlm+nsp", "left-to-right"]  # the second one is causal
KINDS: list[TaskTypeName] = ["classification", "regression", "choice", "span", "tagging"]

pytestmark = pytest.mark.skipif(
    IS_CUDA and not torch.cuda.is_available(), reason="needs a CUDA device"
)


@pytest.fixture(autouse=True)
def _exact_products(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep fp32 products in fp32, and digests out of the user's cache."""
    monkeypatch.setenv("BERTLOOM_CACHE", str(tmp_path / "cache"))
    before = torch.get_float32_matmul_precision()
    choose_precision("fp32", DEVICE)
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def flash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flash attention under bf16 autocast, also on a CPU."""
    if not IS_CUDA:
        register_flash_on_cpu()
        monkeypatch.setattr(
            bert, "_has_flash", lambda x, depth: torch.is_autocast_enabled(x.device.type)
        )


@pytest.fixture
def _fast_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile no C++ on a CPU."""
    if not IS_CUDA:
        compile_module = partialmethod(nn.Module.compile, backend="aot_eager")
        monkeypatch.setattr(nn.Module, "compile", compile_module)


def autocast(precision: str) -> torch.autocast:
    return torch.autocast(DEVICE.type, torch.bfloat16, enabled=precision == "bf16")


def relative_error(actual: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """Return the norm of all differences over the norm of all expected values."""
    a, b = (
        torch.cat([x.detach().cpu().double().flatten() for x in each])
        for each in (actual, expected)
    )
    return float((a - b).norm() / b.norm())


def loss_and_gradients(
    model: nn.Module, batch: PretrainingBatch, *, precision: str = "fp32"
) -> list[torch.Tensor]:
    """Return the loss and the gradients of all parameters that have one."""
    device = next(model.parameters()).device
    pairs = int((batch.next_sentence_labels >= 0).sum())
    with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
        loss = model(batch.to(device), len(batch.masked_ids), pairs).loss
    loss.backward()
    gradients = [p.grad for p in model.parameters() if p.requires_grad]
    model.zero_grad()
    return [loss, *cast("list[torch.Tensor]", gradients)]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_fp32_encoder_equals_cpu(objective: Objective) -> None:
    model, batch = random_model(objective=objective), random_batch(LENGTHS)
    positions = batch.masked_positions
    expected = model.bert(batch.tokens, positions=positions)
    actual = model.to(DEVICE).bert(batch.tokens.to(DEVICE), positions=positions.to(DEVICE))
    torch.testing.assert_close(actual.sequence.cpu(), expected.sequence, atol=1e-4, rtol=0)
    torch.testing.assert_close(actual.pooled.cpu(), expected.pooled, atol=1e-4, rtol=0)


@pytest.mark.usefixtures("flash")
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_bf16_flash_equals_fp32(objective: Objective) -> None:
    model = random_model(objective=objective).to(DEVICE)
    batch = random_batch(LENGTHS).to(DEVICE)
    expected = model.bert(batch.tokens, positions=batch.masked_positions)
    with autocast("bf16"):
        assert bert._has_flash(expected.sequence, depth=64)
        actual = model.bert(batch.tokens, positions=batch.masked_positions)
    assert relative_error([actual.sequence], [expected.sequence]) < 2e-2
    assert relative_error([actual.pooled], [expected.pooled]) < 2e-2


@pytest.mark.usefixtures("flash")
@pytest.mark.parametrize(("precision", "within"), [("fp32", 1e-4), ("bf16", 5e-2)])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_loss_and_gradients_equal_cpu(objective: Objective, precision: str, within: float) -> None:
    model, batch = random_model(objective=objective), random_batch(LENGTHS)
    expected = loss_and_gradients(model, batch)
    actual = loss_and_gradients(model.to(DEVICE), batch, precision=precision)
    assert relative_error(actual[:1], expected[:1]) < within / 2
    assert relative_error(actual[1:], expected[1:]) < within


@pytest.mark.usefixtures("flash", "_fast_compiler")
@pytest.mark.parametrize(("precision", "within"), [("fp32", 1e-4), ("bf16", 2e-2)])
def test_compiled_equals_eager(precision: str, within: float) -> None:
    eager = random_model().to(DEVICE)
    compiled = copy.deepcopy(eager)
    torch.compiler.reset()
    compile_blocks(compiled)
    for lengths in (LENGTHS, LENGTHS[:3]):
        batch = random_batch(lengths)
        expected = loss_and_gradients(eager, batch, precision=precision)
        actual = loss_and_gradients(compiled, batch, precision=precision)
        assert relative_error(actual, expected) < within


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_dropout_has_its_rate_and_depends_on_the_key(precision: str) -> None:
    """The tokens are unit vectors and attend equally, so that outputs show single probabilities."""
    width, count, rate = 64, 16, 0.1
    shape = {"num_hidden_layers": 1, "hidden_size": width, "num_attention_heads": 1}
    config = ModelConfig.model_validate({**shape, "attention_probs_dropout_prob": rate})
    attention = SelfAttention(config, is_causal=False, dense=Dense)
    with torch.no_grad():
        attention.qkv.weight[2 * width :] = attention.output.weight[:] = torch.eye(width)
    module = nn.ModuleList([attention, Dropout(rate)]).to(DEVICE).train()
    x = torch.eye(width, device=DEVICE).repeat(count, 1)
    layout = attention_layout(
        torch.full((count,), width).numpy(),
        heads=1,
        device=DEVICE,
        flash=IS_CUDA and precision == "bf16",
        has_dropout=True,
    )

    def draw(key: int) -> tuple[torch.Tensor, torch.Tensor]:
        seed_dropout(module, key)
        with autocast(precision), torch.no_grad():
            return attention(x, layout).float(), module[1](torch.ones_like(x))

    for full, drawn, again, other in zip((1 / width, 1.0), draw(1), draw(1), draw(2), strict=True):
        assert torch.equal(drawn, again)
        assert not torch.equal(drawn, other)
        assert float((drawn == 0).float().mean()) == pytest.approx(rate, abs=0.01)
        kept = drawn[drawn != 0]
        torch.testing.assert_close(
            kept, kept.new_full((), full / (1 - rate)).expand_as(kept), rtol=1e-2, atol=0
        )


@pytest.mark.usefixtures("_fast_compiler")
@pytest.mark.parametrize(
    ("changes", "within"),
    [({}, 1e-4), ({"precision": "bf16", "compile": True}, 2e-2)],
    ids=["fp32", "bf16-compiled"],
)
def test_20_steps_equal_cpu(tmp_path: Path, changes: dict[str, Any], within: float) -> None:
    losses = []
    for device, options in (("cpu", {}), (DEVICE.type, changes)):
        job = generated_job(tmp_path / f"on-{len(losses)}", device=device, dropout=0.0, **options)
        train(job, stop=StopRequest())
        losses.append(logged_losses(job))
    assert len(losses[0]) == 20
    assert losses[1] == pytest.approx(losses[0], rel=within)


def test_resumed_run_equals_uninterrupted_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [generated_job(tmp_path / n, device=DEVICE.type, dropout=0.1) for n in ("one", "two")]
    train(jobs[0], stop=StopRequest())
    stop = StopRequest()

    def stop_after_7(self: PretrainingTrainer) -> None:
        if self.done.steps == 7:
            stop.request("test")

    monkeypatch.setattr(PretrainingTrainer, "after_step", stop_after_7)
    with pytest.raises(TrainingError):
        train(jobs[1], stop=stop)
    assert len(logged_losses(jobs[1])) == 7
    train(jobs[1], stop=StopRequest())
    expected, actual = map(logged_losses, jobs)
    assert actual == pytest.approx(expected, rel=1e-4)


def test_one_process_of_nccl() -> None:
    batch, model = random_batch(LENGTHS), random_model().to(DEVICE)
    expected = loss_and_gradients(model, batch)
    dist.init_process_group(
        "nccl" if IS_CUDA else "gloo", store=dist.HashStore(), rank=0, world_size=1
    )
    try:
        # A world size of 2 makes the code communicate; the only peer is this process.
        group = ProcessGroup(0, 2, torch.device(DEVICE.type, 0) if IS_CUDA else DEVICE)
        wrapped = wrap_model(model, group=group)
        assert relative_error(loss_and_gradients(wrapped, batch), expected) < 1e-4
        assert group.all_reduce_tensor(torch.ones(2, device=group.device)).tolist() == [1.0, 1.0]
        group.barrier()
        del wrapped
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("lstm_hidden_size", [None, 12], ids=["plain", "bilstm"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("flash")
def test_fine_tuning_step_of_a_head_equals_cpu(
    kind: TaskTypeName, lstm_hidden_size: int | None, precision: str
) -> None:
    from support.task_model_builder import random_task_model, task_batch

    model = random_task_model(kind, lstm_hidden_size=lstm_hidden_size)
    check_fine_tuning_step(model, task_batch(kind), precision=precision)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.usefixtures("flash")
def test_step_of_the_feature_based_tagger_equals_cpu(precision: str) -> None:
    from support.task_model_builder import random_tagger, task_batch

    check_fine_tuning_step(random_tagger(), task_batch("tagging"), precision=precision)


def check_fine_tuning_step(model: Any, batch: Any, *, precision: str) -> None:
    """Compare the logits, the loss and the updated weights of one step with the CPU's."""
    from support.task_model_builder import terms_of

    results = []
    for device, used in ((torch.device("cpu"), "fp32"), (DEVICE, precision)):
        own = copy.deepcopy(model).to(device)
        before = [p.detach().clone() for p in own.parameters()]
        optimizer = build_optimizer(own.named_parameters(), OptimizerConfig(name="adamw"))
        with torch.autocast(device.type, torch.bfloat16, enabled=used == "bf16"):
            output = own(batch.to(device), scale=1 / terms_of(batch))
        output.loss.backward()
        gradients = [p.grad.clone() for p in own.parameters() if p.grad is not None]
        optimizer.step(learning_rate=1e-3)
        changes = [p.detach() - old for p, old in zip(own.parameters(), before, strict=True)]
        results.append(([output.logits], [output.loss], gradients, changes))
    within = 5e-3 if precision == "fp32" else 5e-2  # cuDNN's LSTM multiplies in TF32
    expected, actual = results
    for number in range(3):
        assert relative_error(actual[number], expected[number]) < within
    assert relative_error(actual[3], expected[3]) < 0.2  # Adam scales up tiny gradients
