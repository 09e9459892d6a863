from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.instance_builder import LONGEST, random_shards, write_artifact

from model.data.collator import MicroBatchCollator
from model.data.dataset import InstanceDataset
from model.data.permutation import stream_rows
from model.data.sampler import BatchSampler, rank_share
from schemas.errors import ConfigError
from schemas.model_configs import BatchConfig

ROWS = 130


@pytest.fixture(scope="module")
def instances(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    artifact = write_artifact(str(folder), random_shards(ROWS))
    return InstanceDataset.open(artifact, vocab_size=300, max_seq_length=LONGEST)


def windows(plan, count):
    found = [plan.window(0)]
    while len(found) < count:
        found.append(plan.window(found[-1].end))
    return found


def batches_of(window):
    return [window.rows[a:b] for a, b in zip(window.bounds[:-1], window.bounds[1:], strict=True)]


def pairs(rows, epochs):
    return sorted(zip(epochs.tolist(), rows.tolist(), strict=True))


CONFIGS = [
    {"global_batch_size": 7, "batching": "packed"},
    {"global_batch_size": 7, "batching": "bucketed", "bucket_batches": 3},
    {"global_batch_size": 32, "batching": "padded"},
    {"global_batch_size": 200, "batching": "bucketed", "bucket_batches": 2},  # more than an epoch
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_windows_cover_the_stream_with_full_batches(instances, config):
    plan = BatchSampler(instances, batch=BatchConfig(**config), seed=4)
    position = 0
    for window in windows(plan, 4):
        assert window.start == position
        wanted = stream_rows(position, window.end - position, size=ROWS, seed=4)
        assert pairs(window.rows, window.epochs) == pairs(wanted.rows, wanted.epochs)
        assert window.bounds[0] == 0
        assert window.bounds[-1] == len(window.rows)
        position = window.end
        assert {len(rows) for rows in batches_of(window)} == {config["global_batch_size"]}


def test_bucketed_batches_have_similar_lengths_and_are_shuffled(instances):
    config = BatchConfig(global_batch_size=10, batching="bucketed", bucket_batches=10)
    window = BatchSampler(instances, batch=config, seed=2).window(0)
    ranges = [
        (int(lengths.min()), int(lengths.max()))
        for lengths in (instances.lengths(rows) for rows in batches_of(window))
    ]
    ordered = sorted(ranges)
    assert all(one[1] <= two[0] for one, two in pairwise(ordered))
    assert ranges != ordered
    other = BatchSampler(instances, batch=config, seed=2).window(window.end)
    assert [len(rows) for rows in batches_of(other)] == [10] * 10


def test_batches_smaller_than_the_number_of_ranks_are_refused(instances):
    config = BatchConfig(global_batch_size=3)
    BatchSampler(instances, batch=config, seed=0, world_size=3)
    with pytest.raises(ConfigError, match=r"batch\.global_batch_size: expected at least 4"):
        BatchSampler(instances, batch=config, seed=0, world_size=4)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=90), st.integers(1, 8))
def test_shares_are_a_balanced_partition(lengths, world_size):
    lengths = np.array(lengths)
    shares = [rank_share(lengths, rank=rank, world_size=world_size) for rank in range(world_size)]
    assert sorted(np.concatenate(shares).tolist()) == list(range(len(lengths)))
    sizes = [len(share) for share in shares]
    tokens = [int(lengths[share].sum()) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert max(tokens) - min(tokens) <= lengths.max()
    assert all((np.diff(lengths[share]) <= 0).all() for share in shares)


@settings(max_examples=300)
@example([32, 16, 16, 16], 51, "bucketed")  # halving never ended
@given(
    st.lists(st.integers(1, 128), min_size=1, max_size=90),
    st.integers(8, 2000),
    st.sampled_from(["packed", "bucketed", "padded"]),
)
def test_micro_batches_are_within_the_limit_and_few(lengths, limit, layout):
    lengths = np.sort(np.array(lengths))[::-1]
    collator = MicroBatchCollator("mlm", layout, row_length=128, max_tokens=limit, pad_id=0)
    bounds = collator.split(lengths)
    assert bounds[0] == 0
    assert bounds[-1] == len(lengths)
    assert (np.diff(bounds) > 0).all()
    places = []
    for begin, end in pairwise(bounds):
        own = lengths[begin:end]
        width = 128 if layout == "padded" else min(128, -(-int(own[0]) // 8) * 8)
        places.append(int(own.sum()) if layout == "packed" else width * len(own))
        assert places[-1] <= limit or len(own) == 1
    if layout == "packed" and limit >= 128:
        assert len(places) <= 1 + lengths.sum() // (limit - 127)
    if layout == "padded":
        per = max(1, limit // 128)
        assert len(places) == -(-len(lengths) // per)


def test_micro_batches_have_about_equal_sizes():
    lengths = np.full(260, 100)
    collator = MicroBatchCollator("mlm", "packed", row_length=128, max_tokens=10_000, pad_id=0)
    bounds = collator.split(lengths)
    assert len(bounds) == 4
    assert np.diff(bounds).max() <= 89
