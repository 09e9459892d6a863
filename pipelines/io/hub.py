"""Repositories of the Hugging Face Hub: `hf://ORG/NAME`, `hf://datasets/ORG/NAME`.

fsspec reads them through `huggingface_hub`, which takes the token from the environment (`HF_TOKEN`)
or from `hf auth login`.
"""

from __future__ import annotations

import re
from typing import Any

from pipelines.io.file_systems import file_system
from schemas.errors import InputError, MissingInputError, NetworkError

PROTOCOL = "hf://"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ACCESS_ADVICE = (
    "Where it has terms or is private, accept them on its page, and set HF_TOKEN to a token that "
    "has access"
)
_SECONDS = 10
"""Time limit of a request for the commit of a branch."""


def is_hub_url(url: str) -> bool:
    """Return whether a path or URL is in the Hub."""
    return url.startswith(PROTOCOL)


def pin_revision(url: str) -> str:
    """Return a URL of the Hub with the commit that its branch or tag names now.

    A branch can move while a step reads its files, a commit cannot. A URL with a commit is returned
    without a request; so are other URLs.

    Raises:
        InputError: The URL is malformed, or the repository requires an accepted agreement.
        MissingInputError: There is no such repository or revision, or it is private.
        NetworkError: The Hub does not answer.
    """
    if not is_hub_url(url):
        return url
    try:
        from huggingface_hub import HfApi, parse_hf_uri  # lazy: a Beam worker may lack it

        uri = parse_hf_uri(url)
        if uri.is_bucket or _COMMIT.fullmatch(uri.revision or ""):
            return url
        hub = open_hub()
        commit = (
            HfApi(endpoint=hub.endpoint, token=hub.token)
            .repo_info(uri.id, repo_type=uri.type, revision=uri.revision, timeout=_SECONDS)
            .sha
        )
    except Exception as error:  # httpx2's errors have no base class in common with the others
        raise hub_error(url, error, advice=download_advice(url)) from error
    prefix = "" if uri.type == "model" else f"{uri.type}s/"
    return f"{PROTOCOL}{prefix}{uri.id}@{commit}/{uri.path_in_repo}".rstrip("/")


def open_hub() -> Any:
    """Return the file system of the Hub, which has its `endpoint` and `token`."""
    return file_system(PROTOCOL)[0]


def split_revision(url: str) -> tuple[str, str]:
    """Return the repository (`ORG/NAME`) and the revision of a model's URL; "" for none."""
    repository, _, rest = url.removeprefix(PROTOCOL).partition("@")
    return "/".join(repository.split("/")[:2]), rest.partition("/")[0]


def download_advice(url: str) -> str:
    """Return how to use a repository of the Hub without a network."""
    repository, revision = split_revision(url)
    local = repository.rpartition("/")[2]
    option = f" --revision {revision}" if revision else ""
    return (
        f"Without a network, download it once elsewhere (`hf download {repository}{option} "
        f"--local-dir {local}`) and pass the folder {local}; equal files give equal cache keys"
    )


def hub_error(url: str, error: Exception, *, advice: str) -> InputError:
    """Return a clear error for what `huggingface_hub` raised.

    Args:
        url: URL of the repository or of a file in it.
        error: What was raised.
        advice: What to do if the Hub does not answer.
    """
    if isinstance(error, ImportError):
        return InputError(f"{url}: {error}. Run `pip install 'bertloom[flows]'`")
    from huggingface_hub import errors  # lazy, as above

    if isinstance(error, FileNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # the file system hides what the Hub answered
    match error:
        case errors.HfUriError() | errors.HFValidationError():
            problem = getattr(error, "msg", str(error))
            return InputError(f"{url}: expected hf://ORG/NAME or hf://ORG/NAME@REVISION. {problem}")
        case errors.GatedRepoError():
            return InputError(f"{url}: the Hub refuses access. {_ACCESS_ADVICE}")
        case (
            errors.RepositoryNotFoundError()
            | errors.RevisionNotFoundError()
            | errors.EntryNotFoundError()
            | FileNotFoundError()
        ):
            return MissingInputError(
                f"{url}: no such repository, revision or file, or a private one. Correct the name. "
                f"{_ACCESS_ADVICE}"
            )
        case errors.HfHubHTTPError(response=response) if response.status_code in (401, 403):
            return InputError(f"{url}: the Hub refuses access. {_ACCESS_ADVICE}")
    reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
    return NetworkError(f"{url}: the Hub does not answer: {reason}. {advice}", file=url)
