"""A recipe over five short texts, which runs in seconds."""

from __future__ import annotations

from pathlib import Path

RECIPE = """
name: tiny
store: {store}
build_documents:
  sources: [{{kind: text, name: own, paths: [texts.txt]}}]
build_vocabulary: {{vocab_size: 150, min_frequency: 1}}
build_instances:
  length-32: {{max_seq_length: 32, held_out_fraction: 0.0, masking: {{max_predictions_per_seq: 5}}}}
"""


TEXTS = (
    "The cat sat on the mat, and the dog sat on the cat.\nThen both of them slept.",
    "A ship sailed over the sea to the east. It carried tea and salt and one sailor.",
    "The cat sat on the mat, and the dog sat on the cat.\nThen both of them slept.",
    "Rain fell for a week. The river rose. The bridge held, and the people crossed it.",
    "She read the letter twice. She folded it, and put it into the drawer of the desk.",
)


def write_tiny(folder: Path) -> None:
    (folder / "texts.txt").write_text("\n\n".join(TEXTS), encoding="utf-8")
    recipe = RECIPE.format(store=folder / "store")
    (folder / "tiny.yaml").write_text(recipe, encoding="utf-8")
