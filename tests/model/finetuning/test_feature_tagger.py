import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from transformers import BertModel as PeerModel

from model.data.batches import TokenBatch
from model.encoder.dropout import seed_dropout
from model.encoder.heads import BertForPretraining
from model.encoder.hf_weights import save_model
from model.finetuning.batches import TaskBatch
from model.finetuning.feature_tagger import (
    FeatureTagger,
    feature_tagger_from_checkpoint,
)
from model.finetuning.saved_models import load_task_model, save_task_model
from model.optim.adam import Adam
from model.task_types.features import IGNORED
from schemas.errors import CheckpointError, ConfigError, TrainingError
from schemas.finetune_configs import LayerChoice
from schemas.model_configs import ModelConfig, OptimizerConfig

VOCAB, LABELS = 50, ("O", "B-A", "I-A")
CHOICES = get_args(LayerChoice)

pytestmark = pytest.mark.usefixtures("one_thread")


def small_config(**changes):
    shape = {
        "num_hidden_layers": 5,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "max_position_embeddings": 40,
    }
    return ModelConfig(**{**shape, "initializer_range": 0.2, **changes})


def tagger(layers="concat-last-4", *, seed=0, dropout=0.1, config=None):
    return FeatureTagger(
        config or small_config(),
        vocab_size=VOCAB,
        outputs=len(LABELS),
        layers=layers,
        lstm_hidden_size=12,
        dropout=dropout,
        seed=seed,
    )


def batch_of(windows, *, padded_length=None):
    """Windows as (ids, tagged places, labels), end to end or in rows."""
    lengths = np.array([len(ids) for ids, _, _ in windows])
    widths = np.full(len(windows), padded_length) if padded_length else lengths
    starts = np.cumsum(widths) - widths
    flat, places = (np.zeros(widths.sum(), dtype=np.int64) for _ in range(2))
    positions, labels = [], []
    for start, width, (ids, tagged, names) in zip(starts, widths, windows, strict=True):
        flat[start : start + len(ids)] = ids
        places[start : start + width] = np.arange(width)
        positions += [start + place for place in tagged]
        labels += names
    tensors = [torch.from_numpy(array) for array in (flat, np.zeros_like(flat), places, starts)]
    return TaskBatch(
        TokenBatch(*tensors, lengths, padded_length),
        torch.tensor(labels),
        torch.tensor(positions),
        np.arange(len(windows)),
        np.array([len(tagged) for _, tagged, _ in windows]),
    )


def random_windows(count=4, *, seed=0):
    rng = np.random.default_rng(seed)
    windows = []
    for _ in range(count):
        length = int(rng.integers(6, 24))
        ids = [2, *rng.integers(5, VOCAB, length - 2).tolist(), 3]
        tagged = sorted(rng.choice(np.arange(1, length - 1), 4, replace=False).tolist())
        windows.append((ids, tagged, [ids[place] % 3 for place in tagged]))
    return windows


@pytest.mark.parametrize("layers", CHOICES)
def test_what_each_choice_reads(layers):
    model = tagger(layers).eval()
    batch = batch_of(random_windows())
    encoded = model.bert(batch.tokens, all_layers=True)
    found = [layer[batch.positions] for layer in encoded.layers]
    assert len(found) == 6
    if layers.startswith("weighted"):
        taken = found[-4:] if layers.endswith("4") else found[1:]
        with torch.no_grad():
            model.mix.weights.copy_(torch.linspace(-1, 2, len(taken)))
            model.mix.gamma.fill_(1.7)
        shares = torch.linspace(-1, 2, len(taken)).exp()
        shares = shares / shares.sum()
        expected = 1.7 * sum(share * layer for share, layer in zip(shares, taken, strict=True))
    else:
        expected = {
            "embeddings": lambda: found[0],
            "second-to-last": lambda: found[-2],
            "last": lambda: encoded.sequence[batch.positions],
            "concat-last-4": lambda: torch.cat(found[-4:], dim=1),
        }[layers]()
    torch.testing.assert_close(model.mix(encoded.layers, batch.positions), expected)
    assert model(batch).logits.shape == (16, 3)


@pytest.mark.parametrize("layers", CHOICES)
def test_only_mix_lstm_and_classifier_are_trained(layers):
    model = tagger(layers)
    before = {name: value.clone() for name, value in model.named_parameters()}
    optimizer = Adam(model.named_parameters(), OptimizerConfig())
    model(batch_of(random_windows()), scale=0.1).loss.backward()
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


def test_the_encoder_never_drops_and_the_rest_does():
    config = small_config(hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5)
    batch = batch_of(random_windows())
    model = tagger(dropout=0.0, config=config).train()
    assert not model.bert.training
    assert model.lstm.training
    assert torch.equal(model(batch).logits, model.eval()(batch).logits)
    model = tagger(dropout=0.5).train()
    seed_dropout(model, 1)
    first, second = model(batch).logits, model(batch).logits
    seed_dropout(model, 1)
    assert torch.equal(model(batch).logits, first)
    assert not torch.equal(first, second)


def test_the_lstm_stays_within_a_window():
    model = tagger(dropout=0.0)
    windows = random_windows(5)
    together = model(batch_of(windows)).logits
    alone = torch.cat([model(batch_of([window])).logits for window in windows])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-6)
    # A word's logits depend on both neighbors, as in an LSTM.
    ids, tagged, names = windows[0]
    for kept in ([0, 1], [1, 2]):
        shorter = (ids, [tagged[at] for at in kept], [names[at] for at in kept])
        found = model(batch_of([shorter])).logits[kept.index(1)]
        assert not torch.allclose(found, together[1], rtol=1e-3, atol=1e-5)


def test_two_layers_of_lstm_are_those_of_torch():
    model = tagger(dropout=0.0)
    window = random_windows(1)[0]
    batch = batch_of([window])
    peer = torch.nn.LSTM(64, 12, num_layers=2, bidirectional=True)
    with torch.no_grad():
        for name, value in peer.named_parameters():
            number = name.split("_l")[1][0]
            value.copy_(
                dict(model.lstm[int(number)].named_parameters())[name.replace(f"_l{number}", "_l0")]
            )
        layers = model.bert(batch.tokens, all_layers=True).layers
        read = torch.cat([layer[batch.positions] for layer in layers[-4:]], dim=1)
        expected = model.classifier(peer(read)[0])
    torch.testing.assert_close(model(batch).logits, expected)


def test_padded_rows_give_what_packed_windows_give():
    model = tagger(dropout=0.0)
    windows = random_windows()
    torch.testing.assert_close(
        model(batch_of(windows, padded_length=30)).logits,
        model(batch_of(windows)).logits,
        rtol=1e-4,
        atol=1e-6,
    )


def test_losses_add_up_over_micro_batches_and_leave_out_what_is_ignored():
    model = tagger(dropout=0.0)
    windows = random_windows()
    ids, tagged, names = windows[0]
    windows[0] = (ids, tagged, [IGNORED, *names[1:]])
    whole = model(batch_of(windows), scale=1 / 15)
    parts = [model(batch_of(windows[at : at + 2]), scale=1 / 15) for at in (0, 2)]
    torch.testing.assert_close(whole.loss, parts[0].loss + parts[1].loss)
    torch.testing.assert_close(whole.loss, whole.loss_sum / 15)
    labels = batch_of(windows).labels
    nll = -whole.logits.log_softmax(1)[torch.arange(1, 16), labels[1:]]
    torch.testing.assert_close(whole.loss, nll.mean())
    asked = model(batch_of(windows)._replace(labels=None))
    assert asked.loss is None
    assert torch.equal(asked.logits, whole.logits)


@pytest.mark.parametrize("layers", ["concat-last-4", "weighted-sum-all"])
def test_it_learns_tags_from_a_random_encoder(layers):
    model = tagger(layers)
    batch = batch_of(random_windows(24, seed=3))
    optimizer = Adam(model.named_parameters(), OptimizerConfig())
    losses = []
    for step in range(60):
        seed_dropout(model, step)
        optimizer.zero_grad()
        found = model(batch, scale=1 / 96)
        found.loss.backward()
        optimizer.step(learning_rate=0.02)
        losses.append(found.loss.item())
    assert losses[0] == pytest.approx(np.log(3), abs=0.1)
    assert losses[-1] < 0.3
    right = model.eval()(batch).logits.argmax(1) == batch.labels
    assert right.float().mean() > 0.9


def test_weights_are_decided_by_the_seed_alone():
    state = torch.random.get_rng_state()
    one, same, other = tagger(seed=5), tagger(seed=5), tagger(seed=6)
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, value in one.named_parameters():
        assert torch.equal(value, dict(same.named_parameters())[name])
        if value.ndim == 2:
            assert not torch.equal(value, dict(other.named_parameters())[name]), name
    layer = one.lstm[0]
    bound = 12**-0.5
    for part in (layer.weight_ih_l0, layer.weight_hh_l0_reverse):
        assert 0.9 * bound < part.abs().max() <= bound
        assert part.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
    assert layer.bias_ih_l0.tolist() == [0.0] * 12 + [1.0] * 12 + [0.0] * 24
    assert not layer.bias_hh_l0.any()
    assert not torch.equal(layer.weight_hh_l0, layer.weight_hh_l0_reverse)


@pytest.mark.parametrize(
    ("layers", "encoder_layers"),
    [("concat-last-4", 3), ("weighted-sum-last-4", 2), ("second-to-last", 1)],
)
def test_encoders_with_too_few_layers_are_refused(layers, encoder_layers):
    with pytest.raises(ConfigError, match=layers):
        tagger(layers, config=small_config(num_hidden_layers=encoder_layers))
    tagger("weighted-sum-all", config=small_config(num_hidden_layers=encoder_layers))


def test_batches_that_do_not_fit_are_refused():
    long = ([2, *[7] * 50, 3], [1], [0])
    for batch in (batch_of(random_windows())._replace(positions=None), batch_of([long])):
        with pytest.raises(TrainingError):
            tagger()(batch)


# Files


def write(folder: Path, files):
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return str(folder)


@pytest.mark.parametrize("objective", ["mlm+nsp", "left-to-right"])
def test_a_tagger_starts_from_a_checkpoint(tmp_path, objective):
    pretrained = BertForPretraining(small_config(), vocab_size=VOCAB, objective=objective, seed=4)
    folder = write(tmp_path / "checkpoint", save_model(pretrained))
    started = feature_tagger_from_checkpoint(
        folder, outputs=3, layers="last", lstm_hidden_size=12, dropout=0.2, seed=7
    )
    model = started.model
    assert model.is_causal == (objective == "left-to-right")
    assert model.kind == "tagging"
    for name, value in model.bert.named_parameters():
        assert torch.equal(value, dict(pretrained.bert.named_parameters())[name])
        assert not value.requires_grad
    assert not model.bert.training
    batch = batch_of(random_windows())
    torch.testing.assert_close(
        model.bert(batch.tokens).sequence, pretrained.eval().bert(batch.tokens).sequence
    )
    # The new weights are those of a new tagger with this seed.
    fresh = FeatureTagger(
        small_config(), vocab_size=VOCAB, outputs=3, layers="last", lstm_hidden_size=12, seed=7
    )
    for part in ("lstm", "classifier"):
        for name, value in getattr(model, part).named_parameters():
            assert torch.equal(value, dict(getattr(fresh, part).named_parameters())[name])


@pytest.mark.parametrize("layers", CHOICES)
def test_a_saved_tagger_is_read_back(tmp_path, layers):
    model = tagger(layers, seed=3, dropout=0.25)
    if layers.startswith("weighted"):
        with torch.no_grad():
            model.mix.weights.uniform_(-1, 1, generator=torch.Generator().manual_seed(1))
    files = save_task_model(model, labels=LABELS, about={"task": "wikigold"})
    assert files == save_task_model(model, labels=LABELS, about={"task": "wikigold"})
    folder = write(tmp_path / "tagger", files)
    for loaded in (load_task_model(folder), load_task_model(f"{folder}/")):
        assert isinstance(loaded.model, FeatureTagger)
        assert loaded.labels == LABELS
        assert loaded.about == {"task": "wikigold", "method": "feature-based"}
        assert loaded.model.layers == layers
        assert loaded.model.dropouts[0].rate == 0.25
        batch = batch_of(random_windows())
        assert torch.equal(loaded.model.eval()(batch).logits, model.eval()(batch).logits)
        assert not any(value.requires_grad for value in loaded.model.bert.parameters())


def test_transformers_reads_the_encoder(tmp_path):
    model = tagger().eval()
    folder = write(tmp_path / "tagger", save_task_model(model, labels=LABELS, about={}))
    peer = PeerModel.from_pretrained(folder, add_pooling_layer=False).eval()
    window = random_windows(1)[0]
    expected = peer(torch.tensor([window[0]])).last_hidden_state[0]
    found = model.bert(batch_of([window]).tokens).sequence
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_damaged_folders_are_refused(tmp_path):
    files = save_task_model(tagger(), labels=LABELS, about={})
    config = json.loads(files["config.json"])
    shape = config["bertloom_feature_tagger"]
    for number, changes in enumerate(
        (
            {"bertloom_feature_tagger": None},
            {"bertloom_feature_tagger": {**shape, "layers": "first"}},
            {"bertloom_feature_tagger": {**shape, "lstm_hidden_size": 11}},
            {"bertloom_feature_tagger": {**shape, "layers": "weighted-sum-all"}},
            {"id2label": {"0": "O", "2": "B-A"}},
        )
    ):
        changed = {**files, "config.json": json.dumps({**config, **changes}).encode()}
        folder = write(tmp_path / str(number), changed)
        with pytest.raises(CheckpointError):
            load_task_model(folder)
    for labels, about in ((("O", "O", "B-A"), {}), (LABELS, {"seed": float("nan")})):
        with pytest.raises(CheckpointError):
            save_task_model(tagger(), labels=labels, about=about)
