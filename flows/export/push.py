"""Push an artifact to the Hugging Face Hub."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from flows.cards.cards import MODEL_STAGES
from flows.export.export import Format, export
from flows.store.artifacts import ArtifactStore
from pipelines.io.hub import PROTOCOL, hub_error, open_hub
from schemas.errors import ConfigError, UsageError
from schemas.manifest import Manifest
from schemas.publish_configs import CardsConfig

TOKEN_VARIABLE = "HF_TOKEN"  # noqa: S105 - its name, not a token
"""Environment variable with the token that may write to the repository."""


def push(
    manifest: Manifest,
    repository: str,
    *,
    store: ArtifactStore,
    format: Format = "hf",
    cards: CardsConfig | None = None,
) -> str:
    """Export an artifact to a repository of the Hugging Face Hub, in one commit.

    A missing repository is created as a private one. In the folders that the export has, files that
    it does not have are deleted; all other files of the repository stay.

    Args:
        manifest: Manifest of an artifact that holds rows or a model.
        repository: `ORG/NAME`. Rows go to a dataset of this name, models to a model.
        store: Store of the artifact.
        format, cards: As for `flows.export.export.export`.

    Returns:
        The URL of the commit and what it has, such as `hf://ORG/NAME@COMMIT: 22,338 train`.

    Raises:
        UsageError: The repository is not `ORG/NAME`, or the artifact has no such format.
        ConfigError: HF_TOKEN is not set, or the artifact cannot be exported.
        InputError: The token has no access, or the Hub does not answer.
        ArtifactCorruptError: A file of the artifact does not match its manifest.
    """
    from huggingface_hub import HfApi  # lazy: half a second, which other commands do not wait for

    _check_name(repository)
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        raise ConfigError(
            f"{TOKEN_VARIABLE}: expected a token that may write to {repository}, got none. Create "
            "one in the settings of your account on the Hub, and set the variable"
        )
    repo_type, prefix = (
        ("model", "") if manifest.stage in MODEL_STAGES else ("dataset", "datasets/")
    )
    url = f"{PROTOCOL}{prefix}{repository}"
    with tempfile.TemporaryDirectory(prefix="bertloom-push-") as parent:
        folder = Path(parent) / "export"
        summary = export(manifest, str(folder), store=store, format=format, cards=cards)
        api = HfApi(endpoint=open_hub().endpoint, token=token)
        message = f"Export {manifest.artifact_id} of bertloom"
        try:
            commit = _commit(api, repository, repo_type, folder=folder, message=message)
        except Exception as error:  # httpx2's errors have no base class in common with the others
            advice = "Check the network and run again"
            raise hub_error(url, error, advice=advice) from error
    return f"{url}@{commit}: {summary}"


def _check_name(repository: str) -> None:
    from huggingface_hub import parse_hf_uri  # lazy, as above
    from huggingface_hub.errors import HfUriError

    try:
        is_name = parse_hf_uri(f"{PROTOCOL}{repository}").id == repository
    except HfUriError:
        is_name = False
    if not is_name:
        raise UsageError(
            f"--push: expected ORG/NAME with letters, digits, '-', '_' and '.', got {repository!r}."
        )


def _commit(api: Any, repository: str, repo_type: str, *, folder: Path, message: str) -> str:
    """Commit all files of a folder, and return the commit's hash."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete  # lazy, as above

    names = {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()
    }
    subfolders = {name.partition("/")[0] for name in names if "/" in name}
    api.create_repo(repository, repo_type=repo_type, private=True, exist_ok=True)
    stale = [
        name
        for name in api.list_repo_files(repository, repo_type=repo_type)
        if "/" in name and name.partition("/")[0] in subfolders and name not in names
    ]
    # `upload_folder` may split large folders into several commits.
    commit = api.create_commit(
        repository,
        [
            *(CommitOperationDelete(name) for name in stale),
            *(CommitOperationAdd(name, path) for name, path in sorted(names.items())),
        ],
        commit_message=message,
        repo_type=repo_type,
    )
    return str(commit.oid)
