"""A recipe of every stage, from dump to tables, small enough to run many times."""

from __future__ import annotations

from pathlib import Path

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


def whole_recipe(*, pages: str, books: str, tasks: str) -> str:
    """Return the recipe as YAML, given the paths or URLs of its raw files."""
    return _RECIPE.format(pages=pages, books=books, tasks=tasks)


def write_whole_flow(folder: Path) -> Path:
    """Write the recipe with its raw files, and return its path."""
    raw = write_sample(str(folder / "raw"), articles=60, tales=2, pages_per_stream=20)
    path = folder / "whole.yaml"
    text = whole_recipe(pages=raw.pages, books=raw.books, tasks=raw.tasks)
    path.write_text(text, encoding="utf-8")
    return path
