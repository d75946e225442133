# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import json
import re

import pytest
from seqeval.metrics.sequence_labeling import get_entities

from bert_tf.finetuning.conll import ColumnFile, to_iob2

CONLL_2003 = """\
-DOCSTART- -X- -X- O

EU NNP B-NP I-ORG
rejects VBZ B-VP O
German JJ B-NP I-MISC

Peter NNP B-NP I-PER
Blackburn NNP I-NP I-PER

-DOCSTART- -X- -X- O

BRUSSELS NNP B-NP I-LOC
Belgium NNP B-NP B-LOC
"""

WNUT = (
    "@paulwalk\tO\r\nEmpire\tB-location\r\nState\tI-location\r\n\t\r\nESB\tB-location"
)


@pytest.fixture
def read(tmp_path):
    """Returns a function that reads a file with some content."""

    def read(content, name="x.conll"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return ColumnFile.read(path)

    return read


def test_read_conll_2003(read):
    file = read(CONLL_2003)
    assert (file.separator, file.num_columns) == (" ", 4)
    words = [" ".join(sentence.words) for sentence in file.sentences]
    assert words == ["EU rejects German", "Peter Blackburn", "BRUSSELS Belgium"]
    assert [s.lines for s in file.sentences] == [(3, 4, 5), (7, 8), (12, 13)]
    assert file.pack([1, 1, 1], limit=9) == [0, 2]  # Two documents.
    assert file.tags() == [
        ["B-ORG", "O", "B-MISC"],
        ["B-PER", "I-PER"],
        ["B-LOC", "B-LOC"],
    ]


def test_read_wnut(read):
    file = read("\ufeff" + WNUT)
    assert (file.separator, file.num_columns) == ("\t", 2)
    assert file.tags() == [["O", "B-location", "I-location"], ["B-location"]]
    # Without -DOCSTART-, each sentence is a document.
    assert file.pack([1, 1], limit=9) == [0, 1]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("I-A I-A O I-A", "B-A I-A O B-A"),
        ("I-A B-A I-A", "B-A B-A I-A"),
        ("B-A I-A E-A S-A O E-A S-B", "B-A I-A I-A B-A O B-A B-B"),  # BIOES.
        ("B-A L-A U-A B-B L-B U-B", "B-A I-A B-A B-B I-B B-B"),  # BILOU.
        ("B-A M-A E-A S-A O E-A W-B", "B-A I-A I-A B-A O B-A B-B"),  # BMES, BMEWO.
        ("B-A E-A I-A S-A I-A", "B-A I-A B-A B-A B-A"),  # After the end of an entity.
        ("B I O B B I", "B-_ I-_ O B-_ B-_ I-_"),  # Without types.
        ("B-a-b I-a-b B-A I-a", "B-a-b I-a-b B-A B-a"),
        ("B-A I-B", "B-A B-B"),
    ],
)
def test_to_iob2(tags, expected):
    assert to_iob2(tags.split()) == expected.split()
    assert to_iob2(expected.split()) == expected.split()
    if not set(tags) & set("LUMW"):  # seqeval does not know BILOU and BMES.
        assert get_entities(expected.split()) == get_entities(tags.split())


INDEXED = "1\tIn\tO\tO\n2\tBonn\tB-LOC\tO\n\n1\tSie\tO\tO\n2\tkam\tO\tO\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "#\thttp://example.org/x [2010-01-01]\n" + INDEXED),  # GermEval 2014.
        ("a.txt", "\ufeff0 In O\n1 Bonn B-LOC\n\n2 Sie O\n3 kam O\n"),
        ("a.conllu", "# text = a b\n1-2 ab _ O\n1 a _ O\n1.1 b _ O\n2 b _ O\n"),
        ("a.csv", ",word,tag\n0,EU,B-ORG\n1,rejects,O\n"),  # pandas' to_csv.
        # simpletransformers#837, with another name of the first column.
        ("a.csv", "id,words,labels\n7,EU,B-ORG\n7,rejects,O\n"),
    ],
)
def test_an_index_column_is_refused(read, name, content):
    is_csv = name.lower().endswith(".csv")
    reason = ", after that of" if is_csv else ". Got numbers that count the words"
    with pytest.raises(ValueError, match=f"first column must be the word{reason}"):
        read(content, name)


def test_words_with_blanks_are_reported(read, caplog):
    """A table of texts would be read as one word per text."""
    assert read("text\nEU rejects German call\nPeter\n", "x.csv").num_columns == 1
    assert "1 words contain blanks, such as 'EU rejects German call'" in caplog.text


@pytest.mark.parametrize(
    "content", ["1 O\n\n1 O\n", "1\n2\n3\n", "1 O\n3 O\n", "1 O\n2 O\n\na O\n"]
)
def test_numbers_that_are_words(read, content):
    assert read(content).sentences[0].words[0] == "1"


def test_write_appends_a_column(tmp_path, read):
    file = read(CONLL_2003)
    file.write(tmp_path / "out", [["B-X", "O", "O"], ["O", "O"], ["O", "B-Y"]])
    tags = ["O", "", "B-X", "O", "O", "", "O", "O", "", "O", "", "O", "B-Y"]
    lines = zip(CONLL_2003.splitlines(), tags, strict=True)
    expected = "".join(f"{line} {tag}".strip() + "\n" for line, tag in lines)
    assert (tmp_path / "out").read_text() == expected
    again = ColumnFile.read(tmp_path / "out")
    assert again.tags()[2] == ["O", "B-Y"]
    assert [s.begins_document for s in again.sentences] == [True, False, True]


def test_line_breaks_in_words_of_csv(read):
    file = read('word,tag\nEU,B-ORG\n"a\nb",I-ORG\nc,I-ORG\n\nd,O\n', "x.csv")
    assert file.tags() == [["B-ORG", "I-ORG", "I-ORG"], ["O"]]


def test_all_lines_of_held_out_documents_have_as_many_columns(tmp_path, read):
    file = read("-DOCSTART- O\n\na X Y O\n\nb X Y B-L\n")
    file.select({5}).write(tmp_path / "out", [["O"]])
    assert (tmp_path / "out").read_text() == "b X Y B-L O\n\n"
    file.select({3}).write(tmp_path / "out", [["O"]])
    assert (tmp_path / "out").read_text() == "-DOCSTART- O O O O\na X Y O O\n\n"


def test_documents_without_sentences_are_kept(tmp_path, read):
    content = "-DOCSTART- O\n\n-DOCSTART- O\n\na O\n\n-DOCSTART- X O\n"
    file = read(content)
    assert file.pack([1], limit=9) == [0]
    file.write(tmp_path / "out", [["O"]])
    assert (tmp_path / "out").read_text() == (
        "-DOCSTART- O O\n\n-DOCSTART- O O\n\na O O\n\n-DOCSTART- X O O\n"
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("# id = 1\na O \nb B-A\t \n \n# id = 2 x y\nc O\n", "a O|b B-A||c O"),
        ("# text = x\na\tO\n# c\nb\tI-A\t\n\n#tag\tO\n", "a O|b I-A||#tag O"),
        ("# O\nb O\n# O\n# B-A\n", "# O|b O|# O|# B-A"),  # Words, not comments.
        ("# id a b\na NN X O\n# c NN\n# # # O\n", "a NN X O|# # # O"),
        ("#\n#tag\n", "#|#tag"),
        ("a  b   O\n\u00a0 c O\n\n\nd e O\n\n", "a b O|\u00a0 c O||d e O"),
    ],
)
def test_comments_and_trailing_blanks(read, content, expected):
    sentences = read(content).sentences
    assert [["|".join(map(" ".join, s.rows))] for s in sentences] == [
        [rows] for rows in expected.split("||")
    ]


HUGGING_FACE = """\
{"id": 0, "tokens": ["New York", "is"], "ner_tags": ["S-LOC", "O"]}
{"id": 1, "tokens": [], "ner_tags": []}
{"id": 2, "tokens": ["EU"], "ner_tags": ["B-ORG"]}
"""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.jsonl", HUGGING_FACE),
        ("x.json", HUGGING_FACE.replace("tokens", "words").replace("ner_", "")),
        # Like the NER data set of Kaggle, and like that of simpletransformers.
        ("x.csv", "Sentence #,Word,Tag\nS: 1,New York,B-LOC\n,is,O\nS: 2,EU,I-ORG\n"),
        ("x.csv", 'sentence_id,words,labels\n1,New York,B-LOC\n1,"is",O\n2,EU,B-ORG\n'),
        ("x.csv", "word,tag\nNew York,B-LOC\nis,O\n\n\nEU,B-ORG\n"),
        ("x.csv", "word,tag\nNew York,B-LOC\nis,O\n,\nEU,B-ORG\n"),
    ],
)
def test_read_json_and_csv(tmp_path, read, name, content):
    file = read(content, name)
    words = [["New York", "is"], *[[]] * name.startswith("x.js"), ["EU"]]
    assert [s.words for s in file.sentences] == words
    assert [*filter(None, file.tags())] == [["B-LOC", "O"], ["B-ORG"]]
    file.write(tmp_path / "out", file.tags(), file.tags())
    written = re.sub("\n+", "\n", (tmp_path / "out").read_text())
    assert written == "New York\tB-LOC\tB-LOC\nis\tO\tO\nEU\tB-ORG\tB-ORG\n"


def test_any_word_of_json_is_one_word(tmp_path, read):
    """Not a new document, nor a new line or column of the predictions."""
    sentences = [[], ["-DOCSTART-"], ["a\tb", "-DOCSTART-", "c\r\nd"], ["e"]]
    lines = (json.dumps({"tokens": s, "tags": ["O"] * len(s)}) for s in sentences)
    file = read("\n".join(lines), "x.jsonl")
    found = [(s.words, s.lines, s.begins_document) for s in file.sentences]
    assert found == [
        ([], (1,), False),
        (sentences[2], (3, 3, 3), True),
        (["e"], (4,), False),
    ]
    file.write(tmp_path / "out", file.tags(), file.tags())
    lines = (tmp_path / "out").read_text().split("\n")
    assert [line.split("\t") for line in lines if line] == [
        [word, "O", "O"] for word in ("-DOCSTART-", "a b", "-DOCSTART-", "c  d", "e")
    ]


@pytest.mark.parametrize("values", ['["a"], "ner_tags": [3]', '"a", "ner_tags": "O"'])
def test_bad_json(read, values):
    content = f'{{"tokens": ["a"], "ner_tags": ["O"]}}\n{{"tokens": {values}}}\n'
    message = "x.jsonl, line 2: tokens and ner_tags must be lists of strings of the"
    with pytest.raises(ValueError, match=re.escape(message)):
        read(content, "x.jsonl")
    with pytest.raises(ValueError, match=r"no column 'tokens'.* with the keys tokens"):
        read('{"text": "a", "labels": ["O"]}\n', "x.jsonl")


def test_pack_groups_sentences_up_to_the_limit(read):
    file = read("-DOCSTART- O\n\n" + "a O\n\n" * 5 + "-DOCSTART- O\n\nb O\n")
    assert file.pack([3, 2, 6, 1, 4, 1], limit=5) == [0, 2, 3, 5]
    assert file.pack([3, 2, 6, 1, 4, 1], limit=4) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a X O\nb O\n", "line 2: every word must have 3 columns, as the first one. "
         "Got 2 in 'b O'."),
        (b"a O\n\nb\xe9 O\n", "line 3: not UTF-8"),
        ("\n-DOCSTART- O\n\n", "contains no words"),
        ("a O\rb B-X\r", "line 1: line ends must be"),  # GateNLP/gate-core#38.
        ("a O\nb X-PER\n", "line 2: the last column must be a tag: O, B-type or I-type,"
         " or E-, S-, L-, U-, M- or W-type in BIOES, BILOU or BMES, or only B, I, O. "
         "Got 'X-PER'."),
        ("a O\n\nb B-\n", "line 3: the last column"),
    ],
)  # fmt: skip
def test_bad_files(read, content, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read(content).tags()


@pytest.mark.parametrize(
    ("name", "sentences", "entities"),
    [
        ("wnut17train.conll", 3_394, 1_975),
        ("emerging.dev.conll", 1_009, 836),
        ("emerging.test.annotated", 1_287, 1_079),
    ],
)
def test_real_wnut(real_data, name, sentences, entities):
    file = ColumnFile.read(real_data / "wnut17" / name)
    assert len(file.sentences) == sentences
    tags = [tag for sentence in file.tags() for tag in sentence]
    assert sum(tag.startswith("B") for tag in tags) == entities
