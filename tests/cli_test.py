# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import json
import subprocess
import sys

import pytest

from bert_tf import cli
from bert_tf.modeling.config import BertConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class GreetConfig(cli.Options):
    name: str = cli.option(help="Whom to greet.")
    times: int = cli.option(1, help="How often.", minimum=1)
    mood: str = cli.option("kind", help="How.", choices=("kind", "curt"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartyConfig(GreetConfig):
    guests: str = cli.option("", help="File of names.", common=True)
    speed: float = cli.option(1.0, help="Of the music.", common=True, grid=True)


GREET = """
import dataclasses
from bert_tf import cli
from tests.cli_test import GreetConfig

def main(options):
    if options.name == "nobody":
        raise ValueError("--name must be somebody.")
    print(options.to_dict())

cli.run(main, GreetConfig)
"""


def greet(*arguments):
    command = [sys.executable, "-c", GREET, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_flags_become_the_dataclass():
    result = greet("--name=you", "--times=2", "--mood=curt")
    assert result.stdout.strip() == str({"name": "you", "times": 2, "mood": "curt"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--name is required: Whom to greet."),
        (["--name=you", "--times=0"], "--times must be at least 1. Received: times=0"),
        (["--name=you", "--mood=sad"], "--mood must be one of kind, curt."),
        (["--name=nobody"], "error: --name must be somebody."),
        (["--nam=you"], "error: Unknown command line flag 'nam'. Did you mean: name"),
        (["you"], "error: Every argument is a --flag=value. Received: you"),
    ],
)
def test_wrong_flags_end_in_one_line(arguments, message):
    result = greet(*arguments)
    assert result.returncode == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr


PARTY = """Greets many.

More than is to be known at once.

    python -m party --name=you
"""


def test_help_begins_with_what_is_needed_and_common(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    expected = """Greets many.

    python -m party --name=you

Needed:
  --name=...              Whom to greet.

Common:
  --guests=...            File of names.
  --speed=1.0             Of the music. Several, separated
                          by commas, are all tried.

--helpfull says more, also of --times --mood"""
    assert cli.help_text(PARTY, PartyConfig, full=False) == expected


def test_full_help_has_everything():
    text = cli.help_text(PARTY, PartyConfig, full=True)
    assert text.startswith(PARTY.strip())
    assert text.index("--guests") < text.index("All others:\n  --times=1 ")
    assert "--mood=kind             How. One of: kind, curt." in text


def test_dataclass_checks_values_without_flags():
    with pytest.raises(ValueError, match="--times must be at least 1"):
        GreetConfig(name="you", times=0)


def test_public_names_need_no_tensorflow_until_used():
    program = (
        "import sys, bert_tf.modeling.config; sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


GOOGLE = {
    "attention_probs_dropout_prob": 0.2,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}


def test_reads_googles_bert_config(tmp_path):
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps(GOOGLE))
    expected = BertConfig.from_size("base", 30522, attention_dropout=0.2)
    assert BertConfig.from_google(path) == expected
    resolved = BertConfig.resolve(str(path), vocabulary_size=100)
    assert resolved == dataclasses.replace(expected, vocabulary_size=100)


def test_size_may_be_layers_hidden_size_and_heads():
    expected = BertConfig.from_size("base", 100, num_layers=3)
    assert BertConfig.resolve("3/768/12", vocabulary_size=100) == expected
    with pytest.raises(ValueError, match="multiple of `num_heads`"):
        BertConfig.resolve("3/768/11", vocabulary_size=100)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a JSON file"),
        (json.dumps({"hidden_act": "gelu"}), "needs the key 'vocab_size'"),
        (json.dumps(GOOGLE | {"hidden_act": "swish"}), "`activation` must be one of"),
        (json.dumps(GOOGLE | {"hidden_size": 770}), "multiple of `num_heads`"),
        (
            json.dumps(GOOGLE | {"vocab_size": 0}),
            "must be a positive integer",
        ),
    ],
)
def test_wrong_bert_config_names_file_and_key(tmp_path, content, message):
    path = tmp_path / "bert_config.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as error:
        BertConfig.from_google(path)
    assert str(path) in str(error.value)


def test_unknown_size_names_the_table():
    with pytest.raises(ValueError, match="one of tiny, mini, small"):
        BertConfig.resolve("huge", 100)
