"""Cards of artifacts in a store: written by a run, read by `datasets`, checked, rewritten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest
from huggingface_hub import DatasetCard
from support.cli_runner import Cli
from support.store_builder import prepared
from support.tiny_recipe import write_tiny

import bertloom
from flows.cards.cards import card_of
from flows.cards.licenses import source_facts
from flows.recipes.loader import load_recipe
from flows.store.artifacts import ArtifactStore
from flows.store.garbage_collection import collect_garbage
from flows.store.record_checks import check_records
from flows.store.verification import verify
from schemas.errors import ConfigError
from schemas.manifest import Manifest, RawInput
from schemas.publish_configs import CardsConfig

CARDS = """
cards:
  sources:
    own: {license: cc-by-4.0, attribution: "The harbour museum --> its visitors", url: "https://museum.example"}
"""
STAGES = ("build-documents", "build-tokens", "build-instances")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[ArtifactStore]:
    """Stores of two folders in which one recipe was run."""
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    for folder in folders:
        write_tiny(folder)
        with (folder / "tiny.yaml").open("a") as recipe:
            recipe.write(CARDS)
        bertloom.run(str(folder / "tiny.yaml"), until="build-instances")
    return [ArtifactStore(str(folder / "store"), create=False) for folder in folders]


def manifest_of(store: ArtifactStore, stage: str) -> Manifest:
    [pointer] = store.pointers(stage)
    return store.read_manifest(pointer.manifest)


def card_file(store: ArtifactStore, stage: str) -> Path:
    return Path(store.url(manifest_of(store, stage).artifact_path)) / "README.md"


@pytest.mark.parametrize("stage", STAGES)
def test_equal_artifacts_have_equal_cards(stores: list[ArtifactStore], stage: str) -> None:
    one, two = (card_file(store, stage).read_text() for store in stores)
    assert one == two
    assert str(Path.home()) not in one
    assert not set(one.split()) & {stores[0].root, manifest_of(stores[0], stage).artifact_id}


def test_dataset_card_states_sources_and_record_counts(stores: list[ArtifactStore]) -> None:
    card = DatasetCard.load(card_file(stores[0], "build-instances"))
    assert card.data.license == ["cc-by-4.0"]
    assert card.data.language == ["en"]
    assert card.data.size_categories == ["n<1K"]
    assert r"The harbour museum --\> its visitors <https://museum.example>" in card.text
    assert "| `build-tokens` | documents | 5 | 4 | 1 | duplicate 1 |" in card.text
    assert DatasetCard(str(card)).data.to_dict() == card.data.to_dict()


def test_card_of_artifact_without_rows_has_no_loading_code(stores: list[ArtifactStore]) -> None:
    manifest = manifest_of(stores[0], "build-instances")
    files = tuple(file for file in manifest.files if file.rows is None)
    empty = manifest.model_copy(update={"files": files})
    assert "load_dataset" not in card_of(empty, store=stores[0], cards=CardsConfig())


def test_datasets_opens_stored_artifact_by_its_card(
    stores: list[ArtifactStore], tmp_path: Path
) -> None:
    folder = str(card_file(stores[0], "build-documents").parent)
    assert datasets.get_dataset_config_names(folder) == ["default", "duplicates"]
    opened = datasets.load_dataset(folder, "duplicates", cache_dir=str(tmp_path))
    assert opened["train"]["reason"] == ["same-text"]


def test_damaged_card_is_reported_and_rewritten(stores: list[ArtifactStore], cli: Cli) -> None:
    store, path = stores[1], card_file(stores[1], "build-documents")
    before = path.read_text()
    path.write_text(before.replace("museum", "circus", 1))
    assert [problem.path for problem in check_records(store)] == [str(path.relative_to(store.root))]
    assert all(result.is_ok for result in verify(store, store.pointers()))
    card = ("card", "build-documents", "--store", store.root)
    recipe = str(Path(store.root).parent / "tiny.yaml")
    assert cli(*card, "--write", "--recipe", recipe).code == 0
    assert path.read_text() == before
    assert check_records(store) == []


def test_garbage_collection_keeps_cards(stores: list[ArtifactStore]) -> None:
    collect_garbage(stores[1], keep_runs=1, grace_hours=0, dry_run=False)
    assert card_file(stores[1], "build-instances").is_file()


def test_deleted_card_and_export_take_licenses_from_recipe_of_run(
    stores: list[ArtifactStore], cli: Cli, tmp_path: Path
) -> None:
    root, path = stores[1].root, card_file(stores[1], "build-tokens")
    before = path.read_bytes()
    path.unlink()
    assert cli("card", "build-tokens", "--write", "--store", root).code == 0
    assert path.read_bytes() == before
    assert cli("export", "build-instances", str(tmp_path / "new"), "--store", root).code == 0
    assert DatasetCard.load(tmp_path / "new" / "README.md").data.license == ["cc-by-4.0"]
    assert cli("export", "build-vocabulary", str(tmp_path / "none"), "--store", root).code == 1


def test_license_of_unknown_source_is_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(recipe.read_text() + CARDS.replace("own:", "others:"))
    with pytest.raises(ConfigError):
        load_recipe(str(recipe))


def test_artifact_without_rows_or_model_has_no_card() -> None:
    store = ArtifactStore("memory://cards")
    with pytest.raises(ConfigError):
        card_of(prepared(store, stage="tabulate"), store=store, cards=CardsConfig())


WIKI = ("cc-by-sa-4.0", "gfdl")


@pytest.mark.parametrize(
    ("kind", "file", "languages", "licenses", "url"),
    [
        ("wikipedia", "jawiki-20260101-pages-articles.xml.bz2", ["ja"], WIKI, "//ja.wikipedia"),
        ("wikipedia", "simplewiki-latest-pages-x.xml", ["en"], WIKI, "//simple.wikipedia"),
        ("wikipedia", "mywiki.xml", [], (), ""),
        ("books", "gutenberg-children.tar.gz", ["en"], ("other",), ""),
        ("books", "diaries.zip", ["en"], (), ""),
    ],
)
def test_license_is_known_by_file_name(
    kind: str, file: str, languages: list[str], licenses: Any, url: str
) -> None:
    raw = RawInput(
        name=file, uri=f"/secret/{file}", size_bytes=1, sha256="0" * 64, key_digest="one\t"
    )
    language = "en" if kind == "books" else ""
    manifest = prepared(
        ArtifactStore("memory://cards"),
        stage="build-documents",
        raw_inputs=(raw,),
        config={"sources": [{"name": "one", "kind": kind, "language": language}]},
    )
    [facts] = source_facts(manifest, CardsConfig())
    assert (facts.languages, facts.licenses) == (languages, licenses)
    assert url in "".join(facts.urls)
