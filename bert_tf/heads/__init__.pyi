from bert_tf.heads.classification import ClassificationHead as ClassificationHead
from bert_tf.heads.classification import SequenceClassifier as SequenceClassifier
from bert_tf.heads.embedding import SentenceEncoder as SentenceEncoder
from bert_tf.heads.embedding import search_signatures as search_signatures
from bert_tf.heads.embedding import similarities as similarities
from bert_tf.heads.encoder import EmbeddingConfig as EmbeddingConfig
from bert_tf.heads.encoder import SentenceEmbedding as SentenceEmbedding
from bert_tf.heads.head import FEATURES as FEATURES
from bert_tf.heads.head import Head as Head
from bert_tf.heads.kinds import BUILT_IN as BUILT_IN
from bert_tf.heads.kinds import HEADS as HEADS
from bert_tf.heads.kinds import check_declared as check_declared
from bert_tf.heads.kinds import find_head as find_head
from bert_tf.heads.kinds import known_head as known_head
from bert_tf.heads.multiple_choice import ChoiceScorer as ChoiceScorer
from bert_tf.heads.multiple_choice import MultipleChoiceHead as MultipleChoiceHead
from bert_tf.heads.pretraining import PretrainerHead as PretrainerHead
from bert_tf.heads.question_answering import Passages as Passages
from bert_tf.heads.question_answering import (
    QuestionAnsweringHead as QuestionAnsweringHead,
)
from bert_tf.heads.question_answering import SpanPredictor as SpanPredictor
from bert_tf.heads.signatures import Signature as Signature
from bert_tf.heads.signatures import class_probabilities as class_probabilities
from bert_tf.heads.signatures import ids_signature as ids_signature
from bert_tf.heads.signatures import signature as signature
from bert_tf.heads.signatures import string_input as string_input
from bert_tf.heads.signatures import to_numpy as to_numpy
from bert_tf.heads.tagging import FeatureTagger as FeatureTagger
from bert_tf.heads.tagging import TaggingHead as TaggingHead
from bert_tf.heads.tagging import TokenClassifier as TokenClassifier
