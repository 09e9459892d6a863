"""The monthly rebuild on an ephemeral Prefect server, with fake stages and a fake site."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.fake_stages import installed
from support.publication_builder import RECIPE

from flows.fetch.downloads import RemoteFile
from flows.fetch.wikipedia import WikipediaDump
from flows.publish.publish import CorpusChangeLimitError
from flows.store.artifacts import ArtifactStore
from schemas.errors import FetchError

pytestmark = [pytest.mark.slow, pytest.mark.network]


@pytest.fixture
def months(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Number of words of each dump of a site, by date."""
    dumps: dict[str, int] = {}

    def find_dump(
        wiki: str, *, date: str = "latest", mirror: str | None, **more: Any
    ) -> WikipediaDump:
        if mirror != "http://mirror":
            raise FetchError(f"expected the mirror, got {mirror}")
        date = max(dumps) if date == "latest" else date
        name = f"{wiki}-{date}-pages-articles-multistream.xml.bz2"
        return WikipediaDump(wiki, date, "", (RemoteFile("", name, 0, "sha1", ""),))

    def fetch_dump(dump: WikipediaDump, folder: Path, **more: Any) -> None:
        text = " ".join(f"word{number}" for number in range(dumps[dump.date]))
        (folder / dump.files[0].name).write_text(text)

    module = "flows.fetch.wikipedia"
    monkeypatch.setattr(f"{module}.find_dump", find_dump)
    monkeypatch.setattr(f"{module}.fetch_dump", fetch_dump)
    return dumps


def test_flow_publishes_skips_and_refuses(
    prefect_server: None,
    months: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flows.rebuild import rebuild

    file, store = tmp_path / "tiny.yaml", ArtifactStore(str(tmp_path / "store"))
    file.write_text(RECIPE)
    request = {
        "recipe": str(file),
        "wiki": "tinywiki",
        "downloads": str(tmp_path / "dumps"),
        "store": store.root,
        "mirror": "http://mirror",
    }
    started = datetime.now(UTC)
    with installed(tmp_path / "code", monkeypatch) as fakes:
        months["20261001"] = 1000
        first = rebuild(request)
        assert (first["outcome"], first["version_ref"]) == ("published", "corpus/tiny/20261001")
        assert fakes.calls == ["documents", "vocabulary", "tokens", "instances"]

        again = rebuild(request)
        assert again["outcome"] == "skipped"
        assert fakes.calls == []

        months["20261101"] = 500
        before = store.ref("corpus/tiny/latest")
        with pytest.raises(CorpusChangeLimitError, match="documents-kept 1,000 -> 500"):
            rebuild(request)
        assert store.ref("corpus/tiny/latest") == before

    runs, artifacts = read_server(since=started)
    assert [(run.state.name, run.parent_task_run_id is None) for run in runs] == [
        ("Completed", True),
        ("Completed", False),
        ("Completed", True),
        ("Failed", True),
        ("Completed", False),
    ]
    assert "20261001" in runs[2].state.message
    assert "documents-kept 1,000 -> 500 (-50.00 %; allowed -2 to +25 %)" in runs[3].state.message
    (page,) = [item for item in artifacts if item.key == "corpus-of-tinywiki"]
    cells = ["build-documents", "documents-kept", "1,000", "500", "-50.00", "%"]
    assert any(line.split()[:6] == cells for line in page.data.splitlines())


def read_server(*, since: datetime) -> tuple[list[Any], list[Any]]:
    """Return the flow runs in the order of their start, and the artifacts."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterStartTime
    from prefect.client.schemas.sorting import FlowRunSort

    with get_client(sync_client=True) as client:
        chosen = FlowRunFilter(start_time=FlowRunFilterStartTime(after_=since))
        runs = client.read_flow_runs(flow_run_filter=chosen, sort=FlowRunSort.START_TIME_ASC)
        return list(runs), list(client.read_artifacts())
