"""The peak arithmetic of a device: from its data sheet, or measured where there is none."""

from __future__ import annotations

import re
import time
from typing import Literal, NamedTuple

import torch

Precision = Literal["fp32", "bf16"]
Format = Literal["bf16", "tf32", "fp32"]


class Peak(NamedTuple):
    """What a device could do at best in matrix products.

    Attributes:
        flops: per second; a multiply-add is two.
        source: `data sheet`, or `measured matmul`: the best of some products of large matrices on
            the device itself, which is less than its maker would promise.
        device: its name.
        format: what numbers are multiplied in.
    """

    flops: float
    source: Literal["data sheet", "measured matmul"]
    device: str
    format: Format


class _Sheet(NamedTuple):
    """TFLOP/s of dense matrix products, sums in fp32; None where the hardware has no such units."""

    bf16: float | None
    tf32: float | None
    fp32: float


# By the whole name that torch.cuda.get_device_name gives, so that a part of a GPU (MIG) or a
# laptop's namesake is measured and not taken for the real one. NVIDIA's own figures; its data
# sheets give those with sparsity for newer devices, twice the dense ones that stand here.
_SHEETS: dict[str, _Sheet] = {
    # HGX B200: data sheet "NVIDIA Blackwell HGX", per GPU
    r"NVIDIA B200": _Sheet(2250.0, 1100.0, 75.0),
    # "NVIDIA H200 Tensor Core GPU" data sheet, columns SXM and NVL
    r"NVIDIA H200": _Sheet(989.5, 494.5, 67.0),
    r"NVIDIA H200 NVL": _Sheet(835.5, 417.5, 60.0),
    # "NVIDIA H100 Tensor Core GPU" data sheet, columns SXM, NVL and (before 2024) PCIe
    r"NVIDIA H100 80GB HBM3": _Sheet(989.5, 494.5, 67.0),
    r"NVIDIA H100 NVL": _Sheet(835.5, 417.5, 60.0),
    r"NVIDIA H100 PCIe": _Sheet(756.5, 378.0, 51.0),
    # "NVIDIA GH200 Grace Hopper Superchip" data sheet
    r"NVIDIA GH200 (120|144G|480)\S*( HBM3e?)?": _Sheet(990.0, 494.5, 67.0),
    # "NVIDIA A100 Tensor Core GPU" data sheet, all forms alike
    r"(NVIDIA )?A100-(SXM4|SXM|PCIE|PG509)-\d+\w*": _Sheet(312.0, 156.0, 19.5),
    r"NVIDIA A100 80GB PCIe": _Sheet(312.0, 156.0, 19.5),
    # "NVIDIA A30", "A40" and "A10 Tensor Core GPU" data sheets
    r"(NVIDIA )?A30": _Sheet(165.0, 82.0, 10.3),
    r"(NVIDIA )?A40": _Sheet(149.7, 74.8, 37.4),
    r"(NVIDIA )?A10": _Sheet(125.0, 62.5, 31.2),
    # "NVIDIA L40S", "L40" and "L4 Tensor Core GPU" data sheets
    r"NVIDIA L40S": _Sheet(362.05, 183.0, 91.6),
    r"NVIDIA L40": _Sheet(181.05, 90.5, 90.5),
    r"NVIDIA L4": _Sheet(121.0, 60.0, 30.3),
    # "NVIDIA V100 Tensor Core GPU" data sheet; tensor cores for fp16 alone
    r"(NVIDIA )?(Tesla )?V100-SXM2-\d+GB(-LS)?": _Sheet(None, None, 15.7),
    r"(NVIDIA )?(Tesla )?V100-PCIE-\d+GB": _Sheet(None, None, 14.0),
    # "NVIDIA T4" data sheet; likewise
    r"(NVIDIA )?(Tesla )?T4": _Sheet(None, None, 8.1),
    # "NVIDIA Ada GPU Architecture" white paper, appendix A; products of bf16 summed in fp32
    r"NVIDIA GeForce RTX 4090": _Sheet(165.2, 82.6, 82.6),
    # "NVIDIA Ampere GA102 GPU Architecture" white paper, appendix A; likewise
    r"(NVIDIA )?GeForce RTX 3090": _Sheet(71.0, 35.6, 35.6),
    r"(NVIDIA )?RTX A6000": _Sheet(154.8, 77.4, 38.7),
}

_MEASURE_SECONDS = 0.25
_FIRST_SIZE = 256
_LARGEST_SIZE = {"cpu": 4096, "cuda": 8192}


def peak_flops(device: torch.device | str, *, precision: Precision) -> Peak | None:
    """The peak of one device in a precision of training.

    Devices that are not in the table are measured, in a quarter of a second, before training
    begins and at the current number of threads. So a GPU's peak memory is to be reset after it.

    Args:
        device: a CPU or CUDA device.
        precision: `bf16`, or `fp32`, which on GPUs that have tf32 is tf32 where torch may use it
            (torch.backends.cuda.matmul.fp32_precision).

    Returns:
        None for other kinds of devices.
    """
    device = torch.device(device)
    if device.type not in _LARGEST_SIZE:
        return None
    used = _format(device, precision=precision)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    if device.type == "cuda" and (promised := listed_peak(name, used=used)) is not None:
        return promised
    return Peak(measure_flops(device, precision=precision), "measured matmul", name, used)


def listed_peak(name: str, *, used: Format) -> Peak | None:
    """The peak that the maker states for a device of this name; None if it is not in the table."""
    for pattern, sheet in _SHEETS.items():
        if re.fullmatch(pattern, name):
            stated: float | None = getattr(sheet, used)
            return None if stated is None else Peak(stated * 1e12, "data sheet", name, used)
    return None


def _format(device: torch.device, *, precision: Precision) -> Format:
    if precision == "bf16":
        return "bf16"
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0):
        return "fp32"
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "fp32"


def measure_flops(
    device: torch.device | str, *, precision: Precision, seconds: float = _MEASURE_SECONDS
) -> float:
    """FLOPs per second of the fastest product of two square matrices that could be found.

    Sizes are doubled for as long as one product fits well into the time; the largest is repeated.
    """
    device = torch.device(device)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    end = time.perf_counter() + seconds
    best, size = 0.0, _FIRST_SIZE
    while True:
        # Not zeros: a GPU takes less power for them and runs faster than it would in training.
        values = torch.linspace(-1.0, 1.0, size * size, device=device, dtype=torch.float32)
        factor = values.to(dtype).view(size, size)
        _product_seconds(factor)  # the first of a size chooses and loads its kernel
        taken = min(_product_seconds(factor) for _ in range(2))
        best = max(best, 2 * size**3 / taken)
        left = end - time.perf_counter()
        is_largest = size >= _LARGEST_SIZE[device.type] or 4 * 8 * taken > left
        if is_largest:
            break
        size *= 2
    while time.perf_counter() + taken < end:
        taken = _product_seconds(factor)
        best = max(best, 2 * size**3 / taken)
    return best


def _product_seconds(factor: torch.Tensor) -> float:
    if factor.device.type == "cuda":
        torch.cuda.synchronize(factor.device)
    started = time.perf_counter()
    torch.mm(factor, factor)
    if factor.device.type == "cuda":
        torch.cuda.synchronize(factor.device)
    return time.perf_counter() - started
