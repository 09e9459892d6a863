"""The monthly rebuild on a real (ephemeral) Prefect server, with tiny stages and a tiny site."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.fake_stages import installed

from flows.fetch.wikipedia import FetchedDump, WikipediaDump
from flows.publish.publishing import CorpusRefusedError
from flows.publish.rebuilding import RebuildOrder
from flows.store.artifacts import ArtifactStore
from schemas.errors import FetchError

pytestmark = [pytest.mark.slow, pytest.mark.network]

RECIPE = """
name: tiny
build_documents: {sources: [{kind: wikipedia, name: tinywiki, paths: ["${NO_SUCH}"]}]}
build_instances: {one: {}}
publish: {name: corpus/tiny}
"""


@pytest.fixture
def months(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Words of the dump of each date that a site offers; its date."""
    offered: dict[str, int] = {}

    def find_dump(wiki: str, *, mirror: str | None, **more: Any) -> WikipediaDump:
        if mirror != "http://user:secret@mirror?other-name=secret":
            raise FetchError(f"expected the mirror's own address, found {mirror}")
        return WikipediaDump(wiki, max(offered), "", (), ())

    def fetch_wikipedia(wiki: str, *, date: str, output_dir: Path, **more: Any) -> FetchedDump:
        into = output_dir / wiki / date
        file = into / f"{wiki}-{date}-pages-articles-multistream.xml.bz2"
        file.write_text(" ".join(f"word{number}" for number in range(offered[date])))
        return FetchedDump(wiki, date, str(into), (str(file),), file.stat().st_size)

    module = "flows.fetch.wikipedia"
    monkeypatch.setattr(f"{module}.find_dump", find_dump)
    monkeypatch.setattr(f"{module}.fetch_wikipedia", fetch_wikipedia)
    return offered


def test_the_flow(
    prefect_server: None,
    months: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flows.rebuild import rebuild_with_prefect

    file, store = tmp_path / "tiny.yaml", ArtifactStore(str(tmp_path / "store"))
    file.write_text(RECIPE)
    order = RebuildOrder(
        str(file),
        "tinywiki",
        downloads=str(tmp_path / "dumps"),
        store=store.root,
        mirror="http://user:secret@mirror?other-name=secret",
    )
    said: list[str] = []
    began = datetime.now(UTC)
    with installed(tmp_path / "code", monkeypatch) as fakes:
        months["20261001"] = 1000
        first = rebuild_with_prefect(order, say=said.append)
        assert (first["outcome"], first["kept_as"]) == ("moved", "corpus/tiny/20261001")
        assert fakes.calls == ["documents", "vocabulary", "tokens", "instances"]

        again = rebuild_with_prefect(order, say=said.append)
        assert again["outcome"] == "nothing to do"
        assert fakes.calls == []

        months["20261101"] = 500
        before = store.ref("corpus/tiny/latest")
        with pytest.raises(CorpusRefusedError, match="documents 1,000 -> 500"):
            rebuild_with_prefect(order, say=said.append)
        assert store.ref("corpus/tiny/latest") == before

    runs, artifacts = told(since=began)
    assert [(run.state.name, run.parent_task_run_id is None) for run in runs] == [
        ("Completed", True),
        ("Completed", False),
        ("Completed", True),
        ("Failed", True),
        ("Completed", False),
    ]
    assert runs[2].state.message.startswith("nothing to do: 20261001 is published already")
    assert "documents 1,000 -> 500 (-50.00 %; allowed -2 to +25 %)" in runs[3].state.message
    assert not any("secret" in str(run.parameters) for run in runs)
    (page,) = [item for item in artifacts if item.key == "corpus-of-tinywiki"]
    assert "Refused" in page.data
    assert "| build-documents | documents | 1,000 | 500 | -50.00 % | -2 to +25 % |" in page.data
    assert any("corpus/tiny/latest leads to" in line for line in said)


def told(*, since: datetime) -> tuple[list[Any], list[Any]]:
    """The flow runs in the order of their start, and the artifacts, as the server has them."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterStartTime
    from prefect.client.schemas.sorting import FlowRunSort

    with get_client(sync_client=True) as client:
        chosen = FlowRunFilter(start_time=FlowRunFilterStartTime(after_=since))
        runs = client.read_flow_runs(flow_run_filter=chosen, sort=FlowRunSort.START_TIME_ASC)
        return list(runs), list(client.read_artifacts())
