import gc
import itertools
import threading
from contextlib import closing

import numpy as np
import pytest
import torch
from support.instance_builder import (
    CLS,
    LONGEST,
    VOCAB_SIZE,
    VOCABULARY,
    random_shards,
    training_rows,
    write_artifact,
)
from support.waiting import wait_until

from model.data.batches import IGNORE_INDEX
from model.data.collator import MicroBatchCollator
from model.data.dataset import InstanceDataset
from model.data.loader import PretrainingDataLoader, eval_batches, prefetch
from model.data.sampler import stream_rows
from pipelines.instances.masking import mask_batch
from pipelines.seeds import key_for, random_bits
from schemas.corpus_configs import MaskingConfig
from schemas.errors import ConfigError, InstanceDataError
from schemas.model_configs import BatchConfig

ROWS = 90
MASKING = MaskingConfig(max_predictions_per_seq=9)
SHARDS = random_shards(ROWS)
WRITTEN = training_rows(SHARDS)


@pytest.fixture(scope="module")
def instances(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("data"))
    artifact = write_artifact(folder, SHARDS)
    return InstanceDataset.open(artifact, vocab_size=VOCAB_SIZE, max_seq_length=LONGEST)


def collator_of(config, *, objective="mlm+nsp"):
    return MicroBatchCollator(objective, config.per_device_max_tokens)


def arguments(config, *, objective="mlm+nsp", **changes):
    return {
        "batch": config,
        "collator": collator_of(config, objective=objective),
        "seed": 5,
        "vocabulary": VOCABULARY,
        "prefetch_factor": 0,
        **changes,
    }


def make(instances, *, batch=None, **changes):
    small = {"global_batch_size": 16, "per_device_max_tokens": 200}
    return PretrainingDataLoader(
        instances, **arguments(BatchConfig(**{**small, **(batch or {})}), **changes)
    )


def take(loader, count):
    return list(itertools.islice(loader, count))


def rows_of(batch):
    return sorted(row for part in batch.micro_batches for row in part.rows.tolist())


def totals(batch):
    return batch.predictions, batch.pairs, batch.lengths.tolist()


def assert_same(one, two):
    assert totals(one) == totals(two)
    for a, b in zip(one.micro_batches, two.micro_batches, strict=True):
        for x, y in zip(flat(a), flat(b), strict=True):
            assert np.array_equal(x, y)


def flat(part):
    tensors = [*part.tokens[:4], part.masked_positions, part.masked_ids, part.next_sentence_labels]
    assert all(tensor.dtype == torch.int64 for tensor in tensors)
    return [*map(np.asarray, tensors), part.tokens.lengths, part.rows]


def decoded(part):
    """Each instance of a micro-batch: row, ids, segments, {position: id to predict}, label."""
    tokens = part.tokens
    chosen = dict(zip(part.masked_positions.tolist(), part.masked_ids.tolist(), strict=True))
    assert part.masked_positions.tolist() == sorted(chosen)
    for number, start in enumerate(tokens.starts.tolist()):
        length = int(tokens.lengths[number])
        span = slice(start, start + length)
        assert tokens.position_ids[span].tolist() == list(range(length))
        targets = {p - start: token for p, token in chosen.items() if start <= p < start + length}
        yield (
            int(part.rows[number]),
            tokens.input_ids[span].tolist(),
            tokens.segment_ids[span].tolist(),
            targets,
            int(part.next_sentence_labels[number]),
        )


def test_batch_has_the_contents_of_the_shards(instances):
    for batch in take(make(instances), 12):
        rows = [one for part in batch.micro_batches for one in decoded(part)]
        for row, ids, segments, targets, label in rows:
            written = WRITTEN[row]
            assert ids == written.input_ids
            b_start = written.segment_b_start
            assert segments == [0] * b_start + [1] * (len(ids) - b_start)
            assert targets == dict(zip(written.positions, written.masked_ids, strict=True))
            assert label == (IGNORE_INDEX if written.label < 0 else written.label)
        written = [WRITTEN[one[0]] for one in rows]
        assert len(batch.lengths) == len(rows) == 16
        assert batch.tokens == sum(len(row.input_ids) for row in written)
        assert batch.predictions == sum(len(row.positions) for row in written)
        assert batch.pairs == sum(row.label >= 0 for row in written)


def test_instances_of_a_micro_batch_lie_end_to_end(instances):
    for batch in take(make(instances), 12):
        for part in batch.micro_batches:
            tokens, lengths = part.tokens, part.tokens.lengths
            total = len(tokens.input_ids)
            assert len(tokens.segment_ids) == len(tokens.position_ids) == total
            assert total <= 200
            assert (np.diff(lengths) <= 0).all()
            assert tokens.starts.tolist() == (np.cumsum(lengths) - lengths).tolist()
            assert total == lengths.sum()


@pytest.mark.parametrize("size", [7, 200], ids=["small", "more than an epoch"])
@pytest.mark.parametrize("world_size", [1, 3])
def test_batches_are_the_stream_and_every_epoch_has_each_instance_once(instances, world_size, size):
    config = BatchConfig(global_batch_size=size)
    loaders = [
        iter(
            PretrainingDataLoader(instances, **arguments(config, rank=rank, world_size=world_size))
        )
        for rank in range(world_size)
    ]
    stream = stream_rows(0, 5 * ROWS, size=ROWS, seed=5).rows
    for number in range(5 * ROWS // size):
        rows = [row for loader in loaders for row in rows_of(next(loader))]
        assert sorted(rows) == sorted(stream[number * size : (number + 1) * size].tolist())
    assert np.bincount(stream).tolist() == [5] * ROWS


@pytest.mark.parametrize("masking", ["stored", "wordpiece", "whole-word"])
def test_global_batches_do_not_depend_on_number_of_ranks(instances, masking):
    options = {}
    if masking != "stored":
        options |= {"dynamic_masking": MaskingConfig(strategy=masking)}
    alone = take(make(instances, **options), 14)
    parts = [take(make(instances, rank=rank, world_size=3, **options), 14) for rank in range(3)]
    for whole, *shares in zip(alone, *parts, strict=True):
        assert sorted(row for share in shares for row in rows_of(share)) == rows_of(whole)
        wanted = sorted(map(str, (one for part in whole.micro_batches for one in decoded(part))))
        shared = sorted(
            str(one) for share in shares for part in share.micro_batches for one in decoded(part)
        )
        assert shared == wanted
        for share in shares:
            assert share.micro_batches
            assert totals(share) == totals(whole)
        assert whole.predictions == sum(len(part.masked_ids) for part in whole.micro_batches)
        tokens = [sum(int(p.tokens.lengths.sum()) for p in s.micro_batches) for s in shares]
        assert max(tokens) - min(tokens) <= LONGEST


def test_resuming_at_any_step_gives_the_same_batches(instances):
    options = arguments(BatchConfig(global_batch_size=16), dynamic_masking=MASKING)
    whole = take(PretrainingDataLoader(instances, **options), 14)
    for step in range(1, 14):
        rest = take(PretrainingDataLoader(instances, **options, position=16 * step), 14 - step)
        for one, two in zip(whole[step:], rest, strict=True):
            assert_same(one, two)


@pytest.mark.parametrize("strategy", ["wordpiece", "whole-word", "span"])
def test_dynamic_masks_depend_on_seed_epoch_and_row(instances, strategy):
    config = MaskingConfig(strategy=strategy, max_predictions_per_seq=9)
    loader = make(instances, dynamic_masking=config)
    masks = {}
    for batch in take(loader, 3 * ROWS // 16):
        for part in batch.micro_batches:
            for row, ids, _, targets, _ in decoded(part):
                masks.setdefault(row, []).append((ids, targets))
                original = list(ids)
                for position, token in targets.items():
                    original[position] = token
                assert original == WRITTEN[row].original_ids
                assert 1 <= len(targets) <= 9
                assert not {original[position] for position in targets} & {CLS}
    again = [one for one in masks.values() if len(one) > 1]
    assert len(again) > ROWS // 2
    assert sum(one[0] == one[1] for one in again) < len(again) // 4
    for row, drawn in list(masks.items())[:20]:
        assert drawn[0] == mask_alone(WRITTEN[row], row, config=config)


def mask_alone(written, row, *, config):
    key = np.array([key_for(5, "dynamic-masking", 0)], np.uint64)
    masked = mask_batch(
        random_bits(key, np.array([row])),
        np.array(written.original_ids, np.uint16),
        offsets=np.array([0, len(written.input_ids)]),
        segment_b_start=np.array([written.segment_b_start]),
        vocabulary=VOCABULARY,
        config=config,
    )
    pairs = zip(masked.positions.tolist(), masked.original_ids.tolist(), strict=True)
    return masked.input_ids.tolist(), dict(pairs)


def test_left_to_right_predicts_every_next_token(instances):
    options = {"objective": "left-to-right", "world_size": 2, "rank": 0}
    loader = make(instances, **options)
    for batch in take(loader, 8):
        for part in batch.micro_batches:
            for row, ids, _, targets, label in decoded(part):
                assert ids == WRITTEN[row].original_ids
                assert targets == dict(enumerate(ids[1:]))
                assert label == IGNORE_INDEX
        assert batch.pairs == 0
        assert batch.predictions == batch.tokens - len(batch.lengths)


def test_eval_batches_have_each_row_once(instances):
    rows = np.arange(60)[1::2]
    instances_by_row = {}
    collator = collator_of(BatchConfig(per_device_max_tokens=200), objective="mlm")
    for part in eval_batches(instances, rows=rows, collator=collator):
        assert len(part.tokens.input_ids) <= 200
        instances_by_row |= {one[0]: one for one in decoded(part)}
    assert sorted(instances_by_row) == rows.tolist()
    for row, ids, _, targets, label in instances_by_row.values():
        written = dict(zip(WRITTEN[row].positions, WRITTEN[row].masked_ids, strict=True))
        assert (ids, targets, label) == (WRITTEN[row].input_ids, written, IGNORE_INDEX)


def test_batches_smaller_than_the_number_of_ranks_are_refused(instances):
    make(instances, batch={"global_batch_size": 3}, world_size=3)
    with pytest.raises(ConfigError, match=r"batch\.global_batch_size: expected at least 4"):
        make(instances, batch={"global_batch_size": 3}, world_size=4)


def prefetch_threads():
    return [one for one in threading.enumerate() if one.name.startswith("bertloom-prefetch")]


def test_prefetching_does_not_change_batches(instances):
    with closing(iter(make(instances, prefetch_factor=3))) as batches:
        for one, two in zip(take(make(instances), 20), batches, strict=False):
            assert_same(one, two)
        assert prefetch_threads()
    assert not prefetch_threads()
    with pytest.raises(StopIteration):
        next(batches)


def test_thread_ends_when_its_iterator_is_deleted(instances):
    loader = make(instances, prefetch_factor=1)
    batches = iter(loader)
    next(batches)
    del batches
    gc.collect()
    wait_until(lambda: not prefetch_threads())


def test_errors_of_the_thread_are_raised_in_order(instances, monkeypatch):
    batches = iter(make(instances, prefetch_factor=2))
    monkeypatch.setattr(
        InstanceDataset,
        "headers",
        lambda *_: (_ for _ in ()).throw(InstanceDataError("row 7 is wrong")),
    )
    with pytest.raises(InstanceDataError, match="row 7 is wrong"):
        take(batches, 20_000)
    with pytest.raises(StopIteration):
        next(batches)
    wait_until(lambda: not prefetch_threads())


def test_prefetch_computes_no_more_than_its_size_in_advance():
    computed = []

    def items():
        for number in range(100):
            computed.append(number)
            yield number

    with closing(prefetch(items(), size=3)) as numbers:
        assert [next(numbers), next(numbers)] == [0, 1]
        wait_until(lambda: len(computed) >= 2 + 3)
        assert len(computed) == 2 + 3
        assert list(numbers) == list(range(2, 100))
    assert not prefetch_threads()


def test_resuming_with_another_number_of_ranks_gives_the_same_global_batches(instances):
    options = {"dynamic_masking": MASKING}
    whole = take(make(instances, **options), 12)
    rest = [
        take(make(instances, rank=rank, world_size=4, position=5 * 16, **options), 7)
        for rank in range(4)
    ]
    for number in range(7):
        rows = sorted(row for loaded in rest for row in rows_of(loaded[number]))
        assert rows == rows_of(whole[5 + number])
        assert rest[0][number].predictions == whole[5 + number].predictions
