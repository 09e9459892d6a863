"""The recipe of one artifact and what it was made from: read out of manifests, not of recipe files.

A manifest has its step's whole configuration, with defaults, variables and sweeps resolved. What a
recipe calls its entries is taken from the run that made the artifact, where the store has its
record, and else from what the configurations say of each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flows.reproduction.inputs import Place, PlacedFile, placed
from pipelines.find_contamination import EXAMPLES
from schemas.contamination_configs import ContaminationRules
from schemas.errors import ConfigError
from schemas.finetune_configs import TaskTrainingConfig, TrialConfig
from schemas.fingerprint import fingerprint
from schemas.manifest import Manifest
from schemas.trial_names import trial_name

_PLAIN = {
    "find-near-duplicates": "find_near_duplicates",
    "build-tokens": "build_tokens",
}
_PHASE = "pretrain."


@dataclass
class RecordedRecipe:
    """A recipe as raw data, the artifact that each of its steps made, and the files it reads."""

    data: dict[str, Any]
    steps: dict[str, Manifest] = field(default_factory=dict)
    """By label, each after those it reads from."""

    inputs: list[PlacedFile] = field(default_factory=list)
    target: str = ""
    """Label of the step that made the artifact."""


def recorded_recipe(
    target: Manifest, ancestors: Sequence[Manifest], *, labels: Mapping[str, str], name: str
) -> RecordedRecipe:
    """The recipe that makes an artifact and nothing else.

    Args:
        target: the artifact.
        ancestors: all that it was made from, itself or not.
        labels: labels of a run's steps by the paths of their manifests; may be empty.
        name: of the recipe.

    Raises:
        ConfigError: it was made of what no one recipe makes, as of two corpora.
    """
    reader = _Reader(ancestors, labels=labels, name=name)
    reader.recorded.target = reader.add(target)
    return reader.recorded


class _Reader:
    def __init__(
        self, ancestors: Sequence[Manifest], *, labels: Mapping[str, str], name: str
    ) -> None:
        self.by_id = {manifest.artifact_id: manifest for manifest in ancestors}
        self.labels = labels
        self.recorded = RecordedRecipe({"name": name, "build_instances": {}})
        self.data = self.recorded.data
        self._added: dict[str, str] = {}
        """Label by what an artifact holds and how it was made: rebuilt to the same it is one."""

    def add(self, manifest: Manifest, hint: str = "") -> str:
        """Add what made an artifact, after what it reads; its label.

        Args:
            manifest: of the artifact.
            hint: what those that read it call its entry.
        """
        same = _same(manifest)
        if same not in self._added:
            add = getattr(self, f"_{manifest.stage.replace('-', '_')}", self._single)
            self._added[same] = add(manifest, hint)
        return self._added[same]

    def _reads(self, manifest: Manifest, name: str, hint: str = "") -> str:
        """Add an input; the name of its entry, "" where there is no such input."""
        ref = manifest.input(name)
        return self.add(self.by_id[ref.artifact_id], hint).partition(".")[2] if ref else ""

    def _reads_all(self, manifest: Manifest) -> None:
        for ref in manifest.inputs:
            self._reads(manifest, ref.name)

    def _step(self, label: str, manifest: Manifest, at: Place) -> tuple[str, dict[str, Any]]:
        """Note a step; its label, and its configuration with the places of its files."""
        if (other := self.recorded.steps.get(label)) is not None:
            raise ConfigError(
                f"{label}: expected one artifact, found {other.artifact_id} and "
                f"{manifest.artifact_id}, which differ: it was made by more than one recipe, and "
                "no one recipe makes it again. Reproduce what it was made from, one by one"
            )
        config, files = placed(manifest, at, label=label)
        self.recorded.steps[label] = manifest
        self.recorded.inputs += files
        return label, config

    def _entry(self, manifest: Manifest, hint: str, otherwise: str) -> str:
        """A name for an entry that no other artifact of the stage has."""
        known = self.labels.get(manifest.path, "").removeprefix(f"{manifest.stage}.")
        name = wanted = known or hint or otherwise
        number = 2
        while f"{manifest.stage}.{name}" in self.recorded.steps:
            name, number = f"{wanted}-{number}", number + 1
        return name

    # Stages

    def _single(self, manifest: Manifest, _hint: str) -> str:
        if manifest.stage not in _PLAIN:
            raise ConfigError(
                f"{manifest.stage} {manifest.artifact_id}: no recipe makes artifacts of this stage"
            )
        self._reads_all(manifest)
        label, self.data[_PLAIN[manifest.stage]] = self._step(manifest.stage, manifest, "")
        return label

    def _build_documents(self, manifest: Manifest, _hint: str) -> str:
        label, self.data["build_documents"] = self._step(manifest.stage, manifest, "documents")
        return label

    def _build_vocabulary(self, manifest: Manifest, _hint: str) -> str:
        self._reads_all(manifest)
        label, self.data["build_vocabulary"] = self._step(manifest.stage, manifest, "vocabulary")
        return label

    def _find_contamination(self, manifest: Manifest, _hint: str) -> str:
        tasks = []
        for ref in manifest.inputs:
            hint = ref.name.removeprefix(EXAMPLES)
            entry = self._reads(manifest, ref.name, hint)
            tasks += [entry] if ref.name.startswith(EXAMPLES) else []
        label, config = self._step(manifest.stage, manifest, "")
        rules = {name: config[name] for name in ContaminationRules.model_fields if name in config}
        self.data["decontaminate"] = {**rules, "tasks": tasks}
        self.data.setdefault(  # which the search passes over as it would
            "build_tokens", {"remove_duplicates": config["remove_duplicates"]}
        )
        return label

    def _build_instances(self, manifest: Manifest, hint: str) -> str:
        self._reads_all(manifest)
        length = manifest.config.get("max_seq_length")
        entry = self._entry(manifest, hint, f"length-{length}")
        label, config = self._step(f"{manifest.stage}.{entry}", manifest, "")
        self.data["build_instances"][entry] = config
        return label

    def _pretrain(self, manifest: Manifest, hint: str) -> str:
        self._reads(manifest, "vocabulary")
        instances = self._reads(manifest, "instances", manifest.config.get("instances", ""))
        before = self._reads(manifest, "checkpoint", manifest.config.get("init_from_phase") or "")
        entry = self._entry(manifest, hint, "phase")
        label, config = self._step(f"pretrain.{entry}", manifest, f"checkpoints/pretrain.{entry}")
        config |= {"instances": instances, "init_from_phase": before or None}
        self.data.setdefault("pretrain", {})[entry] = config
        return label

    def _build_examples(self, manifest: Manifest, hint: str) -> str:
        entry = self._entry(manifest, hint, str(manifest.config.get("task", "task")))
        label, config = self._step(f"{manifest.stage}.{entry}", manifest, f"examples/{entry}")
        self.data.setdefault("build_examples", {})[entry] = config
        return label

    def _finetune(self, manifest: Manifest, hint: str) -> str:
        """One trial by itself."""
        trial = _trial(manifest)
        entry = self._entry(manifest, hint, "").removesuffix(trial).rstrip(".") or "tuned"
        return self._grid(entry, [manifest])[0]

    def _evaluate(self, manifest: Manifest, _hint: str) -> str:
        config, members = manifest.config, dict[str, list[Manifest]]()
        entry = config["entry"]
        for ref in manifest.inputs:
            if ref.name == "examples":
                self._reads(manifest, ref.name, config.get("examples", ""))
                continue
            trial = self.by_id[ref.artifact_id]
            member = ref.name.removesuffix(_trial(trial)).rstrip(".") or entry
            members.setdefault(member, []).append(trial)
        starts = str(config.get("start", "")).split(", ")
        for name, trials in members.items():
            self._grid(name, trials, starts=starts)
        if list(members) == [entry]:
            self.data["finetune"][entry]["ensemble_size"] = config["ensemble_size"]
        else:
            chosen = {"members": list(members), "ensemble_size": config["ensemble_size"]}
            self.data.setdefault("ensembles", {})[entry] = chosen
        return self._step(f"evaluate.{entry}", manifest, "")[0]

    def _grid(
        self, entry: str, trials: Sequence[Manifest], *, starts: Sequence[str] = ()
    ) -> list[str]:
        """An entry of `finetune` with some trials, which are all of its grid; their labels."""
        first, labels = trials[0], list[str]()
        examples = self._reads(first, "examples", first.config.get("examples", ""))
        phase = self._reads(first, "checkpoint", first.config.get("init_from_phase") or "")
        self._reads(first, "vocabulary")
        for trial in trials:
            label = f"finetune.{entry}.{_trial(trial)}"
            labels.append(label)
            if label not in self.recorded.steps:  # which an ensemble may read besides its own
                place = f"checkpoints/finetune.{entry}" if trial is first else None
                _, config = self._step(label, trial, place)
                if trial is first:
                    common = config
            elif trial is first:
                return labels
        axes = [trial.config for trial in trials]
        last = self.data["pretrain"][phase]["budget"]["max_steps"] if phase else None
        # A trial from a phase's last step is one that names no step; its entry may have named it.
        last_step = last if f"{phase} at step {last}" in starts else None
        self.data.setdefault("finetune", {})[entry] = {
            **{name: common[name] for name in TaskTrainingConfig.model_fields if name in common},
            "examples": examples,
            "init_from_phase": phase or None,
            "init_from_step": common.get("init_from_step") or last_step,
            **{
                axis: list(dict.fromkeys(config[axis] for config in axes))
                for axis in ("batch_size", "learning_rate", "num_epochs")
            },
            "restarts": 1 + max(config["restart"] for config in axes),
        }
        return labels

    def _tabulate(self, manifest: Manifest, _hint: str) -> str:
        for ref in manifest.inputs:
            phase = ref.name.removeprefix(_PHASE)
            self._reads(manifest, ref.name, phase if phase != ref.name else "")
        label, config = self._step(manifest.stage, manifest, "")
        if config["axes"]:
            self.data["sweep"] = {
                axis: {"table": one["table"], "variants": {name: {} for name in one["variants"]}}
                for axis, one in config["axes"].items()
            }
            self.data["expanded_sweep"] = config[
                "expanded_sweep"
            ]  # carried out: entries are as it made them
        return label


def _trial(manifest: Manifest) -> str:
    return trial_name(TrialConfig.model_validate(manifest.config))


def _same(manifest: Manifest) -> str:
    """What artifacts share that stand for one another, as in keys of what reads them."""
    spec = manifest.key_spec
    said = {name: spec.get(name) for name in ("stage", "config", "inputs")}
    return f"{manifest.stage} {manifest.content} {fingerprint(said)}"
