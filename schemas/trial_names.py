"""Names of trials: `bs16-lr2e-05-ep3-r0` has batch size, learning rate, epochs and restart.

A prefix is the entry of the recipe or its step: `cola.bs16-lr2e-05-ep3-r0`,
`finetune.cola.bs16-lr2e-05-ep3-r0`.
"""

from __future__ import annotations

import re
from typing import Any

from schemas.finetune_configs import TrialConfig

AXES = ("batch_size", "learning_rate", "num_epochs", "restart")
"""Fields that distinguish the trials of a grid."""

_NAME = re.compile(r"(?:(?P<entry>.+)\.)?(?P<point>bs\d+-lr[\d.e-]+-ep\d+)-r\d+")


def trial_axes(config: TrialConfig) -> dict[str, Any]:
    """Return the fields that distinguish a trial from the others of its grid."""
    return {name: getattr(config, name) for name in AXES}


def trial_name(config: TrialConfig) -> str:
    """Return the name of a trial, unique in its grid."""
    rate = f"{config.learning_rate:g}"
    if float(rate) != config.learning_rate:
        rate = repr(config.learning_rate)
    return f"bs{config.batch_size}-lr{rate}-ep{config.num_epochs}-r{config.restart}"


def trial_entry(name: str) -> str:
    """Return the prefix of a trial's name: `a` for `a.bs16-lr2e-05-ep3-r0`; "" without a prefix."""
    match = _NAME.fullmatch(name)
    return (match["entry"] or "") if match else ""


def grid_point(name: str) -> str:
    """Return a trial's name without the restart: `a.bs16-lr2e-05-ep3`. Other names are returned."""
    return name.rpartition("-r")[0] if _NAME.fullmatch(name) else name


def entry_label(label: str) -> str:
    """Return a step's label without the trial: `finetune.cola` for `finetune.cola.bs16-...`."""
    return trial_entry(label) or label
