# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.data.input_pipeline."""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.data import (
    Masker,
    baseline_accuracies,
    pretrain_dataset,
    read_manifest,
)
from bert_tf.text import Vocabulary
from tests.toy.records import LENGTH, random_pairs, write_records


@pytest.fixture(scope="module")
def records(tmp_path_factory, vocabulary):
    folder = tmp_path_factory.mktemp("pipeline") / "records"
    rng = np.random.default_rng(0)
    rows = []
    for i in range(40):
        first, second = rng.integers(2, 7, 2)
        a, b = (rng.integers(5, vocabulary.size, n).tolist() for n in (first, second))
        token_ids = [2, *a, 3, *b, 3]
        rows.append((token_ids, first + 2, i % 2))
    write_records(folder, vocabulary, rows)
    return folder, rows


def unmask(x, y, weights):
    """Returns the token ids with the labels put back."""
    tokens = x["token_ids"].numpy().copy()
    for row in range(len(tokens)):
        used = weights["mlm"][row].numpy() > 0
        positions = x["mask_positions"][row].numpy()[used]
        tokens[row, positions] = y["mlm"][row].numpy()[used]
    return tokens


def test_training_mixes_files_anew_in_each_epoch(vocabulary, tmp_path):
    """Each file is a part of the text: with a small buffer, rows would be in order."""
    rows = [([2, 5 + i, 3, 6, 3], 3, 0) for i in range(20)]
    for i in range(4):
        write_records(tmp_path, vocabulary, rows[5 * i : 5 * i + 5])
        path = tmp_path / "train-00000-of-00001.tfrecord"
        path.rename(tmp_path / f"train-{i:05d}-of-00004.tfrecord")
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"train_rows": 20}))
    dataset = pretrain_dataset(tmp_path, batch_size=4, shuffle_buffer=1)
    batches = [(unmask(*b), b[0]["mask_positions"].numpy()) for b in dataset.take(10)]
    epochs, masks = [], []
    for epoch in (batches[:5], batches[5:]):
        tokens, positions = map(np.concatenate, zip(*epoch))
        epochs.append((tokens[:, 1] - 5).tolist())
        masks.append(sorted(zip(epochs[-1], positions.tolist())))
        assert sorted(epochs[-1]) == list(range(20))
        assert len({number // 5 for number in epochs[-1][:4]}) == 4
    assert epochs[0] != epochs[1]  # In a different order,
    assert masks[0] != masks[1]  # with different masks.


def test_packed_rows_contain_their_pairs(records, vocabulary, tmp_path):
    _, pairs = records
    arguments = {"length": 3 * LENGTH, "pairs_per_row": 3, "split": "validation"}
    write_records(tmp_path / "packed", vocabulary, pairs[:11], **arguments)
    dataset = pretrain_dataset(tmp_path / "packed", batch_size=2, split="validation")
    x, y, weights = dataset.element_spec  # Shapes are static.
    assert x["token_ids"].shape == x["padding_mask"].shape == (2, 3 * LENGTH)
    assert x["mask_positions"].shape == y["mlm"].shape == weights["mlm"].shape == (2, 8)
    assert x["first_positions"].shape == y["nsp"].shape == weights["nsp"].shape
    seen = []
    for x, y, weights in dataset:
        tokens = unmask(x, y, weights)
        for row, number in np.ndindex(2, 3):
            inside = x["padding_mask"][row].numpy() == number + 1
            if weights["nsp"][row, number] == 0:
                assert not inside.any()
                continue
            assert np.argmax(inside) == x["first_positions"][row, number]
            segments = x["segment_ids"][row].numpy()[inside]
            first = len(segments) - segments.sum()
            assert (segments[first:] == 1).all()
            label = int(y["nsp"][row, number])
            seen.append((tokens[row][inside].tolist(), first, label))
        assert not tokens[x["padding_mask"].numpy() == 0].any()
    assert seen == [tuple(pair) for pair in pairs[:11]]


@pytest.mark.parametrize("batch_size", [7, 40, 64])
def test_validation_is_the_same_for_all_batch_sizes(
    records, vocabulary, batch_size, tmp_path
):
    folder, pairs = tmp_path / "records", records[1]
    write_records(folder, vocabulary, pairs, split="validation")
    one = next(iter(pretrain_dataset(folder, batch_size=40, split="validation")))
    dataset = pretrain_dataset(folder, batch_size=batch_size, split="validation")
    batches = list(dataset)
    assert len(batches) == len(dataset) == -(-40 // batch_size)
    whole = tf.nest.map_structure(lambda *parts: np.concatenate(parts), *batches)
    x, y, weights = whole
    for name, values in (x | y).items():
        assert values.shape[0] == len(batches) * batch_size
        np.testing.assert_array_equal(values[:40], (one[0] | one[1])[name])
    assert not x["padding_mask"][40:].any()
    for name, values in weights.items():
        assert not values[40:].any()
        means = values[:40] / len(batches)  # As Keras averages metrics.
        np.testing.assert_allclose(means, one[2][name], rtol=1e-6)
        np.testing.assert_allclose(means.sum(), 1, rtol=1e-6)


def test_first_step_resumes_with_equal_batches(records):
    whole, rest = (
        pretrain_dataset(records[0], batch_size=8, seed=3, first_step=step)
        for step in (0, 7)
    )
    # Deleting the iterator could take a minute otherwise, see `map_ahead`.
    assert whole.options().autotune.enabled is False
    for first, second in zip(whole.skip(7).take(5), rest.take(5), strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, first, second)


def test_baselines_are_the_most_frequent_tokens():
    # [MASK] is 4. The last position of the second row is not used.
    x = {
        "token_ids": [[2, 7, 4, 8, 4, 3], [2, 4, 7, 4, 7, 3]],
        "mask_positions": [[2, 4], [3, 0]],
    }
    y, weights = {"mlm": [[8, 9], [9, 0]]}, {"mlm": [[0.3, 0.3], [0.3, 0.0]]}
    dataset = tf.data.Dataset.from_tensors((x, y, weights))
    # 3 is the most frequent after 7, but no label.
    counted = np.array([[7, 8, 9, 7, 3], [7, 8, 8, 7, 3], [7, 9, 8, 7, 3]])
    found = baseline_accuracies(dataset, counted)
    # 7 -> 8 is right in the first row only; 8 -> 9 and 8 -> 8 are equally frequent.
    assert found == {"unigram_accuracy": 2 / 3, "bigram_accuracy": 2 / 3}


# --- Masking ---------------------------------------------------------------------


@pytest.fixture
def masked(vocabulary):
    """A large batch before and after masking."""
    before = random_pairs(vocabulary, batch_size=4000, seed=1, length=64)
    return before, Masker(vocabulary=vocabulary)(before, (0, tf.constant(0)))


def test_predictions_are_those_of_google_research_bert(masked, vocabulary):
    before, (x, y, weights) = masked
    lengths = before["padding_mask"].numpy().sum(1)
    expected = [min(10, max(1, round(int(length) * 0.15))) for length in lengths]
    used = weights["mlm"].numpy() > 0
    np.testing.assert_array_equal(used.sum(1), expected)
    positions = x["mask_positions"].numpy()
    assert ((np.diff(positions, axis=1) > 0) | ~used[:, 1:]).all(), "distinct, sorted"
    tokens = np.take_along_axis(before["token_ids"].numpy(), positions, axis=1)
    np.testing.assert_array_equal(y["mlm"].numpy()[used], tokens[used])
    assert not np.isin(tokens[used], vocabulary.special_ids).any()
    for weight in (weights["mlm"].numpy(), weights["nsp"].numpy()):
        np.testing.assert_allclose(weight.sum(), 1, rtol=1e-5)
        np.testing.assert_allclose(
            weight[weight > 0] * (weight > 0).sum(), 1, rtol=1e-5
        )


def test_rate_of_one_selects_all_tokens_but_special_ones(vocabulary):
    before = random_pairs(vocabulary, 50, seed=5)
    masker = Masker(vocabulary=vocabulary, mask_selection_rate=1.0)
    x, _, weights = masker(before, (0, tf.constant(0)))
    assert x["mask_positions"].shape == (50, LENGTH)
    is_regular = ~np.isin(before["token_ids"], vocabulary.special_ids)
    for row in range(50):
        used = weights["mlm"][row].numpy() > 0
        positions = x["mask_positions"][row].numpy()
        np.testing.assert_array_equal(positions[used], np.flatnonzero(is_regular[row]))
        assert (positions[~used] == 0).all()


def test_positions_are_equally_likely(vocabulary):
    pairs = random_pairs(vocabulary, 1, seed=0)
    pairs = {name: tf.repeat(value, 20_000, 0) for name, value in pairs.items()}
    x, _, weights = Masker(vocabulary=vocabulary)(pairs, (0, tf.constant(1)))
    used = weights["mlm"].numpy() > 0
    counts = np.bincount(x["mask_positions"].numpy()[used], minlength=LENGTH)
    ids = pairs["token_ids"][0].numpy()
    candidates = ~np.isin(ids, vocabulary.special_ids)
    assert (counts[~candidates] == 0).all()
    shares = counts[candidates] / counts.sum()
    np.testing.assert_allclose(shares, 1 / candidates.sum(), rtol=0.05)


def test_replacement_shares(masked, vocabulary):
    before, (x, y, weights) = masked
    used = weights["mlm"].numpy() > 0
    shown = tf.gather(x["token_ids"], x["mask_positions"], batch_dims=1).numpy()[used]
    labels = y["mlm"].numpy()[used]
    is_mask, is_same = shown == vocabulary.mask_id, shown == labels
    others = vocabulary.size - len(vocabulary.special_ids)
    np.testing.assert_allclose(is_mask.mean(), 0.8, atol=0.01)
    # A random token equals the label with probability 1 / others.
    np.testing.assert_allclose(is_same.mean(), 0.1 + 0.1 / others, atol=0.01)
    random_tokens = shown[~is_mask & ~is_same]
    assert not set(random_tokens) & set(vocabulary.special_ids)
    assert len(set(random_tokens)) == others
    untouched = np.ones(before["token_ids"].shape, bool)
    rows = np.broadcast_to(np.arange(len(used))[:, None], used.shape)
    untouched[rows[used], x["mask_positions"].numpy()[used]] = False
    np.testing.assert_array_equal(
        x["token_ids"].numpy()[untouched], before["token_ids"].numpy()[untouched]
    )


def test_masks_depend_on_seed_and_step(vocabulary):
    before, masker = random_pairs(vocabulary, 20, 2), Masker(vocabulary=vocabulary)
    first, again, later, other = (
        masker(before, (seed, tf.constant(step)))[0]["mask_positions"].numpy()
        for seed, step in ((0, 0), (0, 0), (0, 1), (1, 0))
    )
    np.testing.assert_array_equal(again, first)
    assert (later != first).any()
    assert (other != first).any()


def test_whole_word_masking(vocabulary):
    continues = vocabulary.is_continuation
    rng = np.random.default_rng(4)
    before = random_pairs(vocabulary, 500, seed=4, length=64)
    pieces = rng.choice(np.flatnonzero(continues), (500, 64))
    tokens = before["token_ids"].numpy()
    special = np.isin(tokens, vocabulary.special_ids)
    after_special = np.roll(special, 1, axis=1)
    continued = ~special & ~after_special & (rng.random(tokens.shape) < 0.4)
    tokens = np.where(continues[tokens], 5, tokens)  # Start from words of one token.
    tokens = np.where(continued, pieces, tokens)
    before["token_ids"] = tf.constant(tokens, tf.int32)
    masker = Masker(vocabulary=vocabulary, whole_word_masking=True)
    x, _, weights = masker(before, (0, tf.constant(0)))

    wanted = np.clip(np.round(before["padding_mask"].numpy().sum(1) * 0.15), 1, 10)
    counts, too_long = [], 0
    for row in range(500):
        used = weights["mlm"][row].numpy() > 0
        chosen = set(x["mask_positions"][row].numpy()[used].tolist())
        counts.append(len(chosen))
        others = []  # Lengths of the words that are not selected.
        for position in range(1, 64):
            if continues[tokens[row, position]]:
                assert (position in chosen) == (position - 1 in chosen)
                if position not in chosen:
                    others[-1] += 1
            elif position not in chosen and not special[row, position]:
                others.append(1)
        # google-research/bert selects words until no other one fits.
        assert not others or min(others) > wanted[row] - len(chosen)
        too_long += len(chosen) < wanted[row]
    assert (np.array(counts) <= wanted).all()
    assert np.mean(counts) > 0.95 * wanted.mean()
    assert too_long


def test_whole_words_are_skipped_in_order(vocabulary):
    """Equal to google's loop over the words in random order, one after the other."""
    pieces = np.flatnonzero(vocabulary.is_continuation)
    rng = np.random.default_rng(1)
    tokens = rng.choice(pieces, (200, 48))
    is_start = rng.random(tokens.shape) < 0.3
    is_start[:, 0] = True
    tokens = np.where(is_start, 5, tokens)
    draws, wanted = rng.random(tokens.shape).astype("f"), np.full((200, 1), 9, "i")
    masker = Masker(vocabulary=vocabulary, whole_word_masking=True)
    order, selected = masker._select_words(
        tf.constant(tokens, tf.int32), tf.ones(tokens.shape, bool), draws, wanted
    )
    for row in range(200):
        words = np.split(np.arange(48), np.flatnonzero(is_start[row])[1:])
        expected: list[int] = []
        numbered = sorted(enumerate(words, 1), key=lambda w: draws[row, w[0] % 48])
        for _, word in numbered:
            if len(expected) + len(word) <= 9:
                expected += word.tolist()
        assert order[row].numpy()[selected[row].numpy()].tolist() == expected


# --- Bad input -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mask_selection_rate": 0.0}, "mask_selection_rate=0.0"),
        # `evaluate` would return no metrics (tensorflow/tensorflow#45737).
        ({"split": "validation"}, "has no validation rows"),
    ],
)
def test_invalid_arguments_raise(records, arguments, message):
    with pytest.raises(ValueError, match=message):
        pretrain_dataset(records[0], batch_size=2, **arguments)


def test_damaged_manifest_vocabulary_and_records_are_named(tmp_path, vocabulary):
    written = tmp_path / "records"
    write_records(written, vocabulary, [([2, 5, 3, 6, 3], 3, 0)])
    path, file = written / "manifest.json", written / "train-00000-of-00001.tfrecord"
    manifest = json.loads(path.read_text())
    sizes = {"record_files": {file.name: file.stat().st_size}}
    path.write_text(json.dumps(manifest | sizes))
    read_manifest(written)
    file.write_bytes(b"")
    message = rf"{file.name} is damaged: it has 0 bytes instead of .* Remove {path}"
    with pytest.raises(ValueError, match=message):
        read_manifest(written)
    path.write_text(json.dumps(manifest))
    Vocabulary((*vocabulary.tokens[:-1], "dog")).write(written / "vocab.txt")
    with pytest.raises(ValueError, match="not the vocabulary of the records"):
        read_manifest(written)
    path.write_text(json.dumps(manifest)[:50])
    message = rf"^{path} is not valid JSON: .* Remove {path}"
    with pytest.raises(ValueError, match=message):
        read_manifest(written)
    path.unlink()
    message = r"no manifest\.json, so its records are incomplete"
    with pytest.raises(ValueError, match=message):
        pretrain_dataset(written, batch_size=2)


def test_records_of_google_are_named(tmp_path):
    names = ("input_ids", "masked_lm_positions", "next_sentence_labels")
    example = tf.train.Example()
    for name in names:
        example.features.feature[name].int64_list.value[:] = [0]
    with tf.io.TFRecordWriter(str(tmp_path / "tf_examples.tfrecord")) as writer:
        writer.write(example.SerializeToString())
    for path in (tmp_path, tmp_path / "tf_examples.tfrecord"):
        with pytest.raises(
            ValueError, match=r"tf_examples\.tfrecord has records of go"
        ):
            pretrain_dataset(path, batch_size=2)
