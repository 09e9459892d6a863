"""Cards of artifacts: what they say, that they are the same again, and where they lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest
from huggingface_hub import DatasetCard, ModelCard
from support.cli_runner import Cli
from support.store_builder import prepared
from support.tiny_recipe import write_tiny

import bertloom
from flows.cards.ancestors import Ancestors
from flows.cards.cards import card_of, cards_said
from flows.cards.licences import source_facts
from flows.cards.model_cards import model_card
from flows.recipes.loader import load_recipe
from flows.store.artifacts import ArtifactStore
from flows.store.garbage_collection import collect_garbage
from flows.store.verification import check_records, verify
from schemas.card_configs import CardsConfig
from schemas.errors import ConfigError
from schemas.manifest import Manifest, RawInput

CARDS = """
cards:
  sources:
    own: {license: cc-by-4.0, attribution: "The harbour museum --> its visitors", url: "https://museum.example"}
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[ArtifactStore, ArtifactStore]:
    """Of the same recipe, run in two places."""
    found = []
    for name in ("one", "two"):
        folder = tmp_path_factory.mktemp(name)
        write_tiny(folder)
        recipe = folder / "tiny.yaml"
        recipe.write_text(recipe.read_text() + CARDS)
        bertloom.run(str(recipe), until="build-instances")
        found.append(ArtifactStore(str(folder / "store"), create=False))
    return found[0], found[1]


def manifest_of(store: ArtifactStore, stage: str) -> Manifest:
    [pointer] = store.pointers(stage)
    return store.read_manifest(pointer.manifest)


def card_file(store: ArtifactStore, stage: str) -> Path:
    return Path(store.url(manifest_of(store, stage).location)) / "README.md"


@pytest.mark.parametrize("stage", ["build-documents", "build-tokens", "build-instances"])
def test_the_same_artifact_made_elsewhere_has_the_same_card(
    stores: tuple[ArtifactStore, ArtifactStore], stage: str
) -> None:
    one, two = (card_file(store, stage).read_text() for store in stores)
    assert one == two
    assert str(Path.home()) not in one
    assert not set(one.split()) & {stores[0].root, manifest_of(stores[0], stage).artifact_id}


def test_a_card_says_whose_the_texts_are_and_what_was_dropped(
    stores: tuple[ArtifactStore, ArtifactStore],
) -> None:
    path = card_file(stores[0], "build-instances")
    data = DatasetCard.load(path).data
    assert data.license == ["cc-by-4.0"]
    assert data.language == ["en"]
    assert data.size_categories == ["n<1K"]
    text = path.read_text()
    assert "- Attribution: The harbour museum --> its visitors https://museum.example" in text
    assert "| `build-tokens` | documents | 5 | 4 | 1 | duplicate 1 |" in text


def test_the_card_of_an_artifact_without_rows_says_so(
    stores: tuple[ArtifactStore, ArtifactStore],
) -> None:
    found = manifest_of(stores[0], "build-instances")
    without = tuple(entry for entry in found.files if entry.rows is None)
    empty = found.model_copy(update={"files": without})
    text = card_of(empty, store=stores[0], cards=CardsConfig())
    assert "There is nothing to load: it has no rows" in text
    assert "load_dataset" not in text


def test_datasets_opens_the_artifact_itself_by_its_card(
    stores: tuple[ArtifactStore, ArtifactStore], tmp_path: Path
) -> None:
    folder = card_file(stores[0], "build-documents").parent
    assert datasets.get_dataset_config_names(str(folder)) == ["default", "duplicates"]
    opened = datasets.load_dataset(str(folder), "duplicates", cache_dir=str(tmp_path))
    assert opened["train"]["reason"] == ["same-text"]


def test_a_damaged_card_is_found_and_written_anew(
    stores: tuple[ArtifactStore, ArtifactStore], cli: Cli
) -> None:
    store, path = stores[1], card_file(stores[1], "build-documents")
    kept = path.read_text()
    assert check_records(store).problems == ()
    path.write_text(kept.replace("museum", "circus", 1))
    (problem,) = check_records(store).problems
    assert "it is not what was written" in problem.text
    assert all(verdict.is_ok for verdict in verify(store, list(store.pointers())))
    said = cli("card", "build-documents", "--store", store.root)
    assert (said.code, "is not what was written" in said.err) == (1, True)
    recipe = str(Path(store.root).parent / "tiny.yaml")
    arguments = ("card", "build-documents", "--write", "--recipe", recipe, "--store", store.root)
    assert cli(*arguments).code == 0
    assert path.read_text() == kept


def test_garbage_collection_keeps_cards(stores: tuple[ArtifactStore, ArtifactStore]) -> None:
    collect_garbage(stores[1], keep_runs=1, grace_hours=0, dry_run=False)
    assert card_file(stores[1], "build-instances").is_file()


def test_an_artifact_of_an_older_store_gets_its_card_by_command(
    stores: tuple[ArtifactStore, ArtifactStore], cli: Cli, tmp_path: Path
) -> None:
    store = stores[1]
    path = card_file(store, "build-tokens")
    kept = path.read_bytes()
    path.unlink()
    said = cli("card", "build-tokens", "--store", store.root)
    assert "- Licence: cc-by-4.0" in said.out  # as the card of its documents says
    assert cli("card", "build-tokens", "--write", "--store", store.root).code == 0
    assert path.read_bytes() == kept
    assert cards_said(manifest_of(store, "build-instances"), store=store).sources
    said = cli("export", "build-instances", str(tmp_path / "new"), "--store", store.root)
    assert said.out.strip().endswith(" train")
    assert DatasetCard.load(tmp_path / "new" / "README.md").data.license == ["cc-by-4.0"]
    said = cli("export", "build-vocabulary", str(tmp_path / "none"), "--store", store.root)
    assert (said.code, "expected an artifact with rows" in said.err) == (1, True)


def test_a_licence_of_a_source_that_is_not_there_is_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(recipe.read_text() + CARDS.replace("own:", "others:"))
    with pytest.raises(
        ConfigError, match=r"no 'others' in build_documents\.sources, which has own"
    ):
        load_recipe(str(recipe))


@pytest.mark.parametrize(
    ("kind", "file", "expected"),
    [
        (
            "wikipedia",
            "jawiki-20260101-pages-articles.xml.bz2",
            (("ja",), ("cc-by-sa-4.0", "gfdl"), "https://ja.wikipedia.org/?oldid=REVISION_ID"),
        ),
        (
            "wikipedia",
            "simplewiki-latest-pages-articles.xml.bz2",
            (("en",), ("cc-by-sa-4.0", "gfdl"), "https://simple.wikipedia.org/"),
        ),
        ("wikipedia", "mywiki.xml", ((), (), "")),
        ("books", "gutenberg-children.tar.gz", (("en",), ("other",), "Project Gutenberg")),
        ("books", "diaries.zip", (("en",), (), "")),
    ],
)
def test_licences_that_are_known(kind: str, file: str, expected: tuple[Any, ...]) -> None:
    language = "en" if kind == "books" else ""
    raw = RawInput(name=file, uri=f"/secret/{file}", size=1, sha256="0" * 64, identity="one\t")
    manifest = prepared(
        ArtifactStore("memory://cards"),
        stage="build-documents",
        raw_inputs=(raw,),
        config={"sources": [{"name": "one", "kind": kind, "language": language}]},
    )
    [facts] = source_facts(manifest, CardsConfig())
    assert (facts.languages, facts.licenses) == expected[:2]
    assert expected[2] in facts.attribution
    assert (facts.license_text == "not said") is (not facts.licenses)


def test_a_model_card_has_its_figures_as_the_hub_reads_them(tmp_path: Path) -> None:
    manifest = prepared(
        ArtifactStore("memory://cards"),
        stage="pretrain",
        config={
            "model": {"num_hidden_layers": 2, "hidden_size": 128},
            "init_checkpoint": "/models/bert-tiny",
        },
        statistics={"objective": "mlm+nsp", "held_out": {"perplexity": 21.597217}},
        counters={"steps": 1000, "tokens": 2039503},
    )
    said = CardsConfig(model_license="apache-2.0")
    (tmp_path / "README.md").write_text(
        model_card(manifest, ancestors=_alone(manifest), cards=said)
    )
    data = ModelCard.load(tmp_path / "README.md").data
    assert (data.license, data.library_name, data.pipeline_tag) == (
        "apache-2.0",
        "transformers",
        "fill-mask",
    )
    assert data.base_model == "bert-tiny"
    [result] = data.eval_results
    assert (result.metric_type, result.metric_value) == ("perplexity", 21.5972)


def _alone(manifest: Manifest) -> Ancestors:
    return Ancestors((manifest,), ())


def test_what_holds_neither_rows_nor_a_model_has_no_card() -> None:
    store = ArtifactStore("memory://cards")
    with pytest.raises(ConfigError, match="has no card"):
        card_of(prepared(store, stage="tabulate"), store=store, cards=CardsConfig())
