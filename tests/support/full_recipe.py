"""A recipe of every stage, from dump to tables, small enough to run many times."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml

from flows.sample import write_sample

_RECIPE = """
name: whole
build_documents:
  sources:
    - {{kind: wikipedia, name: wiki, paths: ["{pages}"], target_split_bytes: 4096}}
    - {{kind: books, name: tales, paths: ["{books}"], target_split_bytes: 32768}}
build_vocabulary: {{vocab_size: 400}}
build_instances:
  short: {{max_seq_length: 32, held_out_fraction: 0.1, masking: {{max_predictions_per_seq: 6}}}}
  long: {{max_seq_length: 64, held_out_fraction: 0.1, masking: {{max_predictions_per_seq: 10}}}}
pretrain:
  first: &phase
    instances: short
    model: {{num_hidden_layers: 1, hidden_size: 16, num_attention_heads: 2,
        max_position_embeddings: 64}}
    budget: {{max_steps: 30}}
    batch: {{global_batch_size: 8, per_device_max_tokens: 4096}}
    checkpoints: {{save_steps: 10}}
    num_threads: 1
  second: {{<<: *phase, instances: long, model: null, init_from_phase: first,
      budget: {{max_steps: 10}}}}
build_examples:
  cola: {{task: cola, data_dir: "{tasks}/cola", max_samples: {{train: 32, dev: 32, test: 8}}}}
finetune:
  cola: &tuned
    examples: cola
    init_from_phase: second
    max_seq_length: 32
    batch_size: [16]
    learning_rate: [1.0e-3]
    num_epochs: [1]
    restarts: 2
    num_threads: 1
  scratch:
    <<: *tuned
    init_from_phase: null
    model: {{num_hidden_layers: 1, hidden_size: 16, num_attention_heads: 2,
        max_position_embeddings: 64}}
    restarts: 1
"""


def write_whole_flow(folder: Path) -> Path:
    """Write the recipe with its raw files; its path."""
    raw = write_sample(str(folder / "raw"), articles=60, tales=2, pages_per_stream=20)
    text = _RECIPE.format(pages=raw.pages, books=raw.books, tasks=raw.tasks)
    yaml.safe_load(text)
    path = folder / "whole.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def run_command(*arguments: str) -> list[str]:
    """Return the command line that runs `bertloom` with arguments in a new process."""
    return [sys.executable, "-c", "from flows.cli.app import main; main()", *arguments]


def run_whole(recipe: Path, store: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the recipe with the local engine to its end."""
    command = run_command("run", str(recipe), "--store", str(store), "--engine", "local", *more)
    return subprocess.run(command, check=False, capture_output=True, text=True)


def published(store: Path) -> dict[str, str]:
    """Content digest by stage and cache key, of everything that is published."""
    pointers = [json.loads(path.read_text()) for path in (store / "keys").rglob("*.json")]
    return {f"{item['stage']} {item['cache_key']}": item["content_digest"] for item in pointers}
