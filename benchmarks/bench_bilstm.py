"""A training step of the BiLSTM over windows of many lengths, next to torch's packed sequences.

    python -m benchmarks.bench_bilstm [--repeat 9] [--threads 1]

Both sides have the same weights and read the same 16 windows of 60 to 128 positions of 128 values,
with 128 units per direction, as in `ablation-tasks-sample`. A step computes outputs and all
gradients. Prints the median seconds per step and the ratio; the sides take turns. Fails if outputs
or gradients differ by more than 0.0001.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn.utils import rnn

from benchmarks.timing import parser_for, ratio, take_turns
from model.finetuning.window_lstm import WindowLSTM, lay_out_windows

_SIZE, _WINDOWS, _LONGEST = 128, 16, 128


def over_packed(peer: nn.LSTM, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Outputs (R, 2 L) of torch's layer on inputs (R, I), each window separately."""
    rows = rnn.pad_sequence(list(torch.split(x, counts.tolist())), batch_first=True)
    packed = rnn.pack_padded_sequence(rows, counts, batch_first=True, enforce_sorted=False)
    outputs, _ = rnn.pad_packed_sequence(peer(packed)[0], batch_first=True)
    return outputs[torch.arange(outputs.shape[1])[None, :] < counts[:, None]]


def step(
    layer: nn.Module, x: torch.Tensor, read: Callable[[], torch.Tensor]
) -> tuple[float, list[torch.Tensor]]:
    """Return the seconds of one step, and outputs and gradients."""
    layer.zero_grad()
    x.grad = None
    began = time.perf_counter()
    outputs = read()
    torch.autograd.backward(outputs.square().sum())
    seconds = time.perf_counter() - began
    gradients = [x.grad, *(parameter.grad for parameter in layer.parameters())]
    return seconds, [outputs.detach(), *(each.clone() for each in gradients if each is not None)]


def main() -> None:
    parser = parser_for(__doc__, repeat=9)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    draws = torch.Generator().manual_seed(0)
    counts = torch.randint(60, _LONGEST + 1, (_WINDOWS,), generator=draws)
    lengths = counts.numpy()
    positions = int(lengths.sum())
    windows = lay_out_windows(
        np.cumsum(lengths) - lengths, lengths, positions=positions, device=torch.device("cpu")
    )
    x = torch.randn(positions, _SIZE, generator=draws).requires_grad_()
    ours = WindowLSTM(_SIZE, units=_SIZE)
    ours.draw("lstm", seed=1)
    peer = nn.LSTM(_SIZE, _SIZE, bidirectional=True, batch_first=True)
    peer.load_state_dict(ours.state_dict())
    sides: dict[str, tuple[nn.Module, Callable[[], torch.Tensor]]] = {
        "ours": (ours, lambda: ours.over_windows(x, windows)),
        "torch, packed": (peer, lambda: over_packed(peer, x, counts)),
    }
    (_, gradients), (_, expected) = (step(layer, x, read) for layer, read in sides.values())
    for a, b in zip(gradients, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    steps = {name: partial(step, layer, x, read) for name, (layer, read) in sides.items()}
    rounds = take_turns(steps, repeat=options.repeat, warmup=0)
    seconds = {name: [spent for spent, _ in each] for name, each in rounds.items()}
    for name, each in seconds.items():
        print(f"{name:<14} {statistics.median(each) * 1000:7.1f} ms a step")
    print(f"ours is {ratio(seconds['ours'], seconds['torch, packed'])}")


if __name__ == "__main__":
    main()
