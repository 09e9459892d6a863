from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from model.data.collator import MicroBatchCollator
from model.data.sampler import rank_share


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
