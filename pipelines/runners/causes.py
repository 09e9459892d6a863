"""Why a job failed, in a sentence, from what Java and Beam write of it."""

from __future__ import annotations

import re

_CAUSE = re.compile(r"^\s*Caused by: (?P<text>.*)$", re.MULTILINE)
_CLASS = re.compile(
    r"^(?:[a-z_][\w$]*\.)+(?P<name>[A-Z][\w$]*(?:Exception|Error|Throwable)?)(?:: |$)"
)
_FRAME = re.compile(r"^\s*(?:at [\w.$/<>]+\(|\.\.\. \d+ (?:more|common frames))")
_PYTHON = "Traceback (most recent call last):"
_OURS = "schemas.errors."
_SAYS_NOTHING = frozenset({"", "]", "null", "None"})
_LONG = 600


def root_cause(text: str) -> str:
    """The innermost cause of a stack trace of Java's, or of a Python traceback within it.

    >>> root_cause("a.b.JobException: failed\\n\\tat a.b.C(D.java:1)\\nCaused by: a.b.E: no disk")
    'no disk (E)'
    """
    if marks := [line.strip() for line in text.splitlines() if line.startswith(_OURS)]:
        return marks[-1].removeprefix(_OURS)
    if _PYTHON in text:
        return _python_error(text[text.rindex(_PYTHON) :])
    causes = [match["text"] for match in _CAUSE.finditer(text)]
    for cause in [*reversed(causes), *text.strip().splitlines()[:1]]:
        if (said := _sentence(cause)) not in _SAYS_NOTHING:
            return said
    lines = [line.strip() for line in text.splitlines() if not _FRAME.match(line)]
    told = [line for line in lines if line not in _SAYS_NOTHING]
    return told[-1][:_LONG] if told else ""


def _sentence(cause: str) -> str:
    found = _CLASS.match(cause.strip())
    if found is None:
        return cause.strip()[:_LONG]
    rest = cause.strip()[found.end() :].strip()
    # `a.B: c.D: text` names what it was raised from once more.
    inner = _sentence(rest) if _CLASS.match(rest) else ""
    if inner or rest in _SAYS_NOTHING:
        return inner or found["name"]
    return f"{rest[:_LONG]} ({found['name']})"


def _python_error(text: str) -> str:
    """The last line of a traceback that is no frame: what was raised."""
    for line in text.splitlines()[1:]:
        if line and not line.startswith((" ", "\t")):
            return line.strip()[:_LONG]
    return ""
