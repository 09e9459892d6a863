"""Model cards: what a model was trained on, its scores with their spread, and escaping."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt
from support.card_builder import POINT, put_model
from support.lineage_builder import put

from flows.cards.cards import card_of
from flows.store.artifacts import ArtifactStore
from schemas.manifest import Manifest
from schemas.publish_configs import CardsConfig, SourceCard

HOSTILE = (
    "<script>alert(1)</script> `x` | **b** [a](http://b) \x1b[31m \u202e \x07\n# head\n```\n-->"
)


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(str(tmp_path))


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


def test_settings_leave_out_what_is_not_set(store: ArtifactStore) -> None:
    text = load(put_model(store)["evaluate"], store).text
    assert "num_epochs: 3" in text
    assert "None" not in text


@pytest.mark.parametrize(
    ("evaluation", "heading"),
    [({"members": [f"{POINT}-r2", f"{POINT}-r1"]}, "Ensemble"), ({"method": "majority"}, "")],
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


def test_checkpoint_from_elsewhere_is_named_without_its_folder(store: ArtifactStore) -> None:
    trial = put_model(store)[f"{POINT}-r0"]
    config = {"init_checkpoint": "/secret/models/bert-tiny/"}
    text = load(trial.model_copy(update={"config": config, "inputs": ()}), store).text
    assert "`bert-tiny`" in text
    assert "secret" not in text


def test_card_loads_and_its_metadata_round_trips(store: ArtifactStore, tmp_path: Path) -> None:
    steps = put_model(store)
    for label in ("evaluate", "phase-2", f"{POINT}-r0"):
        path = tmp_path / "README.md"
        path.write_text(card_of(steps[label], store=store, cards=CardsConfig()), encoding="utf-8")
        card = ModelCard.load(path)
        again = ModelCard(str(card))
        assert again.data.to_dict() == card.data.to_dict()
        assert again.data.eval_results == card.data.eval_results
        assert len(card.data.eval_results) >= 1


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
