# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import functools
import re

import numpy as np
import pytest
import scipy.special
import sklearn.metrics
import sklearn.utils

from bert_tf import finetuning
from bert_tf.finetuning import batches, correlations
from bert_tf.modeling import BertBackbone
from bert_tf.training import create_training_variables
from tasks.classification import Classification, best_thresholds
from tests.toy import tables
from tests.toy.tables import write

# --- Files -----------------------------------------------------------------------

OWN = {"text_a": "text", "label": "label"}


@pytest.fixture
def read(tmp_path, vocabulary):
    """Reads a data set from files in `tmp_path`; the arguments are options."""
    return functools.partial(tables.read, Classification, tmp_path, vocabulary)


def rows(task, split):
    """Returns (*texts, label) of each row."""
    return [(*row.inputs, row.gold) for row in task.data[split]]


# --- GLUE's file formats, with invented rows ------------------------------------

COLA = "gj04\t1\t\tThey left.\ngj04\t0\t*\tThey leaves.\n"
MRPC = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
MRPC += '1\t70\t71\tHe said "no.\tHe said no.\r\n0\t72\t73\tA\tB\r\n'
STSB = "index\tgenre\tsentence1\tsentence2\tscore\n0\tx\tA\tB\t5\n1\tx\tC\tD\t1"
QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
MNLI = "index\tsentence1\tsentence2\tlabel1\tgold_label\n0\tIt rains.\tWet.\tx\t"


@pytest.mark.parametrize(
    ("name", "files", "expected"),
    [
        ("cola", {"in_domain_train": COLA, "in_domain_dev": "gj04\t1\t\tHe left.\n",
                  "out_of_domain_dev": "clc95\t0\t*\tHe leave.",
                  "test": "index\tsentence\n0\tWho left?\n"},
         {"train": [("They left.", "1"), ("They leaves.", "0")],
          "dev": [("He left.", "1"), ("He leave.", "0")],
          "test": [("Who left?", None)]}),
        ("stsb", {"train": STSB, "dev": STSB},
         {"dev": [("A", "B", "5"), ("C", "D", "1")]}),
        # As GLUE's script leaves the folder, with the files of the original.
        ("mrpc", {"train": MRPC, "dev": MRPC, "msr_paraphrase_train__txt": "",
                  "msr_paraphrase_test__txt": ""},
         {"dev": [('He said "no.', "He said no.", "1"), ("A", "B", "0")]}),
        # Line breaks inside questions split some rows in two.
        ("qqp", {"train": QQP + '0\t1\t2\tWhy?\tWhat\n" is it?\t0\n'
                 "1\t3\t4\tHow?\tHow so?\t1\n2\t5\t6\tWho?\tWhen?\t0\n",
                 "dev": QQP + "7\t8\t9\tWho?\tWhom?\t0\n",
                 "test": "id\tquestion1\tquestion2\n0\tIs it?\tWas it?\n"},
         {"train": [("How?", "How so?", "1"), ("Who?", "When?", "0")],
          "test": [("Is it?", "Was it?", None)]}),
        ("mnli", {"train": f"{MNLI}neutral\n1\tA\tB\tx\tentailment\n",
                  "dev_matched": f"{MNLI}entailment",
                  "dev_mismatched": f"{MNLI}neutral",
                  "test_mismatched": "index\tsentence1\tsentence2\n0\tC\tD\n"},
         {"dev": [("It rains.", "Wet.", "entailment")],
          "dev_mismatched": [("It rains.", "Wet.", "neutral")],
          "test_mismatched": [("C", "D", None)]}),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:A single label was found")
def test_glue(tmp_path, read, name, files, expected):
    names = (file if "__" in file else f"{file}__tsv" for file in files)
    write(tmp_path, **dict(zip(names, files.values())))
    task = read(task=name, data_dir=str(tmp_path))
    assert {split: rows(task, split) for split in expected} == expected
    assert task.evaluation_splits[0] == "dev"


@pytest.mark.parametrize(
    ("name", "counts", "labels"),
    [
        ("cola", (8_551, 527 + 516), ("0", "1")),
        ("mrpc", (4_076, 1_725), ("0", "1")),
        ("stsb", (5_749, 1_500), ()),
        ("rte", (2_490, 277), ("entailment", "not_entailment")),
    ],
)
def test_real_glue(read, real_data, name, counts, labels):
    task = read(task=name, data_dir=str(real_data / name))
    assert (len(rows(task, "train")), len(rows(task, "dev"))) == counts
    assert task.labels == labels
    if not labels:
        assert {min(task.gold["train"]), max(task.gold["train"])} == {0, 5}


# --- The user's own tables --------------------------------------------------------


def test_own_pairs(read):
    table = 'id,verdict,answered,said\n1,10,c,"a, b"\n2,9,e,d\n'
    columns = {"text_a": "said", "text_b": "answered", "label": "verdict"}
    task = read(table, "x.csv", **columns)
    assert rows(task, "dev") == [("a, b", "c", "10"), ("d", "e", "9")]
    assert task.labels == ("9", "10")  # Sorted as numbers.
    assert task.data_set.metrics == ("accuracy", "macro_f1")


SEVERAL = "'a, b' is a class of its own, beside 'a' and"


@pytest.mark.parametrize(
    ("labels", "problem", "hint", "is_given"),
    [
        (("3.5", "5", "4"), "auto", "but learned as 3 classes. Pass", True),
        (("3.5", "5", "4"), "classification", "but learned as", False),
        (('"0,5"', '"1,0"'), "auto", "but learned as 2 classes. Pass", True),
        (("a", "b", '"a, b"'), "auto", SEVERAL, True),
        (("a", "b", '"a, c"'), "auto", "is a class of its own", False),
    ],
)
def test_hints(read, caplog, labels, problem, hint, is_given):
    """Scores, or lists of labels, that are learned as classes."""
    lines = ["text,label", *(f"a,{label}" for label in labels)]
    read("\n".join(lines), "x.csv", **OWN, problem=problem)
    assert (hint in caplog.text) == is_given


@pytest.mark.parametrize(
    ("cell", "is_label"),
    [
        *((x, False) for x in ("('a',)", "set()", "array([0., 1.])", "[a, b]")),
        *((x, True) for x in ("Cause-Effect(e1,e2)", "(other)", "[CLS]", "f()")),
    ],
)
def test_containers_are_no_labels(read, cell, is_label):
    """Lists of pandas, simpletransformers#898; choices of Label Studio."""
    table = f"text\tlabel\nx\tno\ny\t{cell}\n"
    if is_label:
        assert cell in read(table, **OWN).labels
    else:
        with pytest.raises(ValueError, match="line 3: column 'label' must be text or"):
            read(table, **OWN)


@pytest.mark.parametrize(
    ("scores", "mean", "deviation"),
    # Such as times in seconds; float32 has 24 bits.
    [((5, 1), 3, 2), ((1700000003, 1700000001), 1700000002, 1)],
)
def test_regression_is_trained_on_standardized_scores(read, scores, mean, deviation):
    table = "text\tlabel\na\t{}\nb\t{}\n".format(*scores)
    task = read(table, **OWN, problem="regression")
    assert task.settings == {"problem": "regression", "pairs": False}
    assert task.scale == (mean, deviation)
    np.testing.assert_array_equal(task.dataset("train").targets, [[1], [-1]])
    found = task.evaluate(task.dataset("dev"), np.full([2, 1], float(scores[1])))
    errors = {"rmse": 2**0.5 * deviation, "mae": deviation}
    expected = {"spearman": 0, "pearson": 0, **errors}
    assert found.metrics == pytest.approx(expected)


GOOD = "text\tlabel\na\tyes\nb\tno\n"
PAIRS = "text\tmore\tlabel\na\tb\tyes\nb\tc\tno\n"
SCORES = "text\tlabel\na\t1\nb\t2\n"
FILES = {"train_file": "train.tsv", "dev_file": "dev.tsv"}


@pytest.mark.parametrize(
    ("train", "dev", "options", "message"),
    [
        (GOOD, "text\tlabel\na\tno\nb\tmaybe\n", {}, "dev.tsv, line 3: label 'maybe' "
         "is not in the training set, whose labels are no, yes."),
        (GOOD, GOOD, {"text_a": "sentence"}, "Select columns with --text_a, --label, "
         "--text_b, --problem, --label_separator, --id, --keep, --group, or with"),
        (GOOD, "text\tlabel\n", {}, "dev.tsv has a header but no rows"),
        (GOOD, "text\tlabel\na\t-\nb\t\n", {}, "dev.tsv: no row has a label. Got '-'."),
        ("text\tlabel\na\tno\nb\tno\n", GOOD, {}, "train.tsv: all labels are 'no'"),
        (SCORES, "text\tlabel\na\t1.5\n", {}, "pass --problem=regression."),
        (SCORES, SCORES, {"problem": "regression", "class_weight": "balanced"},
         "--class_weight requires classes"),
        (SCORES, "text\tlabel\na\tfew\n", {"problem": "regression"},
         "dev.tsv, line 2: a score must be a finite number, as 1.5 or 1e-3. Got 'few'"),
        (GOOD, GOOD, {"label": ""}, "Missing flags: --label. Pass --train_file"),
        (GOOD, GOOD, {"task": "sst2", "problem": "regression"}, "Remove --train_file, "
         "--dev_file, --text_a, --label, --problem"),
        (PAIRS, PAIRS, {"text_b": "more", "long_text": "window_max"}, "--long_text="
         "window_max requires single texts"),
        (GOOD, GOOD, {"text_a": "label"}, "The label must be another column than the "
         "texts. Got label for both. Select columns with --text_a"),
        ("text\tlabel\na\t1,0\nb\t0,1\n", GOOD, {"label_separator": ","},
         "train.tsv: all labels are 0 or 1. Omit --label_separator. For several"),
        (GOOD, GOOD, {"label_separator": ";", "problem": "regression"},
         "Omit --problem=regression, or --label_separator."),
    ],
)  # fmt: skip
def test_invalid_data_or_options(tmp_path, read, train, dev, options, message):
    write(tmp_path, train__tsv=train, dev__tsv=dev)
    options = {**OWN, **FILES, **options}
    with pytest.raises(ValueError, match=re.escape(message)):
        read(**options)


def test_wrong_folder_of_a_benchmark(tmp_path, read):
    options = {"task": "rte", "data_dir": str(tmp_path)}
    with pytest.raises(ValueError, match=f"--data_dir={tmp_path} has no train.tsv"):
        read(**options)
    write(tmp_path, train__tsv=GOOD, dev__tsv=GOOD)
    with pytest.raises(ValueError, match="with another --task or --data_dir"):
        read(**options)


# --- Rows without a gold label ---------------------------------------------------


def test_rows_without_gold_label_are_skipped(tmp_path, read, caplog):
    """As SNLI's papers filter them."""
    write(tmp_path, test__csv="text,label\nb,NaN\nb,NaN\n")
    task = read("text\tlabel\na\tyes\na\t-\na\tno\n", **OWN, test_file="test.csv")
    golds = [[row.gold for row in rows] for rows in task.data.values()]
    assert golds == [["yes", "no"], ["yes", "no"], [None] * 2]
    assert "skipped 1 of 3 rows, whose label '-' means" in caplog.text


@pytest.mark.parametrize(
    ("labels", "options", "expected"),
    [
        *((("0", "1", "2", value), {}, {"0", "1", "2"})
          for value in ("null", "NaN", "-1", "-1.0", '" "', '"-"', '"None"', '"N/A"')),
        (("0", "1", '"none"'), {}, {"0", "1", "none"}),
        (("-1", "1"), {}, {"-1", "1"}),
        (("-1.0", "1.0"), {}, {"-1.0", "1.0"}),
        (("-1", "0", "1", '" 1 "'), {}, {"-1", "0", "1"}),
        (("-2", "-1", "0", "1", "2"), {}, {"-2", "-1", "0", "1", "2"}),
        (('"+"', '"-"'), {}, {"+", "-"}),
        (("-1", "0.5", "null", "NaN"), {"problem": "regression"}, {"-1", "0.5"}),
    ],
)  # fmt: skip
def test_missing_labels_in_json(read, labels, options, expected):
    lines = "".join(f'{{"text": "a", "label": {label}}}\n' for label in labels)
    task = read(lines, "x.json", **OWN, **options)
    assert {row.gold for row in task.data["train"]} == expected


def test_labels_and_ids_are_those_of_each_object(tmp_path, read):
    """The first object does not decide for the others."""
    labeled = '{"id": "i7", "text": "b", "label": "no"}\n'
    write(tmp_path, test__jsonl='{"text": "a"}\n' + labeled)
    rows = read(GOOD, **OWN, test_file="test.jsonl").data["test"]
    assert [(row.id, row.gold) for row in rows] == [("i7", "no")]
    path = str(tmp_path / "test.jsonl")
    options = Classification.Config(output="unused", text_a="text", label="label")
    found = Classification.read_input(options, path)
    assert [(row.id, row.gold) for row in found] == [("0", None), ("i7", "no")]


def test_several_labels_without_gold_label(read):
    """In the test set of Jigsaw's toxic comments, -1 marks rows that do not count."""
    table, columns = "text\ta\tb\nx\t1\t0\ny\t0\t0\nz\t1\t1\n", {"label": "a,b"}
    task = read(f"{table}u\t-1\t-1\n", **OWN | columns, test_file="x.tsv")
    for split in ("train", "test"):
        assert [row.gold for row in task.data[split]] == ["a", "", "a,b"]
    for cells in ("1\t-1", "\t1"):
        with pytest.raises(
            ValueError, match=r"line 5: column '[ab]' must be one of 0, 1"
        ):
            read(f"{table}u\t{cells}\n", **OWN | columns)
    task = read(f"{table}u\t\tNaN\n", **OWN | columns)
    assert [row.gold for row in task.data["train"]] == ["a", "", "a,b"]


# --- Scores and predictions ------------------------------------------------------


def test_undefined_correlations_are_zero():
    for gold, predicted in (([1, 2, 3], [1, 1, 1]), ([1, 1], [1, 2]), ([1], [2])):
        found = correlations(gold, predicted)
        assert found == {"spearman": 0, "pearson": 0}


def test_predictions_of_classes(tmp_path, read):
    write(tmp_path, test__csv="text\na\n")
    task = read(GOOD, **OWN, test_file="test.csv")
    dev = task.dataset("dev")
    found = task.evaluate(dev, [np.log([0.2, 0.8]), np.log([0.4, 0.6])])
    expected = {"accuracy": 0.5, "macro_f1": 1 / 3, "majority_accuracy": 0.5}
    assert found.metrics == expected
    assert re.search(r"\byes +0\.5000 +1\.0000 +0\.6667 +1\n", found.report)
    task.write_predictions("dev", found.answers, tmp_path)
    assert (tmp_path / "predictions_dev.tsv").read_text() == (
        "id\ttext\tprediction\tconfidence\tgold\tP(no)\tP(yes)\n"
        "0\ta\tyes\t0.8\tyes\t0.2\t0.8\n1\tb\tyes\t0.6\tno\t0.4\t0.6\n"
    )
    found = task.evaluate(task.dataset("test"), [np.log([0.2, 0.8])])
    assert (found.metrics, found.report) == ({}, "")
    assert "gold" not in next(task.rows("test", found.answers))


def test_predictions_have_the_same_columns_in_each_row():
    examples = [
        finetuning.Example(str(i), None, ("a",), gold, kept={"text": "b"})
        for i, gold in enumerate((None, "yes"))
    ]
    answers = {"label": ["no", "yes"], "probabilities": np.float32([[0.9, 0.1]] * 2)}
    settings, options = {"labels": ["no", "yes"]}, Classification.Config(output="x")

    def rows():
        return [*Classification.prediction_rows(examples, answers, settings, options)]

    with pytest.raises(ValueError, match="--keep=text is also the name of another col"):
        rows()
    examples = [example._replace(kept={}) for example in examples]
    assert [row["gold"] for row in rows()] == ["", "yes"]
    assert [*rows()[0]] == [*rows()[1]]


# --- Several labels ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "options"),
    [
        ("text\tlabel\na\ty| x\nb\t\nc\tx\n", {"label_separator": "|"}),
        ("text\tx\ty\na\t1\t1\nb\t0\tFalse\nc\ttrue\t0\n", {"label": "x,y"}),
    ],
)
def test_several_labels(read, content, options):
    task = read(content, **OWN | options)
    assert (task.problem, task.settings["labels"]) == ("multi_label", ["x", "y"])
    dev = task.dataset("dev")
    np.testing.assert_array_equal(dev.targets, [[1, 1], [0, 0], [1, 0]])
    # Probabilities of x: 0.4, 0.2, 0.3; of y: 0.4, 0.7, 0.2.
    probabilities = np.array([[0.4, 0.4], [0.2, 0.7], [0.3, 0.2]])
    logits = scipy.special.logit(probabilities)
    found = task.evaluate(dev, logits)
    # y has its best F1 with one false positive.
    np.testing.assert_allclose(found.decision["thresholds"], [0.25, 0.3])
    expected = {"micro_f1": 6 / 7, "macro_f1": (1 + 2 / 3) / 2}
    assert found.metrics == pytest.approx(expected)
    assert re.findall(r"(\w) +1\.0+ +1\.0+ +1\.0+ +(\d)\n", found.report) == [
        ("x", "2")
    ]
    row, *others = task.rows("dev", found.answers)
    both = f"x{options.get('label_separator', ',')}y"
    assert list(row.values())[:4] == ["0", "a", both, pytest.approx(0.16)]
    assert (row["P(x)"], row["P(y)"]) == (0.4, 0.4)
    assert row["gold"] == both  # In the same order.
    assert [row["prediction"] for row in others] == ["y", "x"]
    found = task.evaluate(dev, logits, {"thresholds": [0.5] * 2})
    assert next(task.rows("dev", found.answers))["prediction"] == ""


def test_single_label(read):
    """Scikit-learn's scores of a single column are those of two classes."""
    content = "text\tlabel\na\tx, y\nb\t\nc\tx, y\n"
    task = read(content, **OWN, label_separator=";")
    found = task.evaluate(task.dataset("dev"), [[2.0], [1.0], [0.0]])
    assert found.metrics == pytest.approx({"micro_f1": 0.8, "macro_f1": 0.8})
    assert "x, y     0.6667    1.0000    0.8000         2" in found.report


# --- Decisions -------------------------------------------------------------------


def test_thresholds_have_the_best_f1():
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 2, [40, 3])
    gold[:, 2] = 0  # No positive text.
    probabilities = np.round(np.clip(gold * 0.2 + rng.random([40, 3]) * 0.8, 0, 1), 2)
    thresholds = best_thresholds(gold, probabilities)
    assert thresholds[2] == 0.5
    for label in (0, 1):
        found, *tried = (
            sklearn.metrics.f1_score(gold[:, label], probabilities[:, label] > value)
            for value in (thresholds[label], *np.arange(-0.005, 1, 0.01))
        )
        assert found == max(tried)
        # Rounding of the served probabilities does not change a decision.
        assert np.abs(probabilities[:, label] - thresholds[label]).min() > 0.004


# --- Long texts ------------------------------------------------------------------


LONG = "text\tlabel\na b c d e f g h i j k l\tyes\nb\tno\n\tno\n"


@pytest.mark.parametrize(
    ("long_text", "rows"),
    [
        ("truncate", ["abcdef", "b", ""]),
        ("window_mean", ["abcdef", "fghijk", "ghijkl", "b", ""]),
    ],
)
def test_truncation_and_windows(read, long_text, rows):
    task = read(LONG, **OWN, long_text=long_text, max_sequence_length=8)
    split = task.dataset("train")
    tokens = task.tokenizer.vocabulary.tokens
    found = ["".join(tokens[i] for i in row[1:-1]) for row in tables.token_rows(split)]
    assert found == rows
    windows = len(rows) - 2
    np.testing.assert_array_equal(split.targets, [1] * windows + [0, 0])
    if windows > 1:  # Texts have equal weight.
        np.testing.assert_allclose(split.weights, [1 / windows] * windows + [1, 1])


BALANCED = "text\tlabel\ta\tb\nabc\tx\t1\t1\nabd\tx\t0\t1\n"
BALANCED += "abe fghi\tx\t1\t1\nabf\ty\t1\t1\n"


@pytest.mark.parametrize(
    ("label", "long_text"), [("label", "truncate"), ("a,b", "window_mean")]
)
@pytest.mark.filterwarnings("ignore:A single label was found")
def test_balanced_class_weights(read, one_layer, label, long_text):
    options = {"label": label, "long_text": long_text, "max_sequence_length": 7}
    task = read(BALANCED, text_a="text", class_weight="balanced", **options)
    split, gold = task.dataset("train"), task.gold["train"]
    weigh = functools.partial(sklearn.utils.compute_class_weight, "balanced")
    columns = gold.reshape(4, -1).T
    weights = [weigh(classes=np.unique(x), y=x)[x.astype(int) - x.min().astype(int)]
               for x in columns]  # fmt: skip
    weights = np.transpose(weights).reshape(gold.shape)
    if long_text == "window_mean":  # The third text has two windows of equal weight.
        source = split.rows.row.numpy()
        weights = (weights[source].T / np.bincount(source)[source]).T
        gold = gold[source]
    np.testing.assert_allclose(split.weights, weights, rtol=1e-6)

    model = task.head.build(BertBackbone(one_layer))
    model.compile("sgd", run_eagerly=True)
    create_training_variables(model)
    x, y, batch_weights = next(iter(batches(split, len(split), 7)))
    loss = model.test_on_batch(x, y, batch_weights, return_dict=True)["loss"]
    logits, y = np.float64(model.predict(x, verbose=0)), y.numpy()
    if label == "label":
        entropies = scipy.special.logsumexp(logits, axis=1) - logits[range(len(y)), y]
    else:
        entropies = np.logaddexp(0, logits) - y * logits
    assert loss == pytest.approx(np.sum(entropies * batch_weights), rel=1e-5)
    assert batch_weights.numpy().sum() == pytest.approx(1)
    assert sorted(np.ravel(batch_weights)) == pytest.approx(
        sorted(np.ravel(weights / weights.sum()))
    )


def test_maximum_of_window_logits(read):
    task = read(LONG, **OWN, long_text="window_max", max_sequence_length=8)
    # Three for the first text.
    outputs = np.float32([[0, 3], [6, 0], [3, 3], [1, 2], [2, 1]])
    found = task.evaluate(task.dataset("dev"), outputs)
    found = found.answers["probabilities"]
    expected = scipy.special.softmax([[6.0, 3.0], [1.0, 2.0], [2.0, 1.0]], axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-6)
