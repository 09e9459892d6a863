"""Functions that compiled models call without compiling them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def eager(function: Callable[P, R]) -> Callable[P, R]:
    """Exclude a function from compilation, like `torch.compiler.disable`.

    torch's decorator loads the compiler, which takes as long as torch itself, also in processes
    that compile nothing.
    """
    excluded: list[Callable[P, R]] = []

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not torch.compiler.is_compiling():
            return function(*args, **kwargs)
        if not excluded:
            excluded.append(torch.compiler.disable(function))  # type: ignore[no-untyped-call]
        return excluded[0](*args, **kwargs)

    return call
