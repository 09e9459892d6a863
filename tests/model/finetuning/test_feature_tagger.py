"""Feature-based tagger: which layers it reads, what is trained, and what its LSTM sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from support.batch_builder import VOCAB, random_model, small_config, write_files
from support.finetuning_builder import tag_rows, trial_config, trial_job, write_examples
from support.store_builder import as_given
from support.task_model_builder import (
    OUTPUTS,
    TAGGED,
    UNITS,
    random_tagger,
    set_lstm,
    task_batch,
    units_of,
)

from model.attention import seed_dropout
from model.bert import BertModel
from model.finetuning.feature_tagger import FeatureTagger
from model.finetuning.setup import open_trial
from model.hf_weights import save_model
from model.optim import build_optimizer
from pipelines.wordpiece.tokenizer import tokenizer_config_json
from pipelines.wordpiece.vocab_files import (
    FIXED_TOKENS,
    TOKENIZER_CONFIG_FILE,
    VOCAB_FILE,
    vocab_text,
)
from schemas.errors import ConfigError
from schemas.finetune_configs import LayerChoice
from schemas.model_configs import OptimizerConfig

EACH_CHOICE = pytest.mark.parametrize("layers", get_args(LayerChoice))

pytestmark = pytest.mark.usefixtures("one_thread")


@EACH_CHOICE
def test_each_choice_reads_its_layers(layers: LayerChoice) -> None:
    model = random_tagger(layers).eval()
    batch = task_batch("tagging")
    assert batch.positions is not None
    encoded = model.bert(batch.tokens, all_layers=True)
    result = [layer[batch.positions] for layer in encoded.layers]
    assert len(result) == 6
    if layers.startswith("weighted"):
        taken = result[-4:] if layers.endswith("4") else result[1:]
        with torch.no_grad():
            model.mix.weights.copy_(torch.linspace(-1, 2, len(taken)))
            model.mix.gamma.fill_(1.7)
        shares = torch.linspace(-1, 2, len(taken)).exp()
        shares = shares / shares.sum()
        expected = 1.7 * sum(share * layer for share, layer in zip(shares, taken, strict=True))
    else:
        expected = {
            "embeddings": result[0],
            "second-to-last": result[-2],
            "last": encoded.sequence[batch.positions],
            "concat-last-4": torch.cat(result[-4:], dim=1),
        }[layers]
    torch.testing.assert_close(model.mix(model.encode(batch)), expected)
    assert model(batch).logits.shape == (UNITS * TAGGED, OUTPUTS["tagging"])


@EACH_CHOICE
def test_only_mix_lstm_and_classifier_are_trained(layers: LayerChoice) -> None:
    model = random_tagger(layers)
    before = {name: value.clone() for name, value in model.named_parameters()}
    optimizer = build_optimizer(model.named_parameters(), OptimizerConfig())
    model(task_batch("tagging"), scale=0.1).loss.backward()
    optimizer.step(learning_rate=0.01)
    for name, value in model.named_parameters():
        is_frozen = name.startswith("bert.")
        assert value.requires_grad != is_frozen
        assert torch.equal(value, before[name]) == is_frozen, name
    trained = {
        name.split(".")[0] for name, value in model.named_parameters() if value.requires_grad
    }
    has_mix = layers.startswith("weighted")
    assert trained == {"lstm", "classifier", *(["mix"] if has_mix else [])}


def test_encoder_has_no_dropout_and_the_rest_has() -> None:
    batch = task_batch("tagging")
    rates = {"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.5}
    model = random_tagger(config=small_config(num_hidden_layers=5, **rates)).train()
    assert torch.equal(model(batch).logits, model.eval()(batch).logits)
    model = random_tagger(dropout=0.5).train()
    seed_dropout(model, 1)
    first, second = model(batch).logits, model(batch).logits
    seed_dropout(model, 1)
    assert torch.equal(model(batch).logits, first)
    assert not torch.equal(first, second)


def test_lstm_is_that_of_torch_in_each_window() -> None:
    model = random_tagger()
    hidden = model.config.hidden_size
    peer = torch.nn.LSTM(4 * hidden, 12, num_layers=2, bidirectional=True)
    set_lstm(peer, model.lstm)
    packed = task_batch("tagging")
    result = model(packed)
    for unit in range(UNITS):
        batch = units_of(packed, "tagging", first=unit, stop=unit + 1)
        assert batch.positions is not None
        layers = model.bert(batch.tokens, all_layers=True).layers
        read = torch.cat([layer[batch.positions] for layer in layers[-4:]], dim=1)
        expected = model.classifier(peer(read)[0])
        own = result.logits[unit * TAGGED : (unit + 1) * TAGGED]
        torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-5)


def test_new_lstm_has_weights_of_torchs_size_and_remembers() -> None:
    state = torch.random.get_rng_state()
    config = small_config(num_hidden_layers=4)
    encoder = BertModel(config, vocab_size=VOCAB)
    one = FeatureTagger(encoder, vocab_size=VOCAB, outputs=3, lstm_hidden_size=12, seed=5)
    assert torch.equal(torch.random.get_rng_state(), state)
    layer: Any = one.lstm[0]
    bound = 12**-0.5
    for part in (layer.weight_ih_l0, layer.weight_hh_l0_reverse):
        assert 0.9 * bound < part.abs().max() <= bound
        assert part.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
    assert layer.bias_ih_l0.tolist() == [0.0] * 12 + [1.0] * 12 + [0.0] * 24
    assert not layer.bias_hh_l0.any()


@pytest.mark.parametrize(
    ("layers", "encoder_layers"),
    [("concat-last-4", 3), ("weighted-sum-last-4", 2), ("second-to-last", 1)],
)
def test_encoders_with_too_few_layers_are_refused(layers: LayerChoice, encoder_layers: int) -> None:
    with pytest.raises(ConfigError, match=layers):
        random_tagger(layers, config=small_config(num_hidden_layers=encoder_layers))


def open_tagger(folder: Path, checkpoint: str | None, *, vocabulary: Path, **fields: Any) -> Any:
    """The model of a trial on generated documents."""
    rows = {"train": tag_rows(2, split="train")}
    labels = ("O", "B-PER", "I-PER")
    examples = write_examples(folder / "examples", "conll-2003", splits=rows, labels=labels)
    how = {"method": "feature-based", "feature_layers": "last", "max_seq_length": 8}
    config = trial_config(checkpoint, **how, **fields)
    rules = {"statistics": {"lowercase": False}}
    pieces = as_given("vocabulary", str(vocabulary)).model_copy(update=rules)
    return open_trial(trial_job(folder, examples, config=config, vocabulary=pieces)).model


def write_vocabulary(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / VOCAB_FILE).write_text(vocab_text(FIXED_TOKENS), encoding="utf-8")
    (folder / TOKENIZER_CONFIG_FILE).write_text(tokenizer_config_json(lowercase=False))
    return folder


@pytest.mark.parametrize("objective", ["mlm+nsp", "left-to-right"])
def test_tagger_starts_from_a_checkpoint(tmp_path: Path, objective: Any) -> None:
    pretrained = random_model(objective=objective)
    folder = write_vocabulary(write_files(save_model(pretrained), tmp_path / "checkpoint"))
    one, again, other = (
        open_tagger(tmp_path, str(folder), vocabulary=folder, restart=number)
        for number in (0, 0, 1)
    )
    assert isinstance(one, FeatureTagger)
    assert one.is_causal == (objective == "left-to-right")
    for name, value in one.bert.named_parameters():
        assert torch.equal(value, dict(pretrained.bert.named_parameters())[name])
        assert not value.requires_grad
    first, second, third = (dict(model.named_parameters()) for model in (one, again, other))
    drawn = [name for name in first if not name.startswith("bert.") and first[name].ndim > 1]
    assert drawn
    assert all(torch.equal(first[name], second[name]) for name in drawn)
    assert not any(torch.equal(first[name], third[name]) for name in drawn)


def test_encoder_from_scratch_is_frozen_too(tmp_path: Path) -> None:
    folder = write_vocabulary(tmp_path / "vocabulary")
    model = open_tagger(tmp_path, None, vocabulary=folder, model={"preset": "tiny"})
    assert isinstance(model, FeatureTagger)
    assert not any(weight.requires_grad for weight in model.bert.parameters())
    assert model.bert.embeddings.word.weight.any()
