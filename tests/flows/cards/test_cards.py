"""Cards of datasets and models: written by an export, read by `datasets`, checked, escaped."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import datasets
import pytest
from huggingface_hub import DatasetCard, ModelCard
from markdown_it import MarkdownIt
from support.card_builder import POINT, put_model
from support.cli_runner import Cli
from support.lineage_builder import put
from support.store_builder import prepared
from support.tiny_recipe import write_tiny

import bertloom
from flows.cards.cards import card_of, recorded_cards_config
from flows.cards.licenses import UNKNOWN, source_facts
from flows.export.export import Format, export
from flows.recipes.loader import load_recipe
from flows.store.artifacts import ArtifactStore
from schemas.errors import ConfigError
from schemas.manifest import Manifest, RawInput
from schemas.publish_configs import CardsConfig, SourceCard

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


def stored_card(store: ArtifactStore, stage: str) -> str:
    """Return the card of a stage, with the licenses of the recipe that was run."""
    manifest = manifest_of(store, stage)
    return card_of(manifest, store=store, cards=recorded_cards_config(manifest, store=store))


@pytest.mark.parametrize("stage", STAGES)
def test_equal_artifacts_have_equal_cards(stores: list[ArtifactStore], stage: str) -> None:
    one, two = (stored_card(store, stage) for store in stores)
    assert one == two
    assert str(Path.home()) not in one
    assert not set(one.split()) & {stores[0].root, manifest_of(stores[0], stage).artifact_id}


def test_dataset_card_states_sources_and_record_counts(stores: list[ArtifactStore]) -> None:
    card = DatasetCard(stored_card(stores[0], "build-instances"))
    assert card.data.license == ["cc-by-4.0"]
    assert card.data.language == ["en"]
    assert card.data.size_categories == ["n<1K"]
    assert r"The harbour museum --\> its visitors <https://museum.example>" in card.text
    assert "| `build-tokens` | documents | 5 | 4 | 1 | duplicate 1 |" in card.text
    assert DatasetCard(str(card)).data.to_dict() == card.data.to_dict()
    manifest = manifest_of(stores[0], "build-instances")
    files = tuple(file for file in manifest.files if file.rows is None)
    empty = manifest.model_copy(update={"files": files})
    assert "load_dataset" not in card_of(empty, store=stores[0], cards=CardsConfig())


@pytest.mark.parametrize("format", ["parquet", "arrow-stream"])
def test_datasets_opens_export_by_its_card(
    stores: list[ArtifactStore], tmp_path: Path, format: Format
) -> None:
    folder = str(tmp_path / "new")
    export(manifest_of(stores[0], "build-documents"), folder, store=stores[0], format=format)
    assert datasets.get_dataset_config_names(folder) == ["default", "duplicates"]
    opened = datasets.load_dataset(folder, "duplicates", cache_dir=str(tmp_path / "cache"))
    assert opened["train"]["reason"] == ["same-text"]


def test_run_writes_no_card_into_its_store(stores: list[ArtifactStore]) -> None:
    paths = stores[0].backend.names("artifacts")
    assert paths
    assert not [path for path in paths if path.endswith(".md")]


def test_card_and_export_take_licenses_from_recipe_of_run(
    stores: list[ArtifactStore], cli: Cli, tmp_path: Path
) -> None:
    root, out = stores[1].root, tmp_path / "card.md"
    printed = cli("card", "build-instances", "--store", root)
    assert cli("card", "build-instances", "--out", str(out), "--store", root).code == 0
    assert out.read_text() == printed.out
    assert DatasetCard(printed.out).data.license == ["cc-by-4.0"]
    assert cli("export", "build-instances", str(tmp_path / "new"), "--store", root).code == 0
    assert DatasetCard.load(tmp_path / "new" / "README.md").data.license == ["cc-by-4.0"]
    assert cli("export", "build-vocabulary", str(tmp_path / "none"), "--store", root).code == 1


def test_unknown_source_and_artifact_without_card_are_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(recipe.read_text() + CARDS.replace("own:", "others:"))
    with pytest.raises(ConfigError):
        load_recipe(str(recipe))
    store = ArtifactStore("memory://cards")
    with pytest.raises(ConfigError):
        card_of(prepared(store, stage="tabulate"), store=store, cards=CardsConfig())


@pytest.mark.parametrize(
    ("kind", "file"),
    [("wikipedia", "jawiki-20260101-pages-articles.xml.bz2"), ("books", "gutenberg.tar.gz")],
)
def test_license_and_language_are_never_guessed_from_file_name(kind: str, file: str) -> None:
    raw = RawInput(
        name=file, uri=f"/secret/{file}", size_bytes=1, sha256="0" * 64, key_digest="one\t"
    )
    manifest = prepared(
        ArtifactStore("memory://cards"),
        stage="build-documents",
        raw_inputs=(raw,),
        config={"sources": [{"name": "one", "kind": kind, "language": ""}]},
    )
    [facts] = source_facts(manifest, CardsConfig())
    assert (facts.language, facts.license, facts.files) == ("", UNKNOWN, [raw])
    stated = CardsConfig(sources={"one": SourceCard(license="cc-by-sa-4.0")})
    assert [facts.license for facts in source_facts(manifest, stated)] == ["cc-by-sa-4.0"]


@pytest.mark.parametrize("name", ["simplewiki", "english", "bert-large", "multilingual-small"])
def test_packaged_recipes_state_license_of_wikipedia(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("ENWIKI", "ITWIKI", "JAWIKI", "BOOKS"):
        monkeypatch.setenv(variable, "/data")
    recipe = load_recipe(name)
    assert recipe.build_documents is not None
    for source in recipe.build_documents.sources:
        if source.kind == "wikipedia":
            assert recipe.cards.sources[source.name].license == "cc-by-sa-4.0"


HOSTILE = (
    "<script>alert(1)</script> `x` | **b** [a](http://b) \x1b[31m \u202e \x07\n# head\n```\n-->"
)


def load(manifest: Manifest, store: ArtifactStore, **cards: Any) -> ModelCard:
    return ModelCard(card_of(manifest, store=store, cards=CardsConfig(**cards)))


def rows_below(heading: str, card: ModelCard) -> list[list[str]]:
    """Cells of the table in a section, without its header."""
    section = card.text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


def test_evaluation_has_mean_and_deviation_of_restarts(store: ArtifactStore) -> None:
    card = load(put_model(store)["evaluate"], store, model_license="apache-2.0")
    assert (card.data.license, card.data.library_name) == ("apache-2.0", "transformers")
    assert card.data.pipeline_tag == "token-classification"
    [result] = card.data.eval_results
    assert (result.metric_type, result.metric_value) == ("entity-f1", 34.0)
    assert result.metric_args == {"restarts": 3, "sd": 4.0}
    assert "3 restarts" in result.metric_name
    assert rows_below("Results", card) == [["dev", "entity-f1", "34.0 ± 4.0", "38.0", "5.0"]]
    assert "num_epochs: 3" in card.text
    assert "None" not in card.text
    assert ModelCard(str(card)).data.to_dict() == card.data.to_dict()


@pytest.mark.parametrize(
    ("data", "kind", "name"),
    [
        ("the sample world", "custom", "the sample world (conll-2003 format)"),
        ("", "conll-2003", "conll-2003"),
    ],
)
def test_data_that_is_not_the_task_s_own_is_named(
    store: ArtifactStore, data: str, kind: str, name: str
) -> None:
    card = load(put_model(store, data=data)["evaluate"], store)
    [result] = card.data.eval_results
    assert (result.dataset_type, result.dataset_name) == (kind, name)
    assert card.data.model_name.endswith(f"fine-tuned on {name}")


def test_all_pretraining_phases_are_stated_up_to_the_step_that_was_used(
    store: ArtifactStore,
) -> None:
    steps = put_model(store)
    both = [["16", "1,000", "50,000", "mlm+nsp"], ["32", "100", "5,000", "mlm+nsp"]]
    for label in ("evaluate", "phase-2", f"{POINT}-r0"):
        card = load(steps[label], store)
        assert rows_below("Pretraining", card) == both
        assert "1,100 steps in 2 phases" in card.text
    at_step = steps[f"{POINT}-r0"].model_copy(update={"config": {"init_from_step": 40}})
    assert rows_below("Pretraining", load(at_step, store))[1] == ["32", "40", "2,000", "mlm+nsp"]
    assert rows_below("Pretraining", load(steps["phase-1"], store)) == both[:1]


@pytest.mark.parametrize(
    ("evaluation", "heading"),
    [({"members": [f"{POINT}-r2", f"{POINT}-r1"]}, "Ensemble"), ({"method": "feature-based"}, "")],
)
def test_card_of_what_transformers_cannot_load_has_no_loading_code(
    store: ArtifactStore, evaluation: dict[str, Any], heading: str
) -> None:
    card = load(put_model(store, **evaluation)["evaluate"], store)
    assert card.data.library_name is None
    assert "from_pretrained" not in card.text
    assert heading in card.text


def test_model_without_pretraining_does_not_claim_its_vocabulary_s_texts(
    store: ArtifactStore,
) -> None:
    steps = put_model(store)
    vocabulary = put(store, "build-vocabulary", {"tokens": steps["tokens"]})
    trial = steps[f"{POINT}-r0"]
    scratch = put(store, "finetune", {"vocabulary": vocabulary}, statistics=trial.statistics)
    text = load(scratch, store).text
    assert "Not pretrained" in text
    assert "not trained on them" in text
    config = {"init_checkpoint": "/secret/models/bert-tiny/"}
    text = load(trial.model_copy(update={"config": config, "inputs": ()}), store).text
    assert "`bert-tiny`" in text
    assert "secret" not in text
    url = f"hf://harbour/bert-tiny@{'0' * 40}"
    card = load(trial.model_copy(update={"config": {"init_checkpoint": url}, "inputs": ()}), store)
    assert f"`{url}`" in card.text
    assert card.data.base_model == ["harbour/bert-tiny"]


def tag_names(page: str) -> set[str]:
    names = set[str]()
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: names.add(tag)  # type: ignore[method-assign]
    parser.feed(page)
    return names


def test_quoted_text_cannot_act_as_markup(store: ArtifactStore) -> None:
    source = SourceCard(attribution=HOSTILE, url="https://a.example/<script>`|")
    steps = put_model(store, data=HOSTILE, file=HOSTILE, note=HOSTILE)
    trial = steps[f"{POINT}-r2"]
    spec = {"config": {"name": HOSTILE}, "environment": {"torch": HOSTILE}}
    for manifest in (
        steps["evaluate"],
        trial.model_copy(update={"cache_key_inputs": spec}),
        steps["build-examples"],
    ):
        text = card_of(manifest, store=store, cards=CardsConfig(sources={"own": source}))
        card = ModelCard(text)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", text)
        assert card.text.count("alert") > 1
        html = MarkdownIt("commonmark").enable("table").render(card.text)
        assert "script" not in tag_names(html)
        assert html.count("<h1>") == 1
        assert html.count("<h2>") == card.text.count("\n## ")
        assert {len(row) for row in rows_below("How it was made", card)} == {4}
        assert "<strong>b" not in html
        assert 'href="http://b"' not in html
