"""Print what a GPU machine is, as JSON: card, memory, driver, software."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
from typing import Any

import torch


def describe_machine() -> dict[str, Any]:
    """Return the machine's first GPU (None without one), its processor cores and its software."""
    return {
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "gpus": torch.cuda.device_count(),
        "gpu_bytes": torch.cuda.get_device_properties(0).total_memory
        if torch.cuda.is_available()
        else None,
        "driver": _driver(),
        "cuda": torch.version.cuda,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "packages": {
            name: _version(name) for name in ("numpy", "pyarrow", "pydantic", "transformers")
        },
    }


def _driver() -> str | None:
    if (command := shutil.which("nvidia-smi")) is None:
        return None
    query = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    result = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    return next(iter(result.stdout.split()), None)


def _version(name: str) -> str | None:
    """Return the version of a package; None if it came as an unpacked wheel or is missing."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    print(json.dumps(describe_machine(), indent=1))
