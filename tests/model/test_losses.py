"""Sums of the pretraining losses: values, gradients, ignored rows, types."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from model import bert
from model.bert import cross_entropy_sums, tied_decoder_loss

P, H, V = 37, 16, 211


def _inputs(rows: int = P, *, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Hidden, weight, bias with random values, and labels of which two are ignored."""
    generator = torch.Generator().manual_seed(7)
    shapes = ((rows, H), (V, H), (V,))
    tensors = [torch.randn(s, generator=generator, dtype=dtype).requires_grad_() for s in shapes]
    labels = torch.randint(0, V, (rows,), generator=generator)
    labels[3:5] = -100
    return [*tensors, labels]


def _reference(inputs: list[Tensor], *, scale: float) -> tuple[float, list[Tensor]]:
    """Return the sum of losses and the gradients by their formulas, in float64."""
    hidden, weight, bias, labels = (tensor.detach().double() for tensor in inputs)
    labels = labels.long()
    has_label = labels >= 0
    probabilities = torch.softmax(hidden @ weight.T + bias, dim=1)
    one_hot = torch.zeros_like(probabilities)
    one_hot[has_label, labels[has_label]] = 1.0
    nll = -torch.log((probabilities * one_hot).sum(1)[has_label]).sum()
    slope = (probabilities - one_hot) * has_label[:, None] * scale
    return float(nll), [slope @ weight, slope.T @ hidden, slope.sum(0)]


@pytest.mark.parametrize("alignment", [1, 64])
def test_tied_decoder_loss_equals_formulas(alignment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bert._ALIGNMENT, "cpu", alignment)
    hidden, weight, bias, labels = inputs = _inputs(dtype=torch.float64)
    best = torch.nn.functional.linear(hidden, weight, bias).argmax(1)
    labels[10:20] = best[10:20]
    sums = tied_decoder_loss(hidden, weight, bias=bias, labels=labels, scale=0.25)
    nll, gradients = _reference(inputs, scale=0.25)
    assert float(sums.nll_sum) == pytest.approx(nll, rel=1e-12)
    assert float(sums.loss.detach()) == pytest.approx(nll / 4, rel=1e-12)
    assert int(sums.correct) == int((best == labels).sum()) >= 10
    actual = torch.autograd.grad(sums.loss, (hidden, weight, bias))
    for gradient, expected in zip(actual, gradients, strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("rows", [0, 2])
def test_loss_without_labels_is_zero(rows: int) -> None:
    hidden, weight, bias, _ = _inputs(5)
    tensors = [hidden[:rows].detach().requires_grad_(), weight, bias]
    labels = torch.full((rows,), -100)
    sums = tied_decoder_loss(tensors[0], weight, bias=bias, labels=labels, scale=0.0)
    assert (float(sums.loss.detach()), float(sums.nll_sum), int(sums.correct)) == (0.0, 0.0, 0)
    for tensor, gradient in zip(tensors, torch.autograd.grad(sums.loss, tensors), strict=True):
        assert gradient.shape == tensor.shape
        assert not gradient.any()


def test_autocast_multiplies_in_bfloat16_and_sums_in_float32() -> None:
    hidden, weight, bias, labels = inputs = _inputs()
    nll, gradients = _reference(inputs, scale=1 / P)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        sums = tied_decoder_loss(hidden, weight, bias=bias, labels=labels, scale=1 / P)
    assert sums.nll_sum.dtype == torch.float32
    assert float(sums.nll_sum) != pytest.approx(nll, rel=1e-6)  # bfloat16 was used
    assert float(sums.nll_sum) == pytest.approx(nll, rel=5e-3)
    actual = torch.autograd.grad(sums.loss, (hidden, weight, bias))
    for gradient, expected in zip(actual, gradients, strict=True):
        assert gradient.dtype == torch.float32
        assert (gradient - expected).norm() < 0.02 * expected.norm()


def test_rows_without_label_are_ignored() -> None:
    logits = torch.tensor([[2.0, 1.0], [0.0, 3.0], [5.0, 0.0], [1.0, 1.0]]).requires_grad_()
    sums = cross_entropy_sums(logits, torch.tensor([0, 0, -100, 1]), scale=0.5)
    expected = math.log(1 + math.exp(-1)) + math.log(1 + math.exp(3)) + math.log(2)
    assert float(sums.nll_sum) == pytest.approx(expected)
    assert float(sums.loss.detach()) == pytest.approx(expected / 2)
    assert int(sums.correct) == 1  # of equal logits, the first counts
    (gradient,) = torch.autograd.grad(sums.loss, logits)
    assert not gradient[2].any()
