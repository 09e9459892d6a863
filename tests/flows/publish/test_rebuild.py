from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.cli_runner import Cli
from support.fake_site import FakeSite
from support.publication_builder import build, corpus_recipe, figures

from flows.fetch.wikipedia import WikipediaDump
from flows.publish.publishing import publish, roll_back
from flows.publish.rebuilding import (
    MARK,
    RebuildOrder,
    RebuildWork,
    delete_old,
    downloads_folder,
    find_work,
    make_folder,
)
from flows.publish.rebuilding import corpus_recipe as recipe_of
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


def add_month(site: FakeSite, date: str, folder: Path, *, articles: int, **given: str) -> None:
    """Put a dump of a small made-up wiki on a site: the first articles of always the same world."""
    pages = make_pages(Words.of_world(0), seed=0, articles=articles)
    made = write_dump(str(folder / f"made-{date}"), pages, date=date, pages_per_stream=20)
    paths = [Path(made.pages), Path(made.page_index)]
    site.add_dump(WIKI, date, {path.name: path.read_bytes() for path in paths}, **given)


@pytest.mark.slow
@pytest.mark.network
def test_month_after_month(
    tmp_path: Path,
    recipe_file: Path,
    site: FakeSite,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "flows.report.page.write_report", lambda *_: ""
    )  # its pictures take seconds
    cli, store = Cli(capsys), ArtifactStore(str(tmp_path / "store"))
    dumps = tmp_path / "dumps"
    command = ("rebuild", str(recipe_file), "--wiki", WIKI, "--engine", "local")
    command += ("--mirror", site.url, "--store", store.root, "--download-dir", str(dumps))

    def published(name: str = "latest") -> dict[str, Manifest]:
        pointer = store.ref(f"{NAME}/{name}")
        assert pointer is not None
        return {label: store.read_manifest(path) for label, path in pointer.parts.items()}

    def vocabulary(name: str) -> bytes:
        made = published(name)["build-vocabulary"]
        entry = made.file("vocab.txt")
        assert entry is not None
        return store.backend.read(f"{made.data_path}/{entry.stored_name}")

    # The first month: published, with nothing to compare it with.
    add_month(site, "20261001", tmp_path, articles=40)
    said = cli(*command, "--dry-run")
    assert (said.code, dumps.exists()) == (0, False), said.err
    assert "20261001" in said.out
    said = cli(*command)
    assert said.code == 0, said.err
    assert "there is nothing to compare it with" in said.out
    assert {*published()} == {
        "build-documents",
        "build-vocabulary",
        "build-tokens",
        "build-instances.length-32",
    }
    assert [raw.name for raw in published()["build-documents"].raw_inputs] == [
        "samplewiki-20261001-pages-articles-multistream.xml.bz2"
    ]

    # A date that is published already.
    said = cli(*command)
    assert said.code == 0
    assert "nothing to do: 20261001 is published already" in said.out

    # A second month, and a third that is not complete yet.
    add_month(site, "20261101", tmp_path, articles=41)
    add_month(site, "20261201", tmp_path, articles=80, status="in-progress")
    said = cli(*command)
    assert said.code == 0, said.err
    assert f"kept as {NAME}/20261101" in said.out
    assert published() == published("20261101") != published("20261001")
    for manifest in published("20261001").values():
        store.check_files(manifest)
    assert vocabulary("latest") == vocabulary("20261001")

    # A month that lost half of its pages.
    add_month(site, "20270101", tmp_path, articles=20)
    before = published()
    said = cli(*command)
    assert said.code == 1
    tokens = before["build-tokens"].counters["tokens"]
    assert f"build-tokens: tokens {tokens:,} -> " in said.err
    assert "allowed -2 to +25 %" in said.err
    assert published() == before
    assert store.ref(f"{NAME}/20270101") is None
    assert {path.name for path in (dumps / WIKI).iterdir()} == {"20261001", "20261101", "20270101"}

    # It is kept: forcing it builds nothing again. The oldest download goes.
    said = cli(*command, "--force")
    assert said.code == 0, said.err
    assert said.out.count("  cached  ") == 4
    assert {path.name for path in (dumps / WIKI).iterdir()} == {"20261101", "20270101"}
    assert published() == published("20270101")

    # Gone back from, it is not published again by itself.
    assert cli("publish", "--to", f"{NAME}/20261101", "--store", store.root).code == 0
    assert published() == before
    said = cli(*command)
    assert said.code == 0
    assert f"{NAME}/latest has gone back to 20261101" in said.out
    assert published() == before


def order(recipe: Path, tmp_path: Path, **given: Any) -> RebuildOrder:
    return RebuildOrder(
        str(recipe),
        **{
            "wiki": "tinywiki",
            "store": str(tmp_path / "store"),
            "downloads": str(tmp_path / "dumps"),
            **given,
        },
    )


@pytest.fixture
def newest(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The dates that a site offers as complete; the last one is the newest."""
    dates = ["20261101"]

    def find_dump(wiki: str, **_arguments: Any) -> WikipediaDump:
        return WikipediaDump(wiki, dates[-1], "", (), ())

    monkeypatch.setattr("flows.fetch.wikipedia.find_dump", find_dump)
    return dates


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.yaml"
    file.write_text(
        "name: tiny\n"
        'build_documents: {sources: [{kind: wikipedia, name: tinywiki, paths: ["${NO_SUCH}"]}]}\n'
        "build_instances: {one: {}}\n"
        "publish: {name: corpus/tiny}\n"
    )
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


def look(found: RebuildOrder) -> tuple[RebuildWork, Sequence[str]]:
    said: list[str] = []
    return find_work(found, say=said.append), said


def test_without_a_store_there_is_everything_to_do(
    tmp_path: Path, tiny: Path, newest: list[str]
) -> None:
    work, said = look(order(tiny, tmp_path))
    assert work == RebuildWork(
        "20261101",
        "",
        str(tmp_path / "dumps" / "tinywiki" / "20261101"),
        (),
        ("nothing is published yet",),
        "",
    )
    assert said[0] == "tinywiki: newest complete dump 20261101, published none"
    assert not (tmp_path / "store").exists()


def test_a_dump_older_than_the_published_one_is_only_built_where_it_is_named(
    tmp_path: Path, tiny: Path, newest: list[str]
) -> None:
    publish_tiny(tmp_path, date="20261201")
    assert "newer than any complete dump" in look(order(tiny, tmp_path))[0].done
    assert look(order(tiny, tmp_path, date="20261101"))[0].done == ""


def test_the_same_dump_is_built_again_where_the_recipe_changed(
    tmp_path: Path, tiny: Path, newest: list[str]
) -> None:
    from flows.bert import recipe_steps

    loaded = load_recipe(str(tiny), overrides=["build_documents.sources.tinywiki.paths=[x]"])
    configs = {step.label: step.config.cache_key_fields() for step in recipe_steps(loaded)}
    publish_tiny(tmp_path, date="20261101", config=configs)
    assert "is published already" in look(order(tiny, tmp_path))[0].done
    assert look(order(tiny, tmp_path, changes=("build_tokens.word_cache_size=9",)))[0].done
    for change in ("build_instances.one.seed=9", "build_instances.two={}"):
        assert look(order(tiny, tmp_path, changes=(change,)))[0].done == ""


def test_what_was_gone_back_from_stays_so(tmp_path: Path, tiny: Path, newest: list[str]) -> None:
    publish_tiny(tmp_path, date="20261001")
    publish_tiny(tmp_path, date="20261101", documents=1001)
    roll_back(ArtifactStore(str(tmp_path / "store")), "corpus/tiny/20261001")
    assert "has gone back to 20261001" in look(order(tiny, tmp_path))[0].done
    assert look(order(tiny, tmp_path, date="20261101"))[0].done == ""
    newest.append("20261201")
    assert look(order(tiny, tmp_path))[0].done == ""


def test_a_name_that_a_crash_left_stops_nothing(
    tmp_path: Path, tiny: Path, newest: list[str]
) -> None:
    publish_tiny(tmp_path, date="20261001")
    store = ArtifactStore(str(tmp_path / "store"))
    before = store.ref("corpus/tiny/latest")
    publish_tiny(tmp_path, date="20261101", documents=1001)
    after = store.ref("corpus/tiny/latest")
    assert before is not None
    store.swap_ref("corpus/tiny/latest", before, expected=after)  # as if it had not been moved
    assert look(order(tiny, tmp_path))[0].done == ""


SAME = {"vocab_size": 30_522, "lowercase": True}


@pytest.mark.parametrize(
    ("statistics", "changes", "is_kept"),
    [
        (SAME, (), True),
        (SAME, ("publish.reuse_vocabulary=false",), False),
        (SAME, ("build_vocabulary.vocab_file=mine.txt",), False),
        (SAME, ("build_vocabulary.vocab_size=20000",), False),
        ({**SAME, "lowercase": False}, (), False),
    ],
)
def test_the_published_vocabulary_is_kept(
    tmp_path: Path,
    tiny: Path,
    newest: list[str],
    statistics: dict[str, Any],
    changes: tuple[str, ...],
    is_kept: bool,
) -> None:
    made = publish_tiny(tmp_path, date="20261001", statistics=statistics)["build-vocabulary"]
    asked = order(tiny, tmp_path, changes=changes)
    work, _ = look(asked)
    taken = recipe_of(asked, work, ["a.bz2"]).build_vocabulary.vocab_file
    kept = str(tmp_path / "store" / made.data_path / made.files[0].stored_name)
    assert (taken == kept) is is_kept


def test_the_recipe_reads_the_files_that_were_fetched(
    tmp_path: Path, tiny: Path, newest: list[str]
) -> None:
    asked = order(tiny, tmp_path)
    files = [str(tmp_path / "du$mps" / "a, b: [1].bz2"), str(tmp_path / "c.bz2")]
    recipe = recipe_of(asked, None, files)
    assert recipe.build_documents is not None
    assert recipe.build_documents.sources[0].paths == tuple(files)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"wiki": "../etc"}, "--wiki"),
        ({"date": "2026"}, "--date"),
        ({"downloads": "s3://bucket/dumps"}, "expected a folder of this machine"),
        ({"wiki": "otherwiki"}, "otherwiki"),
        ({"changes": ("publish=null",)}, "publishes nothing"),
        (
            {"changes": ("build_documents.sources.tinywiki.kind=text",)},
            "expected a source of kind wikipedia",
        ),
    ],
)
def test_what_cannot_be_rebuilt(
    tmp_path: Path, tiny: Path, newest: list[str], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        look(order(tiny, tmp_path, **given))


def test_only_old_folders_made_here_are_deleted(tmp_path: Path) -> None:
    wiki = tmp_path / "dumps" / "tinywiki"
    for date in ("20260701", "20260801", "20260901", "20261001", "20261201"):
        make_folder(wiki / date)
        (wiki / date / "part.bz2").write_bytes(b"x")
    (wiki / "20260601").mkdir()  # fetched by hand
    (wiki / "20260501").symlink_to(wiki / "20261001")
    (wiki / "notes").mkdir()
    (wiki / "notes" / MARK).touch()
    deleted = delete_old(wiki / "20261001", keep=2)
    assert [folder.name for folder in deleted] == ["20260801", "20260701"]
    assert sorted(path.name for path in wiki.iterdir()) == [
        *("20260501", "20260601", "20260901", "20261001", "20261201", "notes")
    ]
    assert json.loads((wiki / "20261001" / MARK).read_text()) == {
        "wiki": "tinywiki",
        "date": "20261001",
    }


def test_a_folder_that_is_there_is_not_marked(tmp_path: Path) -> None:
    (tmp_path / "20261001").mkdir()
    make_folder(tmp_path / "20261001")
    assert list((tmp_path / "20261001").iterdir()) == []
    assert downloads_folder(str(tmp_path)) == tmp_path


def test_the_packaged_recipe_loads() -> None:
    recipe = load_recipe("simplewiki")
    assert recipe.publish is not None
    assert recipe.publish.name == "corpus/simplewiki"
    assert recipe.publish.reuse_vocabulary
