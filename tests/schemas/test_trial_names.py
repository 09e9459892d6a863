"""Names of trials are parsed as they were written."""

from __future__ import annotations

import pytest

from schemas.finetune_configs import TrialConfig
from schemas.trial_names import entry_label, grid_point, trial_entry, trial_name


@pytest.mark.parametrize("rate", [2e-5, 1.0000001e-5, 0.001, 1.5, 3.0, 1e-12])
@pytest.mark.parametrize("entry", ["", "cola", "cola.b-r1.0", "bs8-lr2e-05-ep3-r0", "x.e3-r0"])
def test_name_is_parsed_as_it_was_written(rate: float, entry: str) -> None:
    config = TrialConfig(examples="x", batch_size=16, learning_rate=rate, num_epochs=3, restart=12)
    name = f"{entry}.{trial_name(config)}" if entry else trial_name(config)
    assert trial_entry(name) == entry
    assert f"{grid_point(name)}-r12" == name
    assert entry_label(f"finetune.{name}") == (f"finetune.{entry}" if entry else "finetune")
    assert float(trial_name(config).split("-lr")[1].split("-ep3")[0]) == rate


@pytest.mark.parametrize("name", ["build-tokens", "evaluate.cola", "pretrain.phase-1", "x.b8-r1"])
def test_other_labels_are_unchanged(name: str) -> None:
    assert (entry_label(name), grid_point(name), trial_entry(name)) == (name, name, "")
