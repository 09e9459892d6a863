from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
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


@pytest.mark.parametrize("size", [7, 200], ids=["small", "more than an epoch"])
def test_windows_cover_the_stream_with_full_batches(instances, size):
    plan = BatchSampler(instances, batch=BatchConfig(global_batch_size=size), seed=4)
    position = 0
    for window in windows(plan, 4):
        assert window.start == position
        wanted = stream_rows(position, window.end - position, size=ROWS, seed=4)
        assert pairs(window.rows, window.epochs) == pairs(wanted.rows, wanted.epochs)
        assert window.bounds[0] == 0
        assert window.bounds[-1] == len(window.rows)
        position = window.end
        assert {len(rows) for rows in batches_of(window)} == {size}


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
@given(st.lists(st.integers(1, 128), min_size=1, max_size=90), st.integers(8, 2000))
def test_micro_batches_are_within_the_limit_and_few(lengths, limit):
    lengths = np.sort(np.array(lengths))[::-1]
    collator = MicroBatchCollator("mlm", max_tokens=limit)
    bounds = collator.split(lengths)
    assert bounds[0] == 0
    assert bounds[-1] == len(lengths)
    assert (np.diff(bounds) > 0).all()
    for begin, end in pairwise(bounds):
        assert int(lengths[begin:end].sum()) <= limit or end - begin == 1
    if limit >= 128:
        assert len(bounds) - 1 <= 1 + lengths.sum() // (limit - 127)


def test_micro_batches_have_about_equal_sizes():
    lengths = np.full(260, 100)
    collator = MicroBatchCollator("mlm", max_tokens=10_000)
    bounds = collator.split(lengths)
    assert len(bounds) == 4
    assert np.diff(bounds).max() <= 89
