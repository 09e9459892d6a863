"""What a run's page shows of texts, as the store keeps it. `texts` and `dropped` read them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class SampleDocument(_Record):
    """A document beside its source."""

    source: str
    kind: str
    document_id: str
    title: str
    language: str
    """ISO 639; "" where only the dump says, and it is gone."""

    page_url: str
    revision_url: str
    where: str
    """File, member and bytes."""

    raw: str
    """What of the raw text is shown."""

    raw_note: str
    """How much is not shown, or why there is nothing."""

    sentences: tuple[str, ...]
    more: int
    """Sentences that are not shown."""

    is_final: bool = True
    """Whether its raw file could be read."""


class Run(_Record):
    """Tokens in a row that are shown alike."""

    kind: str
    """`a`, `b`, `special`, `mask`, `kept` or `random`: the last three are to be predicted."""

    text: str
    was: str = ""
    """What stood there before masking."""


class SampleInstance(_Record):
    """An instance, decoded."""

    label: str
    """Of next sentence prediction, in words."""

    row: int
    facts: str
    a: tuple[Run, ...]
    b: tuple[Run, ...]
    more: tuple[int, int]
    """Tokens of A and B that are not shown."""

    titles: tuple[str, ...]
    """Of the documents that A and B are of."""


class SampleInstances(_Record):
    """Of one length."""

    name: str
    instances: tuple[SampleInstance, ...]


class Texts(_Record):
    """The samples of a run."""

    documents: tuple[SampleDocument, ...] = ()
    instances: tuple[SampleInstances, ...] = ()
    problem: str = ""

    @property
    def is_final(self) -> bool:
        """Whether every raw file could be read."""
        return all(document.is_final for document in self.documents)


class Example(_Record):
    """Something that was left out."""

    text: str
    """Its title, or where it is."""

    url: str = ""
    note: str = ""
    """What it is too much like, or how it begins."""


class Reason(_Record):
    """Why things were left out."""

    source: str
    """Or the step, where a source is none of its business."""

    things: str
    reason: str
    count: int
    examples: tuple[Example, ...] = ()


class Template(_Record):
    """A template that no rule is known for and that left holes in sentences."""

    source: str
    name: str
    count: int
    example: Example | None = None


class Dropped(_Record):
    """The section about what was left out."""

    reasons: tuple[Reason, ...] = ()
    templates: tuple[Template, ...] = ()
    notes: tuple[str, ...] = ()
    """How far each dump was looked at, or why it was not."""

    problem: str = ""
    is_final: bool = True
    """Whether every dump could be read."""
