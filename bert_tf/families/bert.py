# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""BERT (arXiv 1810.04805)."""

from bert_tf.families.family import Family

_OURS = "encoder_layer_{i}"

FAMILY = Family(
    name="Bert",
    keys={
        "vocabulary_size": "vocab_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "hidden_dim": "hidden_size",
        "intermediate_dim": "intermediate_size",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "max_sequence_length": "max_position_embeddings",
        "num_segments": "type_vocab_size",
        "activation": "hidden_act",
        "initializer_range": "initializer_range",
        "layer_norm_epsilon": "layer_norm_eps",
        "classifier_dropout": "classifier_dropout",
    },
    required={
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
    },
    encoder={
        "embeddings/token_embedding": "embeddings.word_embeddings",
        "embeddings/position_embedding": "embeddings.position_embeddings",
        "embeddings/segment_embedding": "embeddings.token_type_embeddings",
        "embeddings/layer_norm": "embeddings.LayerNorm",
        f"{_OURS}/query": "encoder.layer.{i}.attention.self.query",
        f"{_OURS}/key": "encoder.layer.{i}.attention.self.key",
        f"{_OURS}/value": "encoder.layer.{i}.attention.self.value",
        f"{_OURS}/attention_output": "encoder.layer.{i}.attention.output.dense",
        f"{_OURS}/attention_layer_norm": "encoder.layer.{i}.attention.output.LayerNorm",
        f"{_OURS}/intermediate": "encoder.layer.{i}.intermediate.dense",
        f"{_OURS}/output": "encoder.layer.{i}.output.dense",
        f"{_OURS}/output_layer_norm": "encoder.layer.{i}.output.LayerNorm",
        "pooler": "pooler.dense",
    },
    heads={
        "pretrainer": {
            "mlm/dense": "cls.predictions.transform.dense",
            "mlm/layer_norm": "cls.predictions.transform.LayerNorm",
            "mlm": "cls.predictions cls.predictions.decoder",
            "embeddings/token_embedding": "cls.predictions.decoder",
            "nsp": "cls.seq_relationship",
        },
        "classification": {"logits": "classifier"},
        "tagging": {"logits": "classifier"},
        "question_answering": {"logits": "qa_outputs"},
        "multiple_choice": {"logits": "classifier"},
    },
    classes={
        "encoder": ("Model",),
        "pretrainer": ("ForPreTraining", "ForMaskedLM", "ForNextSentencePrediction"),
        "classification": ("ForSequenceClassification",),
        "tagging": ("ForTokenClassification",),
        "question_answering": ("ForQuestionAnswering",),
        "multiple_choice": ("ForMultipleChoice",),
    },
    pooler_activation="tanh",
)
