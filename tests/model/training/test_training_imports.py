"""Trainings need few packages, so that they run on machines that have little more than torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.finetuning_builder import sentiment, trial_config, trial_job, write_checkpoint
from support.paths import ROOT
from support.training_builder import SmallCorpus, train_losses

PROGRAM = r"""
import re, sys
from importlib import metadata
from importlib.util import spec_from_loader

NEEDED = ["torch", "numpy", "pyarrow", "safetensors", "fsspec", "tqdm", "pydantic"]
OPTIONAL = ["dill"]  # torch imports it where it is installed

def with_dependencies(names, known):
    for name in names:
        name = re.split(r"[^\w.-]", name)[0].lower().replace("_", "-")
        if name not in known:
            known.add(name)
            try:
                requirements = metadata.requires(name) or []
            except metadata.PackageNotFoundError:
                continue
            with_dependencies([each for each in requirements if "extra ==" not in each], known)
    return known

class Refusal:
    def __init__(self):
        allowed = with_dependencies([*NEEDED, *OPTIONAL], {"bertloom"})
        self.names = {
            package
            for package, distributions in metadata.packages_distributions().items()
            if not allowed & {name.lower().replace("_", "-") for name in distributions}
        } - sys.stdlib_module_names

    def find_spec(self, name, path=None, target=None):
        # Others may look for a package, as torch does, but not import it.
        if name.partition(".")[0] in self.names:
            return spec_from_loader(name, self)

    def create_module(self, spec):
        raise ModuleNotFoundError(f"refused: {spec.name}", name=spec.name)

    def exec_module(self, module):
        pass

refusal = Refusal()
assert {"tokenizers", "tensorboard", "matplotlib", "prefect"} <= refusal.names
sys.meta_path.insert(0, refusal)
pretraining, trial = sys.argv[1:]

from model.training.stopping import StopRequest
from model.pretraining.process import main
from model.training.worker_process import _call

assert main(pretraining) == 0
assert "torch._dynamo" not in sys.modules  # it takes as long to load as torch
refusal.names.remove("tokenizers")  # fine-tuning tokenizes its examples
_call("model.finetuning.trial:train_trial", open(trial).read(), stop=StopRequest())
"""


def test_training_needs_only_torch_and_few_other_packages(
    small_corpus: SmallCorpus, tmp_path: Path
) -> None:
    job = small_corpus.job(
        tmp_path / "pretrain", budget={"max_steps": 20}, batch={"global_batch_size": 4}
    )
    examples = sentiment(tmp_path / "examples", train=16, dev=4)
    config = trial_config(write_checkpoint(tmp_path / "bert"))
    trial = trial_job(tmp_path / "trial", examples, config=config)
    files = []
    for each in (job, trial):
        files.append(Path(each.work) / "job.json")
        files[-1].parent.mkdir(parents=True)
        files[-1].write_text(each.model_dump_json())
    subprocess.run([sys.executable, "-c", PROGRAM, *map(str, files)], cwd=ROOT, check=True)
    assert len(train_losses(tmp_path / "pretrain")) == 20
    assert json.loads((trial.results() / "metrics.json").read_text())["dev"]
