"""The fused losses against torch's own, in values and gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from model.encoder.losses import LossSums, next_sentence_loss, tied_decoder_loss

P, H, V = 37, 16, 211


def tensors(rows: int = P, *, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Hidden, weight, bias with random values, and labels of which two are ignored."""
    generator = torch.Generator().manual_seed(7)
    shapes = ((rows, H), (V, H), (V,))
    made = [
        torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes
    ]
    labels = torch.randint(0, V, (rows,), generator=generator)
    labels[3:5] = -100
    return [*made, labels]


def plain(given: list[Tensor], *, scale: float) -> tuple[Tensor, list[Tensor]]:
    """The loss as written in the books, and its gradients."""
    hidden, weight, bias, labels = given
    logits = functional.linear(hidden, weight, bias)
    loss = functional.cross_entropy(logits, labels, reduction="sum") * scale
    return loss, list(torch.autograd.grad(loss, (hidden, weight, bias)))


def fused(
    given: list[Tensor], *, scale: float, chunk_rows: int | None = None
) -> tuple[LossSums, list[Tensor]]:
    hidden, weight, bias, labels = given
    sums = tied_decoder_loss(
        hidden, weight, bias=bias, labels=labels, scale=scale, chunk_rows=chunk_rows
    )
    return sums, list(torch.autograd.grad(sums.loss, (hidden, weight, bias)))


@pytest.mark.parametrize("chunk_rows", [1, 5, 37, None])
def test_equals_plain_whatever_the_chunk(chunk_rows: int | None) -> None:
    given = tensors(dtype=torch.float64)
    expected, gradients = plain(given, scale=0.25)
    sums, found = fused(given, scale=0.25, chunk_rows=chunk_rows)
    torch.testing.assert_close(sums.loss, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(sums.nll_sum, expected.detach() / 0.25, rtol=1e-12, atol=1e-12)
    for one, other in zip(found, gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)


def test_factor_of_the_loss_scales_the_gradients() -> None:
    hidden, weight, bias, labels = tensors(dtype=torch.float64)
    sums = tied_decoder_loss(hidden, weight, bias=bias, labels=labels, scale=0.5)
    (sums.loss * 3.0).backward()
    _, expected = plain([hidden, weight, bias, labels], scale=1.5)
    for tensor, gradient in zip((hidden, weight, bias), expected, strict=True):
        torch.testing.assert_close(tensor.grad, gradient)


def test_counts_hits_and_labels() -> None:
    hidden, weight, bias, labels = tensors()
    best = functional.linear(hidden, weight, bias).argmax(1)
    labels[10:20] = best[10:20]
    sums = tied_decoder_loss(hidden, weight, bias=bias, labels=labels, scale=1.0, chunk_rows=7)
    assert int(sums.correct) == int((best == labels).sum()) >= 10
    equal = torch.zeros(2, H), torch.zeros(V, H), torch.zeros(V)  # the first of equal logits wins
    sums = tied_decoder_loss(*equal[:2], bias=equal[2], labels=torch.tensor([0, 1]), scale=1.0)
    assert int(sums.correct) == 1


@pytest.mark.parametrize("rows", [0, 2])
def test_loss_without_labels_is_zero(rows: int) -> None:
    hidden, weight, bias, _ = tensors(5)
    given = [hidden[:rows].detach().requires_grad_(), weight, bias, torch.full((rows,), -100)]
    sums, gradients = fused(given, scale=0.0)
    assert (float(sums.loss.detach()), float(sums.nll_sum), int(sums.correct)) == (0.0, 0.0, 0)
    assert [gradient.shape for gradient in gradients] == [tensor.shape for tensor in given[:3]]
    assert not any(gradient.any() for gradient in gradients)


def test_improbable_labels_have_finite_losses() -> None:
    """A softmax in float32 is 0 from 104 nats on, the loss is not infinite."""
    weight = torch.tensor([[300.0], [0.0], [-300.0]]).requires_grad_()
    hidden = torch.ones(2, 1).requires_grad_()
    given = [hidden, weight, torch.zeros(3).requires_grad_(), torch.tensor([2, 1])]
    sums, gradients = fused(given, scale=1.0)
    assert float(sums.nll_sum) == pytest.approx(900.0)
    torch.testing.assert_close(gradients[1], torch.tensor([[2.0], [-1.0], [-1.0]]))


def test_frozen_tensors_get_no_gradient() -> None:
    hidden, weight, bias, labels = tensors()
    with torch.no_grad():
        sums = tied_decoder_loss(hidden, weight, bias=bias, labels=labels, scale=1.0)
    assert not sums.loss.requires_grad
    frozen = [hidden, weight.detach(), bias.detach()]
    tied_decoder_loss(
        frozen[0], frozen[1], bias=frozen[2], labels=labels, scale=1.0
    ).loss.backward()
    _, expected = plain([hidden, weight, bias, labels], scale=1.0)
    torch.testing.assert_close(hidden.grad, expected[0], rtol=1e-5, atol=1e-5)
    assert frozen[1].grad is None


def test_a_second_backward_is_refused() -> None:
    hidden, weight, bias, labels = tensors()
    loss = tied_decoder_loss(hidden, weight, bias=bias, labels=labels, scale=1.0).loss
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="second through the same graph"):
        loss.backward()


@pytest.mark.parametrize("chunk_rows", [8, None])
def test_autocast_multiplies_in_bfloat16_and_sums_in_float32(chunk_rows: int | None) -> None:
    given = tensors()
    exact, exact_gradients = plain(given, scale=1 / P)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        sums, found = fused(given, scale=1 / P, chunk_rows=chunk_rows)
        _, rounded = plain(given, scale=1 / P)
    assert sums.nll_sum.dtype == torch.float32
    assert float(sums.loss.detach()) != float(exact.detach())  # bfloat16 was used
    assert float(sums.loss.detach()) == pytest.approx(float(exact.detach()), rel=5e-3)
    for one, plainly, true in zip(found, rounded, exact_gradients, strict=True):
        assert one.dtype == torch.float32
        ours, theirs = (float((g - true).norm() / true.norm()) for g in (one, plainly))
        assert ours < max(0.01, 1.5 * theirs)


def test_next_sentence_loss_ignores_what_has_no_label() -> None:
    logits = torch.tensor([[2.0, 1.0], [0.0, 3.0], [5.0, 0.0]]).requires_grad_()
    labels = torch.tensor([0, 0, -100])
    sums = next_sentence_loss(logits, labels, scale=0.5)
    expected = math.log(1 + math.exp(-1)) + math.log(1 + math.exp(3))
    assert float(sums.nll_sum) == pytest.approx(expected)
    assert float(sums.loss.detach()) == pytest.approx(expected / 2)
    assert int(sums.correct) == 1
    sums.loss.backward()
    assert logits.grad is not None
    assert not logits.grad[2].any()
