"""What a stage says of itself. Each stage's module ends with one `STAGE`.

    STAGE = Stage(name="build-tokens", module=__name__, version=1, run=build_tokens, ...)

A stage named `build-tokens` lies in `pipelines/build_tokens.py` or `model/build_tokens.py`. The
steps that a recipe makes of it are said by the flow that runs it (`flows/corpus.py` and others).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.configs import Config
from schemas.errors import BertloomError
from schemas.manifest import Manifest, RawInput, StageOutput

ANY = "*"
"""Among a stage's inputs: any number more, by names of the recipe's."""

UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, BertloomError)
"""What reading statistics raises that another version wrote, or a task that is no more."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A function from a configuration and inputs to an artifact, and what is to be known of it."""

    name: str
    """Such as `build-tokens`."""

    module: str
    """Name of the module that defines it."""

    version: int
    """Number in the cache key; raise it whenever the output for the same input changes."""

    run: Callable[..., StageOutput]
    """Called as `run(config, inputs=..., output=..., execution=...)`, and with `work` or `pieces`
    where the stage resumes or keeps pieces."""

    config: type[Config]
    holds: str
    """What its artifact holds, and is called by stages that read it: `tokens`."""

    libraries: tuple[str, ...] = ()
    """Distributions whose versions may change bytes."""

    same_on_any_python: bool = False
    """Whether every Python that we run on gives the same bytes, so that its version is in no key:
    the stage asks Python's own Unicode tables nothing that decides (`isalpha`, `\\w`, `casefold`:
    3.12 and 3.13 know characters that 3.11 does not) and adds no floats by `sum` (exact from 3.12
    on). `tests/project/test_pythons.py` compares bytes."""

    inputs: tuple[str, ...] = ()
    """Names of what it always reads; ANY: and others."""

    optional_inputs: tuple[str, ...] = ()
    """Names of what it reads where the recipe says so."""

    raw_inputs: Callable[[Any], Sequence[RawInput]] | None = None
    """Digests the raw files of a configuration. Loads quickly: a plan calls it too."""

    resumes: bool = False
    """Whether it is given a folder `work`, the same for one cache key, to go on from."""

    keeps_pieces: bool = False
    """Whether it is given a folder `pieces`, to take finished pieces of work from."""

    has_metrics: bool = False
    """Whether its statistics are numbers that it is run for."""

    uses_gpu: bool = False
    """Whether it computes on a GPU where its configuration and the machine have one."""

    describe: Callable[[Manifest], str] | None = None
    """How much an artifact holds; None to count the rows of its table."""

    describe_many: Callable[[Sequence[Manifest]], str] | None = None
    """How much several hold, such as the trials of a grid."""

    def amount(self, manifest: Manifest) -> str:
        """How much an artifact holds, in a few words: `1,234 documents`."""
        if self.describe is not None:
            try:
                return self.describe(manifest)
            except UNREADABLE:
                pass
        return counted(manifest)

    def amounts(self, manifests: Sequence[Manifest]) -> str:
        """How much several artifacts hold together, in a few words: `5 trials, f1 81.0 to 84.0`."""
        if self.describe_many is not None:
            return self.describe_many(manifests)
        return f"{len(manifests):,} artifact{'s' if len(manifests) != 1 else ''}"


def counted(manifest: Manifest) -> str:
    """How many rows an artifact's table has, or how many files there are."""
    if (rows := manifest.counters.get(manifest.table)) is not None:
        return f"{rows:,} {manifest.table}"
    if found := [entry.rows for entry in manifest.shards if entry.rows is not None]:
        return f"{sum(found):,} {manifest.table or 'rows'}"
    return f"{len(manifest.files):,} file{'s' if len(manifest.files) != 1 else ''}"


def word_pieces(manifest: Manifest) -> str:
    """How large a vocabulary is."""
    return f"{manifest.statistics['vocab_size']:,} word pieces"
