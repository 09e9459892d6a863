"""The monthly rebuild: plans, runs month after month, downloads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cli_runner import Cli
from support.fake_site import FakeSite
from support.publication_builder import RECIPE as TINY_RECIPE
from support.publication_builder import build, corpus_recipe, figures

from flows.bert import recipe_steps
from flows.fetch.wikipedia import WikipediaDump
from flows.publish.monthly_rebuild import (
    MARK,
    RebuildPlan,
    RebuildRequest,
    load_corpus_recipe,
    plan_rebuild,
    prune_downloads,
)
from flows.publish.publish import publish, roll_back
from flows.recipes.loader import load_recipe
from flows.sample.dump import write_dump
from flows.sample.pages import make_pages
from flows.sample.world import Words
from flows.store.artifacts import ArtifactStore
from schemas.errors import ConfigError
from schemas.manifest import Manifest

WIKI = "samplewiki"
NAME = f"corpus/{WIKI}"
RECIPE = """
name: monthly
build_documents:
  sources:
    - kind: wikipedia
      name: samplewiki
      paths: ["${BERTLOOM_DUMP}/*.bz2"]
      target_split_bytes: 4096
build_vocabulary: {vocab_size: 300}
build_instances:
  length-32: {max_seq_length: 32, masking: {max_predictions_per_seq: 5}}
publish: {name: corpus/samplewiki}
"""


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    file = tmp_path / "monthly.yaml"
    file.write_text(RECIPE)
    return file


@pytest.fixture
def site() -> Iterator[FakeSite]:
    with FakeSite() as served:
        yield served


def add_month(site: FakeSite, date: str, folder: Path, *, articles: int, **options: str) -> None:
    """Add a dump to a site, with the first articles of one sample world."""
    pages = make_pages(Words.of_world(0), seed=0, articles=articles)
    made = write_dump(str(folder / f"made-{date}"), pages, date=date, pages_per_stream=20)
    paths = [Path(made.pages), Path(made.page_index)]
    site.add_dump(WIKI, date, {path.name: path.read_bytes() for path in paths}, **options)


@pytest.mark.slow
@pytest.mark.network
def test_corpus_is_rebuilt_month_after_month(
    tmp_path: Path,
    recipe_file: Path,
    site: FakeSite,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cli, store = Cli(capsys), ArtifactStore(str(tmp_path / "store"))
    dumps = tmp_path / "dumps"
    command = ("rebuild", str(recipe_file), "--wiki", WIKI, "--engine", "local")
    command += ("--mirror", site.url, "--store", store.root, "--download-dir", str(dumps))

    def published(name: str = "latest") -> dict[str, Manifest]:
        pointer = store.ref(f"{NAME}/{name}")
        assert pointer is not None
        return {label: store.read_manifest(path) for label, path in pointer.parts.items()}

    # First month: nothing to compare with.
    add_month(site, "20261001", tmp_path, articles=40)
    result = cli(*command, "--dry-run")
    assert (result.code, dumps.exists()) == (0, False), result.err
    assert "20261001" in result.out
    result = cli(*command)
    assert result.code == 0, result.err
    assert f"version {NAME}/20261001; before: none" in result.out

    # The same dump is not built twice.
    result = cli(*command)
    assert result.code == 0
    assert "nothing to do: 20261001 is published already" in result.out

    # A second month, and a third that is not complete.
    add_month(site, "20261101", tmp_path, articles=41)
    add_month(site, "20261201", tmp_path, articles=80, status="in-progress")
    result = cli(*command)
    assert result.code == 0, result.err
    assert f"version {NAME}/20261101" in result.out
    assert published() == published("20261101") != published("20261001")
    first, latest = (
        published(name)["build-vocabulary"].file("vocab.txt") for name in ("20261001", "latest")
    )
    assert first is not None
    assert latest is not None
    assert first.sha256 == latest.sha256

    # A month with half of the pages.
    add_month(site, "20270101", tmp_path, articles=20)
    before = published()
    result = cli(*command)
    assert result.code == 1
    tokens = before["build-tokens"].counters["tokens"]
    assert f"build-tokens: tokens {tokens:,} -> " in result.err
    assert "allowed -2 to +25 %" in result.err
    assert published() == before
    assert store.ref(f"{NAME}/20270101") is None
    assert {path.name for path in (dumps / WIKI).iterdir()} == {"20261001", "20261101", "20270101"}

    # --force builds no step again, and the oldest download is deleted.
    result = cli(*command, "--force")
    assert result.code == 0, result.err
    assert result.out.count("  cached  ") == 4
    assert {path.name for path in (dumps / WIKI).iterdir()} == {"20261101", "20270101"}
    assert published() == published("20270101")


def request_for(recipe: Path, tmp_path: Path, **options: Any) -> RebuildRequest:
    folders = {"store": str(tmp_path / "store"), "downloads": str(tmp_path / "dumps")}
    return RebuildRequest(**{"recipe": str(recipe), "wiki": "tinywiki", **folders, **options})


def plan(recipe: Path, tmp_path: Path, **options: Any) -> RebuildPlan:
    return plan_rebuild(request_for(recipe, tmp_path, **options), log=lambda line: None)


@pytest.fixture
def newest(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Dates of the complete dumps of a site, the newest last."""
    dates = ["20261101"]

    def find_dump(wiki: str, **_arguments: Any) -> WikipediaDump:
        return WikipediaDump(wiki, dates[-1], "", ())

    monkeypatch.setattr("flows.fetch.wikipedia.find_dump", find_dump)
    return dates


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY_RECIPE)
    return file


def publish_tiny(
    tmp_path: Path, *, date: str, documents: int = 1000, statistics: Any = None, config: Any = None
) -> dict[str, Manifest]:
    store = ArtifactStore(str(tmp_path / "store"))
    results = build(
        store, figures(documents), date=date, vocabulary_statistics=statistics, configs=config
    )
    publish(corpus_recipe(store.root), results, store=store)
    return results


def test_older_and_rolled_back_dumps_are_built_if_requested_by_date_only(
    tmp_path: Path, tiny: Path, newest: list[str]
) -> None:
    folder = tmp_path / "dumps" / "tinywiki" / "20261101"
    assert plan(tiny, tmp_path) == RebuildPlan("20261101", folder)
    assert not (tmp_path / "store").exists()
    publish_tiny(tmp_path, date="20261001")
    publish_tiny(tmp_path, date="20261201", documents=1001)
    assert plan(tiny, tmp_path).skip_reason  # older
    assert not plan(tiny, tmp_path, date="20261101").skip_reason
    roll_back(ArtifactStore(str(tmp_path / "store")), "corpus/tiny/20261001")
    newest.append("20261201")
    assert plan(tiny, tmp_path).skip_reason
    assert not plan(tiny, tmp_path, date="20261201").skip_reason
    newest.append("20270101")
    assert not plan(tiny, tmp_path).skip_reason


def test_same_dump_is_built_again_if_recipe_changed(
    tmp_path: Path, tiny: Path, newest: list[str]
) -> None:
    recipe = load_recipe(str(tiny), overrides=["build_documents.sources.tinywiki.paths=[x]"])
    configs = {step.label: step.config.cache_key_fields() for step in recipe_steps(recipe)}
    publish_tiny(tmp_path, date="20261101", config=configs)
    assert plan(tiny, tmp_path).skip_reason
    assert plan(tiny, tmp_path, overrides=("build_tokens.word_cache_size=9",)).skip_reason
    for change in ("build_instances.one.seed=9", "build_instances.two={}"):
        assert not plan(tiny, tmp_path, overrides=(change,)).skip_reason


def test_version_of_crashed_publisher_is_built_again(
    tmp_path: Path, tiny: Path, newest: list[str]
) -> None:
    publish_tiny(tmp_path, date="20261001")
    store = ArtifactStore(str(tmp_path / "store"))
    before = store.ref("corpus/tiny/latest")
    assert before is not None
    publish_tiny(tmp_path, date="20261101", documents=1001)
    after = store.ref("corpus/tiny/latest")
    store.swap_ref("corpus/tiny/latest", before, expected=after)  # as if it had not been moved
    assert not plan(tiny, tmp_path).skip_reason


SAME = {"vocab_size": 30_522, "lowercase": True}


@pytest.mark.parametrize(
    ("date", "statistics", "overrides", "is_reused"),
    [
        ("20261001", SAME, (), True),
        ("", SAME, (), True),
        ("20261001", SAME, ("publish.reuse_vocabulary=false",), False),
        ("20261001", SAME, ("build_vocabulary.vocab_file=mine.txt",), False),
        ("20261001", SAME, ("build_vocabulary.vocab_size=20000",), False),
        ("20261001", {**SAME, "lowercase": False}, (), False),
    ],
)
def test_published_vocabulary_is_reused(
    tmp_path: Path,
    tiny: Path,
    newest: list[str],
    date: str,
    statistics: dict[str, Any],
    overrides: tuple[str, ...],
    is_reused: bool,
) -> None:
    made = publish_tiny(tmp_path, date=date, statistics=statistics)["build-vocabulary"]
    request = request_for(tiny, tmp_path, overrides=overrides)
    planned = plan(tiny, tmp_path, overrides=overrides)
    recipe = load_corpus_recipe(request, planned.overrides, ["a.bz2"])
    published = str(tmp_path / "store" / made.data_path / made.files[0].stored_name)
    assert (recipe.build_vocabulary.vocab_file == published) is is_reused


def test_recipe_reads_downloaded_files(tmp_path: Path, tiny: Path, newest: list[str]) -> None:
    files = [str(tmp_path / "du$mps" / "a, b: [1].bz2"), str(tmp_path / "c.bz2")]
    recipe = load_corpus_recipe(request_for(tiny, tmp_path), (), files)
    assert recipe.build_documents is not None
    assert recipe.build_documents.sources[0].paths == tuple(files)


@pytest.mark.parametrize(
    "options",
    [
        {"wiki": "../etc"},
        {"date": "2026"},
        {"downloads": "s3://bucket/dumps"},
        {"wiki": "otherwiki"},
        {"overrides": ("publish=null",)},
        {"overrides": ("build_documents.sources.tinywiki.kind=text",)},
    ],
)
def test_request_that_cannot_be_planned_is_config_error(
    tmp_path: Path, tiny: Path, newest: list[str], options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError):
        plan(tiny, tmp_path, **options)


def test_only_older_downloads_of_rebuilds_are_deleted(tmp_path: Path) -> None:
    wiki = tmp_path / "dumps" / "tinywiki"
    for date in ("20260601", "20260701", "20260801", "20260901", "20261001", "20261201"):
        (wiki / date).mkdir(parents=True)
        if date != "20260601":  # downloaded by hand
            (wiki / date / MARK).touch()
    (wiki / "20260501").symlink_to(wiki / "20261001")
    deleted = prune_downloads(wiki / "20261001", keep=2)
    assert [folder.name for folder in deleted] == ["20260801", "20260701"]
    assert sorted(path.name for path in wiki.iterdir()) == [
        *("20260501", "20260601", "20260901", "20261001", "20261201")
    ]
