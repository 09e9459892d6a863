import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from model.data.sampler import permute, stream_rows


@given(st.integers(1, 3000), st.integers(0, (1 << 64) - 1))
def test_permutation_is_a_bijection(size, key):
    images = permute(np.arange(size), size, key=key)
    assert images.dtype == np.int64
    assert np.array_equal(np.sort(images), np.arange(size))


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
