"""Stage `evaluate`: compare the trials of a grid on dev, and predict all splits with the best.

The artifact has one file of predictions per split (for spans and tags also in the official format)
and `metrics.json`, computed from those files read back. The restarts of the best grid point predict
every split with known answers, so that means exist for test as for dev (Table 7). A worker process
predicts; this module does not load torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.finetuning.comparison import Comparison, Trial, compare, read_trials
from model.finetuning.jobs import EvaluationJob
from model.launch.launcher import call_in_worker
from model.monitoring.summaries import summarize_evaluation
from model.task_types.prediction_files import predictions_file, to_lines
from model.tasks import Task, find_task
from model.tasks.examples import read_examples, splits_of
from model.tasks.reduced_data import examples_cut, joined
from model.training.artifact_files import to_json, write_folder
from model.training.health import summarize_restarts, warnings_json
from pipelines.io.stage_inputs import check_files, input_file
from pipelines.io.temporary_folders import temporary_folder
from pipelines.progress import current_step_name
from schemas.execution_configs import ExecutionConfig
from schemas.finetune_configs import EvaluateConfig
from schemas.fingerprint import content_digest
from schemas.manifest import StageInput, StageOutput
from schemas.stage import VARIADIC, Stage
from schemas.trial_names import trial_entry

if TYPE_CHECKING:
    from model.finetuning import prediction as prediction  # runs elsewhere: part of the key
    from model.task_types.task_type import Scored, TaskType


_EXAMPLES = "examples"
_METRICS_FILE = "metrics.json"
_TRAINED_ON = frozenset({"train", "augmentation"})


def evaluate(
    config: EvaluateConfig,
    *,
    inputs: Mapping[str, StageInput],
    output: str,
    execution: ExecutionConfig,
) -> StageOutput:
    """Compare trials on dev; predict every split but the training data with the best.

    Args:
        config: Size of the ensemble, and device.
        inputs: `examples`, and the trials by name.
        output: URL of the folder to write to.
        execution: Unused.

    Raises:
        PredictionsError: Models of an ensemble differ in vocabulary, labels or features.
        ArtifactCorruptError: An input differs from its manifest.
        RunnerError: The worker process was killed.
    """
    from model.task_types.by_name import TASK_TYPES  # lazy: heavy imports

    del execution
    examples = inputs[_EXAMPLES]
    task = find_task(str(examples.statistics["task"]))
    task_type = TASK_TYPES[task.type]
    trials = read_trials({name: given for name, given in inputs.items() if name != _EXAMPLES})
    compared = compare(trials, metric=task.metrics[0])
    chosen = _different(compared.best)[: config.ensemble_size]
    splits = tuple(split for split in splits_of(examples) if split not in _TRAINED_ON)
    with temporary_folder("evaluate") as folder:
        threshold = _answer(
            config, examples, task_type, chosen=chosen, splits=splits, folder=folder
        )
        scored = {
            split: _score(task_type, task, examples, split=split, folder=folder) for split in splits
        }
        known = {split: found.metrics for split, found in scored.items() if found.metrics}
        restarts = _score_restarts(
            config, examples, compared=compared, chosen=chosen, known=known, folder=folder
        )
        for split, found in scored.items():
            table = read_examples(examples, split)
            official = task_type.official_files(
                table, found.predictions, task=task, split=split, threshold=threshold
            )
            for name, content in official.items():
                Path(folder, name).write_bytes(content)
        Path(folder, _METRICS_FILE).write_bytes(to_json(known))
        files = write_folder(Path(folder), output=output)
    rows: Mapping[str, int] = examples.statistics["splits"]
    return StageOutput(
        files=files,
        counters={f"predictions-{split}": rows[split] for split in splits},
        statistics={
            **_statistics(
                config, task, chosen=chosen, data=str(examples.statistics.get("data", ""))
            ),
            "metrics": known,
            "baseline": _score_majority(task_type, task, examples, splits=known),
            "cut": _cut(examples, compared, chosen=chosen),
            "threshold": threshold,
            "warnings": warnings_json(
                summarize_restarts([trial.warnings for trial in compared.restarts])
            ),
            **compared.statistics(restarts),
        },
        notes=_notes(config, task, chosen=chosen),
    )


def _statistics(
    config: EvaluateConfig, task: Task, *, chosen: list[Trial], data: str
) -> dict[str, Any]:
    best = chosen[0]
    on = {"data": data} if data else {}
    return {
        "task": task.name,
        "kind": task.type,
        "entry": config.entry,
        "metric": task.metrics[0],
        "ensemble": len(chosen),
        "members": [trial.name for trial in chosen],
        "method": best.method,
        "model": {"start": config.start, **best.model, "method": best.method, **on},
    }


def _cut(examples: StageInput, compared: Comparison, *, chosen: list[Trial]) -> dict[str, Any]:
    """Return the reductions of the shown restarts and the predicting models."""
    trained = [trial.cut for trial in (*compared.restarts, *chosen)]
    return joined([examples_cut(examples.statistics), *trained])


def _different(trials: list[Trial]) -> list[Trial]:
    """Return distinct models: entries of equal configuration share one model, which would count
    twice in an ensemble."""
    found: dict[str, Trial] = {}
    for trial in trials:
        found.setdefault(content_digest(trial.given.files), trial)
    return list(found.values())


def _answer(
    config: EvaluateConfig,
    examples: StageInput,
    task_type: TaskType,
    *,
    chosen: list[Trial],
    splits: tuple[str, ...],
    folder: str,
) -> float:
    """Write the predictions of each split to `folder`; return their threshold."""
    best = chosen[0]
    if best.method == "majority":
        for split in splits:
            table = read_examples(examples, split)
            found = task_type.majority_predictions(table, best.majority)
            Path(folder, predictions_file(split)).write_bytes(to_lines(found))
        return 0.0
    asked = splits
    if len(chosen) == 1 and "dev" in splits:
        # The trial already has predictions on dev.
        _copy(best.given, predictions_file("dev"), folder=folder)
        asked = tuple(split for split in splits if split != "dev")
    if not asked:
        return best.threshold
    return _ask(config, examples, chosen, splits=asked, folder=folder)


def _ask(
    config: EvaluateConfig,
    examples: StageInput,
    trials: list[Trial],
    *,
    splits: tuple[str, ...],
    folder: str,
) -> float:
    """Write the predictions of an ensemble on each split to `folder`; return its threshold."""
    for trial in trials:
        check_files(trial.given)  # models are read by the URLs of their folders
    job = EvaluationJob(
        name=current_step_name(f"evaluate {config.entry}"),
        examples=examples,
        members=tuple(trial.given for trial in trials),
        splits=splits,
        folder=folder,
        per_device_max_tokens=config.per_device_max_tokens,
        device=config.device,
        threads=config.num_threads,
    )
    return float(call_in_worker("model.finetuning.prediction:run_evaluation", job)["threshold"])


def _score_restarts(
    config: EvaluateConfig,
    examples: StageInput,
    *,
    compared: Comparison,
    chosen: list[Trial],
    known: dict[str, dict[str, float]],
    folder: str,
) -> dict[str, dict[str, dict[str, float]]]:
    """Return scores of the best point's restarts by trial and split, without dev.

    Writes their predictions to `folder` as `predictions-SPLIT-TRIAL.jsonl`. An ensemble over
    several
    entries has none: the entries of its trials score them.

    Args:
        known: Scores of the selected model on splits with known answers.
    """
    from model.task_types.by_name import TASK_TYPES  # lazy: heavy imports

    splits = tuple(split for split in known if split != "dev")
    if not splits or any(trial_entry(trial.name) for trial in compared.best):
        return {}
    task = find_task(str(examples.statistics["task"]))
    task_type = TASK_TYPES[task.type]
    found = {}
    if len(chosen) == 1:
        found[chosen[0].name] = {split: known[split] for split in splits}
    for trial in compared.restarts:
        if trial.name in found:
            continue
        with temporary_folder("restart") as own:
            _ask(config, examples, [trial], splits=splits, folder=own)
            found[trial.name] = {
                split: _score(task_type, task, examples, split=split, folder=own).metrics
                for split in splits
            }
            for split in splits:
                said = predictions_file(split)
                Path(folder, predictions_file(f"{split}-{trial.name}")).write_bytes(
                    Path(own, said).read_bytes()
                )
    return found


def _copy(given: StageInput, path: str, *, folder: str) -> None:
    Path(folder, path).write_bytes(input_file(given, path).read())


def _score(
    task_type: TaskType, task: Task, examples: StageInput, *, split: str, folder: str
) -> Scored:
    table = read_examples(examples, split)
    file = f"{folder}/{predictions_file(split)}"
    return task_type.score_file(file, table, task=task)


def _score_majority(
    task_type: TaskType, task: Task, examples: StageInput, *, splits: Iterable[str]
) -> dict[str, dict[str, float]]:
    """Return the metrics of always giving the most frequent answer of train, by split."""
    labels = tuple(str(label) for label in examples.statistics.get("labels", ()))
    train = read_examples(examples, "train")
    answer = task_type.majority_answer(train, task=task, labels=labels)
    metrics = {}
    for split in splits:
        rows = read_examples(examples, split)
        metrics[split] = task_type.score(
            rows, task_type.majority_predictions(rows, answer), task=task
        )
    return metrics


def _notes(config: EvaluateConfig, task: Task, *, chosen: list[Trial]) -> tuple[str, ...]:
    notes = []
    if len(chosen) < config.ensemble_size:
        notes.append(f"requested an ensemble of {config.ensemble_size}, only {len(chosen)} exist")
    if chosen[0].cased is not None and task.is_cased not in (None, chosen[0].cased):
        used, own = ("cased", "uncased") if chosen[0].cased else ("uncased", "cased")
        notes.append(f"the paper's model for {task.title} is {own}, this one {used}")
    return tuple(notes)


STAGE = Stage(
    name="evaluate",
    module=__name__,
    version=5,
    run=evaluate,
    config=EvaluateConfig,
    output_type="evaluation",
    libraries=("torch", "numpy", "pyarrow", "scikit-learn", "scipy"),
    inputs=(_EXAMPLES, VARIADIC),
    has_metrics=True,
    uses_gpu=True,
    summarize=summarize_evaluation,
)
