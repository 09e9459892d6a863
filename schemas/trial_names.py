"""Names of trials: `bs16-lr2e-05-ep3-r0` says batch size, learning rate, epochs and restart.

Before it stands, where there are others, the entry of the recipe or the step that it is a trial of:
`cola.bs16-lr2e-05-ep3-r0`, `finetune.cola.bs16-lr2e-05-ep3-r0`.
"""

from __future__ import annotations

import re
from typing import Any

from schemas.task_configs import TrialConfig

AXES = ("batch_size", "learning_rate", "num_epochs", "restart")
"""What tells a trial from the others of its grid: fields of its configuration."""

_NAME = re.compile(r"(?:(?P<entry>.+)\.)?(?P<point>bs\d+-lr[\d.e-]+-ep\d+)-r\d+")


def trial_axes(config: TrialConfig) -> dict[str, Any]:
    """What tells a trial from the others of its grid, by name."""
    return {name: getattr(config, name) for name in AXES}


def trial_name(config: TrialConfig) -> str:
    """The name of a trial within its grid. Other configurations of one grid have other names."""
    rate = f"{config.learning_rate:g}"
    if float(rate) != config.learning_rate:
        rate = repr(config.learning_rate)
    return f"bs{config.batch_size}-lr{rate}-ep{config.num_epochs}-r{config.restart}"


def trial_entry(name: str) -> str:
    """What a trial's name begins with: `a` of `a.bs16-lr2e-05-ep3-r0`; "" where it has none."""
    match = _NAME.fullmatch(name)
    return (match["entry"] or "") if match else ""


def grid_point(name: str) -> str:
    """A trial's name without the restart, `a.bs16-lr2e-05-ep3`; one that is no trial's as it is."""
    return name.rpartition("-r")[0] if _NAME.fullmatch(name) else name


def entry_label(label: str) -> str:
    """A step's label without the trial: `finetune.cola` of `finetune.cola.bs16-lr2e-05-ep3-r0`."""
    return trial_entry(label) or label
