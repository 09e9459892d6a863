"""The sample's texts: a folder of plain text files, as users have them."""

from __future__ import annotations

from flows.sample.world import Words, seeded, topic_names
from pipelines.io.file_systems import file_system

_PARAGRAPHS, _SENTENCES = 3, 10


def make_text(words: Words, *, seed: int, number: int) -> tuple[str, str]:
    """Return the name and the contents of text number n of a world; topics take turns."""
    draw = seeded("text", seed, number)
    topic = number % len(words.topics)
    paragraphs = (
        " ".join(words.sentence(draw, topic) for _ in range(_SENTENCES)) for _ in range(_PARAGRAPHS)
    )
    return f"{topic_names()[topic]}-{number + 1:03d}.txt", "\n\n".join(paragraphs) + "\n"


def write_texts(folder: str, *, words: Words, seed: int, count: int) -> str:
    """Write `texts`, a folder with a file for each text, and return its URL."""
    fs, root = file_system(folder)
    path = f"{root.rstrip('/')}/texts"
    fs.makedirs(path, exist_ok=True)
    texts = (make_text(words, seed=seed, number=number) for number in range(count))
    fs.pipe({f"{path}/{name}": text.encode() for name, text in texts})
    return fs.unstrip_protocol(path) if "://" in folder else path
