"""The encoder against the one of transformers, and against itself in every layout."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from model.data.batches import TokenBatch
from model.encoder.attention_layout import attention_layout, plan_groups
from model.encoder.bert import BertModel, initialize_weights
from model.encoder.dropout import Dropout, seed_dropout
from pipelines.seeds import rng_for
from schemas.model_configs import ModelConfig

VOCAB = 1000
LENGTHS = (9, 31, 31, 5, 64, 31, 17)


def batch_of(lengths: tuple[int, ...], *, padded_length: int | None = None) -> TokenBatch:
    """Random instances, each a function of its number alone; [PAD] is 0."""
    places = [padded_length or length for length in lengths]
    ids, segments, positions = (np.zeros(sum(places), dtype=np.int64) for _ in range(3))
    starts = np.cumsum(places) - places
    for number, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        here = slice(start, start + length)
        ids[here] = rng_for(0, "test", number).integers(1, VOCAB, length)
        segments[here] = np.arange(length) > length // 2
    for start, place in zip(starts, places, strict=True):
        positions[start : start + place] = np.arange(place)
    return TokenBatch(
        input_ids=torch.from_numpy(ids),
        segment_ids=torch.from_numpy(segments),
        position_ids=torch.from_numpy(positions),
        starts=torch.from_numpy(starts),
        lengths=np.array(lengths, dtype=np.int64),
        padded_length=padded_length,
    )


def real_places(batch: TokenBatch) -> torch.Tensor:
    """Indices in T of the real tokens, instance by instance."""
    starts = batch.starts.tolist()
    return torch.cat(
        [torch.arange(s, s + n) for s, n in zip(starts, batch.lengths.tolist(), strict=True)]
    )


def config_of(preset: str = "tiny", *, dropout: float = 0.0, **fields: Any) -> ModelConfig:
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return ModelConfig.model_validate({"preset": preset, **rates, **fields})


def model_of(config: ModelConfig, *, is_causal: bool = False, spread: float = 0.02) -> BertModel:
    """A model with random weights, biases and norms included."""
    model = BertModel(config, vocab_size=VOCAB, is_causal=is_causal)
    initialize_weights(model, initializer_range=spread, seed=3)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return model


def peer_of(model: BertModel) -> nn.Module:
    """transformers' model of the same shape and weights."""
    from transformers import BertConfig as PeerConfig
    from transformers import BertModel as PeerModel

    config = model.config
    with torch.device("meta"):  # so that nothing is drawn
        peer = PeerModel(
            PeerConfig(
                vocab_size=VOCAB,
                hidden_size=config.hidden_size,
                num_hidden_layers=config.num_hidden_layers,
                num_attention_heads=config.num_attention_heads,
                intermediate_size=config.feed_forward_size,
                hidden_act={"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}[config.hidden_act],
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
                layer_norm_eps=config.layer_norm_eps,
                is_decoder=model.layers[0].attention.is_causal,
                use_cache=False,
            )
        )
    values = {name: value.clone() for name, value in model.state_dict().items()}
    peer.load_state_dict(peer_values(values), strict=True, assign=True)
    for name in ("position_ids", "token_type_ids"):  # buffers that no state dict holds
        places = getattr(peer.embeddings, name)
        is_counted = name == "position_ids"
        full = torch.arange(places.shape[1]) if is_counted else torch.zeros(places.shape[1])
        setattr(peer.embeddings, name, full.long().expand(1, -1))
    return peer.requires_grad_(True)


PEER_NAMES = {
    "embeddings.word": "embeddings.word_embeddings",
    "embeddings.position": "embeddings.position_embeddings",
    "embeddings.segment": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "output_norm": "output.LayerNorm",
    "pooler": "pooler.dense",
}


def peer_values(ours: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Values by our names to the same by those of transformers; query, key, value apart."""
    theirs = {}
    for name, value in ours.items():
        stem, kind = name.rsplit(".", 1)
        layer = ""
        if stem.startswith("layers."):
            _, number, stem = stem.split(".", 2)
            layer = f"encoder.layer.{number}."
        if stem == "attention.qkv":
            for part, rows in zip(("query", "key", "value"), value.chunk(3), strict=True):
                theirs[f"{layer}attention.self.{part}.{kind}"] = rows
        else:
            theirs[f"{layer}{PEER_NAMES[stem]}.{kind}"] = value
    return theirs


def peer_inputs(batch: TokenBatch) -> dict[str, torch.Tensor]:
    """A padded batch as transformers takes it."""
    rows = (len(batch.lengths), batch.padded_length or 0)
    reals = torch.arange(rows[1]) < torch.from_numpy(batch.lengths)[:, None]
    return {
        "input_ids": batch.input_ids.view(rows),
        "token_type_ids": batch.segment_ids.view(rows),
        "attention_mask": reals.long(),
    }


def weighted(sequence: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
    """Return a loss that weighs every output differently, about 1 in total."""
    generator = torch.Generator().manual_seed(7)
    total = sequence.new_zeros(())
    for value in (sequence, pooled):
        weights = torch.randn(value.shape, generator=generator) / value.numel() ** 0.5
        total = total + (weights * value).sum()
    return total


ACTIVATIONS = ("gelu", "gelu_tanh")
LARGE = pytest.mark.slow
CASES = [
    *[pytest.param("tiny", (9, 31, 31, 5, 64, 31, 17), a, c) for a in ACTIVATIONS for c in (0, 1)],
    pytest.param("base", (7, 24, 24, 13), "gelu", 0, marks=LARGE),
    pytest.param("base", (7, 24, 24, 13), "gelu_tanh", 1, marks=LARGE),
    pytest.param("large", (5, 16, 11), "gelu", 1, marks=LARGE),
]


@pytest.mark.parametrize(("preset", "lengths", "activation", "is_causal"), CASES)
def test_equals_transformers(
    preset: str, lengths: tuple[int, ...], activation: str, is_causal: bool
) -> None:
    model = model_of(config_of(preset, hidden_act=activation), is_causal=bool(is_causal))
    peer = peer_of(model)
    padded = batch_of(lengths, padded_length=max(lengths) + 3)
    expected = peer(**peer_inputs(padded))
    real = real_places(padded)
    sequence = expected.last_hidden_state.flatten(0, 1)[real]
    weighted(sequence, expected.pooler_output).backward()
    gradients = {name: parameter.grad for name, parameter in peer.named_parameters()}
    for batch in (padded, batch_of(lengths)):
        model.zero_grad()
        found = model(batch)
        found_sequence = found.sequence[real_places(batch)]
        torch.testing.assert_close(found_sequence, sequence, atol=1e-5, rtol=0)
        torch.testing.assert_close(found.pooled, expected.pooler_output, atol=1e-5, rtol=0)
        weighted(found_sequence, found.pooled).backward()
        ours = {name: parameter.grad for name, parameter in model.named_parameters()}
        assert not [name for name, gradient in ours.items() if gradient is None]
        for name, gradient in peer_values(ours).items():
            torch.testing.assert_close(
                gradient, gradients[name], atol=1e-4, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}"
            )


def test_all_layers_are_those_of_transformers() -> None:
    model = model_of(config_of())
    padded = batch_of(LENGTHS, padded_length=64)
    expected = peer_of(model)(**peer_inputs(padded), output_hidden_states=True).hidden_states
    found = model(batch_of(LENGTHS), all_layers=True)
    assert len(found.layers) == len(expected) == model.config.num_hidden_layers + 1
    for ours, theirs in zip(found.layers, expected, strict=True):
        real = theirs.flatten(0, 1)[real_places(padded)]
        torch.testing.assert_close(ours, real, atol=1e-5, rtol=0)
    assert found.layers[-1] is found.sequence
    assert model(batch_of(LENGTHS)).layers == ()


@pytest.mark.parametrize("padded_length", [None, 64])
def test_vectors_at_positions_equal_those_of_all_tokens(padded_length: int | None) -> None:
    model = model_of(config_of())
    batch = batch_of(LENGTHS, padded_length=padded_length)
    positions = batch.starts + 2
    gradients = []
    for chosen in (None, positions):
        model.zero_grad()
        found = model(batch, positions=chosen)
        sequence = found.sequence if chosen is not None else found.sequence[positions]
        weighted(sequence, found.pooled).backward()
        values = [parameter.grad for parameter in model.parameters()]
        gradients.append([sequence, found.pooled, *values])
    for some, every in zip(*gradients, strict=True):
        torch.testing.assert_close(some, every, atol=1e-5, rtol=1e-5)


def test_last_block_computes_only_the_positions_read() -> None:
    model = model_of(config_of())
    batch = batch_of(LENGTHS)
    sizes: list[int] = []
    dense: Any = model.layers[-1].intermediate
    dense.register_forward_hook(lambda *call: sizes.append(len(call[2])))
    model(batch, positions=batch.starts[:0])
    assert sizes == [len(LENGTHS)]


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 1e-9], ids=["sdpa", "own-kernel"])
def test_instances_do_not_see_each_other(dropout: float, is_causal: bool) -> None:
    # A rate that rounds to no dropped level goes the way of training, but drops nothing.
    model = model_of(config_of(dropout=dropout), is_causal=is_causal, spread=0.1)
    batch = batch_of(LENGTHS)
    before = model(batch).sequence
    changed = batch._replace(input_ids=batch.input_ids.clone())
    start, length = int(batch.starts[1]), LENGTHS[1]
    changed.input_ids[start : start + length] += 1
    after = model(changed).sequence
    own = torch.zeros(len(before), dtype=torch.bool)
    own[start : start + length] = True
    torch.testing.assert_close(after[~own], before[~own], atol=1e-6, rtol=0)
    assert ((after - before)[own].abs().amax(1) > 1e-3).all()


def test_causal_tokens_see_only_what_came_before() -> None:
    model = model_of(config_of(), is_causal=True, spread=0.1)
    batch = batch_of((40,))
    changed = batch._replace(input_ids=batch.input_ids.clone())
    changed.input_ids[25] += 1
    before, after = model(batch).sequence, model(changed).sequence
    torch.testing.assert_close(after[:25], before[:25], atol=1e-6, rtol=0)
    assert ((after - before)[25:].abs().amax(1) > 1e-4).all()


@pytest.mark.parametrize("padded_length", [None, 70])
@pytest.mark.parametrize("is_causal", [False, True])
def test_own_kernel_equals_sdpa_where_it_drops_nothing(
    is_causal: bool, padded_length: int | None
) -> None:
    outputs, gradients = [], []
    for dropout in (0.0, 1e-9):
        model = model_of(config_of(dropout=dropout), is_causal=is_causal, spread=0.1)
        batch = batch_of(LENGTHS, padded_length=padded_length)
        found = model(batch)
        sequence = found.sequence[real_places(batch)]
        weighted(sequence, found.pooled).backward()
        outputs.append(sequence)
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(outputs[0], outputs[1], atol=1e-5, rtol=0)
    for plain, own in zip(*gradients, strict=True):
        torch.testing.assert_close(own, plain, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("padded_length", [None, 40])
def test_gradient_uses_the_mask_of_the_forward_pass(
    padded_length: int | None, is_causal: bool
) -> None:
    """Central differences in float32, every pass under the same key."""
    model = model_of(config_of(dropout=0.4), is_causal=is_causal, spread=0.1)
    batch = batch_of((12, 33, 33, 4), padded_length=padded_length)

    def loss() -> torch.Tensor:
        seed_dropout(model, 11)
        found = model(batch)
        return weighted(found.sequence[real_places(batch)], found.pooled)

    loss().backward()
    for name in ("embeddings.word", "layers.0.attention.qkv", "layers.1.attention.output"):
        parameter = model.get_parameter(f"{name}.weight")
        assert parameter.grad is not None
        # Along the gradient, which is the direction in which the loss moves most.
        expected = float(parameter.grad.norm())
        direction = parameter.grad / expected
        step, ends = 3e-3, []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.add_(direction, alpha=sign * step)
                ends.append(float(loss()))
                parameter.sub_(direction, alpha=sign * step)
        found = (ends[0] - ends[1]) / (2 * step)
        assert found == pytest.approx(expected, rel=0.03), name


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_rate_and_scale_of_dropout(rate: float) -> None:
    dropout = Dropout(rate)
    size = 400_001  # no multiple of 4
    found = dropout(torch.ones(size))
    kept = found[found != 0]
    sigma = (rate * (1 - rate) / size) ** 0.5
    assert abs(1 - len(kept) / size - rate) < 4 * sigma + 2**-17
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - rate)), rtol=2e-4, atol=0)
    # All four elements that share a draw are dropped equally often.
    for lane in range(4):
        share = (found[lane::4] == 0).float().mean()
        assert abs(float(share) - rate) < 5 * (2 * sigma)
    residual = torch.full((size,), 2.0)
    dropout.generator.manual_seed(0)
    torch.testing.assert_close(dropout.add(torch.ones(size), residual), found + 2.0)
    assert torch.equal(dropout.eval()(residual), residual)


def test_attention_drops_at_its_rate() -> None:
    """Values that are all 1 give contexts whose mean is that of the kept, scaled probabilities."""
    config = config_of(num_hidden_layers=1, num_attention_heads=2, hidden_size=128, preset="tiny")
    config = config.model_copy(update={"attention_probs_dropout_prob": 0.3})
    attention = BertModel(config, vocab_size=VOCAB).layers[0].attention
    with torch.no_grad():
        attention.qkv.bias[256:] = 1.0
        attention.output.weight.copy_(torch.eye(128))
    layout = attention_layout(
        np.array([64] * 32),
        padded_length=None,
        heads=2,
        device=torch.device("cpu"),
        flash=False,
        has_dropout=True,
    )
    found = attention(torch.zeros(64 * 32, 128), layout)
    # Uniform probabilities: 64 of 1/64 a token and head, each kept with probability 0.7.
    per_token = found.detach()[:, ::64]  # one number a head
    assert abs(float(per_token.mean()) - 1) < 5 * (0.3 / 0.7 / 64 / per_token.numel()) ** 0.5
    assert float(per_token.std()) == pytest.approx((0.3 / 0.7 / 64) ** 0.5, rel=0.05)


def test_dropout_is_a_function_of_the_key() -> None:
    model = model_of(config_of(dropout=0.1))
    batch = batch_of(LENGTHS)
    before = torch.get_rng_state()

    def run(key: int, on: nn.Module = model) -> torch.Tensor:
        seed_dropout(on, key)
        return torch.cat([model(batch).sequence, model(batch).sequence]).detach()

    first = run((1 << 64) - 1)
    assert not torch.equal(first[: len(first) // 2], first[len(first) // 2 :])
    assert not torch.equal(first, run(2))
    assert torch.equal(first, run((1 << 64) - 1))
    # Wrapped by torch.compile or DistributedDataParallel the names differ, the draws do not.
    wrapped = nn.Module()
    wrapped.module = model
    assert torch.equal(first, run((1 << 64) - 1, wrapped))
    copied = copy.deepcopy(model)
    seed_dropout(copied, 2)
    seed_dropout(model, 2)
    assert torch.equal(copied(batch).sequence, model(batch).sequence)
    assert torch.equal(torch.get_rng_state(), before)
    model.eval()
    assert torch.equal(run(1), run(2))


def test_every_dropout_has_its_own_draws() -> None:
    model = BertModel(config_of(dropout=0.1), vocab_size=VOCAB)
    dropouts = [module for module in model.modules() if isinstance(module, Dropout)]
    assert len(dropouts) == 1 + 3 * model.config.num_hidden_layers
    draws = {tuple(dropout(torch.ones(200)).tolist()) for dropout in dropouts}
    assert len(draws) == len(dropouts)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_bf16_is_close_to_fp32(dropout: float) -> None:
    model = model_of(config_of(dropout=dropout), spread=0.05)
    batch = batch_of(LENGTHS)
    results = []
    for enabled in (False, True):
        seed_dropout(model, 1)
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            found = model(batch)
        weighted(found.sequence.float(), found.pooled.float()).backward()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        results.append((found.sequence.detach().float(), gradient))
    (exact, exact_gradient), (rough, rough_gradient) = results
    assert not torch.equal(exact, rough)
    assert float((exact - rough).norm() / exact.norm()) < 0.02
    assert float((exact_gradient - rough_gradient).norm() / exact_gradient.norm()) < 0.05


def test_initial_weights() -> None:
    before = torch.get_rng_state()
    model = BertModel(config_of(), vocab_size=VOCAB)
    initialize_weights(model, initializer_range=0.02, seed=1)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            one = name.endswith("norm.weight")
            assert torch.equal(parameter, torch.full_like(parameter, float(one))), name
    values = torch.cat([p.detach().flatten() for p in model.parameters() if p.ndim == 2])
    assert float(values.abs().max()) <= 0.04
    assert float(values.mean()) == pytest.approx(0, abs=1e-4)
    # A normal cut at two sigma has 0.8796 of its standard deviation.
    assert float(values.std()) == pytest.approx(0.02 * 0.8796, rel=0.01)
    other = BertModel(config_of(), vocab_size=VOCAB)
    initialize_weights(other, initializer_range=0.02, seed=2)
    assert not torch.equal(other.pooler.weight, model.pooler.weight)
    deeper = BertModel(config_of(num_hidden_layers=3), vocab_size=VOCAB)
    initialize_weights(deeper, initializer_range=0.02, seed=1)
    for name, parameter in model.named_parameters():
        assert torch.equal(deeper.get_parameter(name), parameter), name
    assert torch.equal(torch.get_rng_state(), before)


def test_groups_cover_all_instances_once_and_waste_little() -> None:
    lengths = rng_for(0, "test", "groups").integers(5, 513, 200)
    groups = plan_groups(lengths, heads=12, has_dropout=True)
    assert sorted(np.concatenate(groups).tolist()) == list(range(200))
    done = sum(len(group) * int(lengths[group].max()) ** 2 for group in groups)
    assert done < 1.05 * int((lengths**2).sum())
    assert len(plan_groups(np.full(16, 128), heads=4, has_dropout=True)) == 1
    # Large ones gain nothing together with dropout; without, one call computes all.
    assert len(plan_groups(np.full(64, 512), heads=12, has_dropout=True)) == 64
    assert len(plan_groups(np.full(64, 512), heads=12, has_dropout=False)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_compiled_model_is_the_same(dropout: float) -> None:
    model = model_of(config_of(dropout=dropout, num_hidden_layers=1, preset="tiny"))
    compiled = torch.compile(model, dynamic=True)
    for lengths in ((9, 31, 31), (12, 50)):
        results = []
        for each in (model, compiled):
            model.zero_grad()
            seed_dropout(each, 1)
            found = each(batch_of(lengths))
            weighted(found.sequence, found.pooled).backward()
            results.append([found.sequence, *(p.grad.clone() for p in model.parameters())])
        for ours, theirs in zip(*results, strict=True):
            torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-4)
