import hashlib
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from model.data.collator import MicroBatchCollator
from model.data.sampler import permute, rank_share, stream_rows


@given(st.integers(1, 3000), st.integers(0, (1 << 64) - 1))
def test_permutation_is_a_bijection(size, key):
    images = permute(np.arange(size), size, key=key)
    assert images.dtype == np.int64
    assert np.array_equal(np.sort(images), np.arange(size))


def test_orders_are_those_of_earlier_versions():
    """A training that another version started continues in the same order."""
    orders = {
        size: hashlib.sha256(permute(np.arange(min(size, 3000)), size, key=7)).hexdigest()[:8]
        for size in (5, 1024, 1025, 2048, 2049, 100_003, 1 << 40)
    }
    assert orders == {
        5: "050cfb24",
        1_024: "97b6d83e",
        1_025: "7409350d",
        2_048: "eb07880d",
        2_049: "0c40afa9",
        100_003: "bd4dd6e4",
        1 << 40: "711ec883",
    }


@given(
    st.integers(1, 1 << 62).flatmap(
        lambda size: st.tuples(st.just(size), st.lists(st.integers(0, size - 1), max_size=20))
    ),
    st.integers(0, (1 << 64) - 1),
)
def test_images_are_distinct_and_in_range(pair, key):
    size, indices = pair
    images = permute(np.array(indices, np.int64), size, key=key)
    assert all(0 <= image < size for image in images)
    assert len(set(images.tolist())) == len(set(indices))
    alone = [int(permute(np.array([index]), size, key=key)[0]) for index in indices]
    assert images.tolist() == alone


def test_one_key_per_index_equals_single_keys():
    keys = np.array([5, 9, 1 << 63, 5], np.uint64)
    indices = np.array([3, 3, 17, 99])
    together = permute(indices, 100, key=keys)
    alone = [permute(indices[i : i + 1], 100, key=int(keys[i]))[0] for i in range(4)]
    assert together.tolist() == alone


def test_all_orders_of_few_elements_are_equally_likely():
    size = 6
    keys = np.random.default_rng(0).integers(0, 1 << 63, 200 * 720).astype(np.uint64)
    images = [permute(np.full(len(keys), i), size, key=keys) for i in range(size)]
    code = sum(image * size**i for i, image in enumerate(images))
    counts = np.unique(code, return_counts=True)[1]
    orders = int(np.prod(np.arange(1, size + 1)))
    expected = len(keys) / orders
    assert len(counts) == orders
    chi_squared = ((counts - expected) ** 2 / expected).sum() / (orders - 1)
    assert chi_squared < 1 + 4 * np.sqrt(2 / (orders - 1))


def test_images_of_neighbors_are_independent():
    keys = np.random.default_rng(1).integers(0, 1 << 63, 200_000).astype(np.uint64)
    size = 2000  # with the rounds of larger ranges
    first = permute(np.zeros(len(keys), np.int64), size, key=keys) // 200
    second = permute(np.ones(len(keys), np.int64), size, key=keys) // 200
    counts = np.bincount(first * 10 + second, minlength=100)
    expected = len(keys) / 100
    assert ((counts - expected) ** 2 / expected).sum() < 99 + 5 * np.sqrt(2 * 99)


@given(st.integers(1, 60), st.integers(0, 500), st.integers(0, 300))
def test_stream_has_every_row_once_per_epoch_from_any_start(size, start, count):
    whole = stream_rows(0, 900, size=size, seed=3)
    part = stream_rows(start, count, size=size, seed=3)
    assert part.rows.tolist() == whole.rows[start : start + count].tolist()
    assert part.epochs.tolist() == whole.epochs[start : start + count].tolist()
    for epoch in range(900 // size):
        position = slice(epoch * size, (epoch + 1) * size)
        assert sorted(whole.rows[position].tolist()) == list(range(size))
        assert set(whole.epochs[position].tolist()) == {epoch}


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
