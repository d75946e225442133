# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.data.records."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.data import Records, baseline_accuracies, pretrain_dataset
from bert_tf.text import Vocabulary
from tests.toy.records import LENGTH, write_records


@pytest.fixture(scope="module")
def pairs(vocabulary):
    rng = np.random.default_rng(0)
    pairs = []
    for i in range(40):
        first, second = rng.integers(2, 7, 2).tolist()
        a, b = (rng.integers(5, vocabulary.size, n).tolist() for n in (first, second))
        pairs.append(([2, *a, 3, *b, 3], first + 2, i % 2))
    return pairs


def unmask(x, y, weights):
    """Returns the token ids with the labels put back."""
    tokens = x["token_ids"].numpy()
    rows, columns = np.nonzero(weights["mlm"])
    positions = x["mask_positions"].numpy()[rows, columns]
    tokens[rows, positions] = y["mlm"].numpy()[rows, columns]
    return tokens


def test_training_mixes_files_anew_in_each_pass(vocabulary, tmp_path):
    """Each file is a part of the text: with a small buffer, rows would be in order."""
    rows = [([2, 5 + i, 3, 6, 3], 3, 0) for i in range(20)]
    write_records(tmp_path, vocabulary, rows, num_files=4)
    dataset = pretrain_dataset(tmp_path, batch_size=4, shuffle_buffer=1)
    batches = [(unmask(*b), b[0]["mask_positions"].numpy()) for b in dataset.take(10)]
    passes, masks = [], []
    for part in (batches[:5], batches[5:]):
        tokens, positions = map(np.concatenate, zip(*part))
        passes.append((tokens[:, 1] - 5).tolist())
        masks.append(sorted(zip(passes[-1], positions.tolist())))
        assert sorted(passes[-1]) == list(range(20))
        assert len({number // 5 for number in passes[-1][:4]}) == 4
    assert passes[0] != passes[1]  # In a different order,
    assert masks[0] != masks[1]  # with different masks.


def test_packed_rows_contain_their_pairs(pairs, vocabulary, tmp_path):
    arguments = {"length": 3 * LENGTH, "pairs_per_row": 3, "split": "validation"}
    write_records(tmp_path / "packed", vocabulary, pairs[:11], **arguments)
    dataset = Records(tmp_path / "packed").dataset("validation", batch_size=2)
    x, y, weights = dataset.element_spec  # Shapes are static.
    assert x["token_ids"].shape == x["padding_mask"].shape == (2, 3 * LENGTH)
    assert x["mask_positions"].shape == y["mlm"].shape == weights["mlm"].shape == (2, 8)
    assert x["first_positions"].shape == y["nsp"].shape == weights["nsp"].shape
    seen = []
    for x, y, weights in dataset:
        tokens = unmask(x, y, weights)
        x, y = ({name: v.numpy() for name, v in part.items()} for part in (x, y))
        for row, used in enumerate(weights["nsp"].numpy() > 0):
            length, starts = x["padding_mask"][row].sum(), x["first_positions"][row]
            assert not tokens[row, length:].any()
            assert not starts[~used].any()
            ends = [*starts[used][1:], length]
            for start, end, label in zip(starts[used], ends, y["nsp"][row][used]):
                segments = x["segment_ids"][row, start:end]
                first = len(segments) - segments.sum()
                assert (segments[first:] == 1).all()
                seen.append((tokens[row, start:end].tolist(), first, label))
    assert seen == pairs[:11]


@pytest.mark.parametrize("batch_size", [7, 64])
def test_validation_is_the_same_for_all_batch_sizes(
    pairs, vocabulary, batch_size, tmp_path
):
    write_records(tmp_path, vocabulary, pairs, split="validation")
    records = Records(tmp_path)
    one = next(iter(records.dataset("validation", batch_size=40)))
    dataset = records.dataset("validation", batch_size=batch_size)
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


def test_first_step_resumes_with_equal_batches(pairs, vocabulary, tmp_path):
    write_records(tmp_path, vocabulary, pairs)
    whole, rest = (
        Records(tmp_path).dataset(batch_size=8, seed=3, first_step=step)
        for step in (0, 7)
    )
    # Deleting the iterator could take a minute otherwise, see `map_ahead`.
    assert whole.options().autotune.enabled is False
    for first, second in zip(whole.skip(7).take(5), rest.take(5), strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, first, second)
        for weights in first[2].values():
            np.testing.assert_allclose(tf.reduce_sum(weights), 1, rtol=1e-5)
            assert len(set(weights.numpy()[weights > 0])) == 1


@pytest.mark.parametrize("token", ["cat", "##s"])
def test_whole_words_of_single_tokens_are_reported(vocabulary, tmp_path, caplog, token):
    pair = [vocabulary.tokens.index(x) for x in ("[CLS]", "the", "[SEP]", token)]
    write_records(tmp_path, vocabulary, [(pair, 3, 0)] * 4)
    Records(tmp_path).dataset(batch_size=2, whole_word_masking=True)
    assert ("0 % of the tokens continue a word" in caplog.text) == (token == "cat")


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


# --- Bad input -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("train-00000-of-00001.tfrecord", "", "damaged: it has 0 bytes instead of .*"),
        ("vocab.txt", "", "not the vocabulary of the records"),
        ("manifest.json", '{"a', "manifest.json is not valid JSON: .* Remove .*"),
        (
            "manifest.json",
            None,
            r"no manifest\.json: the path is wrong, or the records",
        ),
    ],
)
def test_damaged_directories_raise(tmp_path, vocabulary, file, content, message):
    write_records(tmp_path, vocabulary, [([2, 5, 3, 6, 3], 3, 0)])
    # `evaluate` would return no metrics (tensorflow/tensorflow#45737).
    with pytest.raises(ValueError, match="has no validation rows"):
        Records(tmp_path).dataset("validation", batch_size=2)
    if file == "vocab.txt":
        Vocabulary((*vocabulary.tokens[:-1], "dog")).write(tmp_path / file)
    elif content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(content)
    with pytest.raises(ValueError, match=message):
        Records(tmp_path)
