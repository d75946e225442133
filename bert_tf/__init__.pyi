from bert_tf.checkpoints.model_directory import ModelDirectory as ModelDirectory
from bert_tf.checkpoints.model_directory import open_checkpoint as open_checkpoint
from bert_tf.data.records import Records as Records
from bert_tf.data.records import pretrain_dataset as pretrain_dataset
from bert_tf.heads.classification import SequenceClassifier as SequenceClassifier
from bert_tf.heads.multiple_choice import ChoiceScorer as ChoiceScorer
from bert_tf.heads.question_answering import SpanPredictor as SpanPredictor
from bert_tf.heads.tagging import TokenClassifier as TokenClassifier
from bert_tf.modeling.backbone import BertBackbone as BertBackbone
from bert_tf.modeling.config import BertConfig as BertConfig
from bert_tf.modeling.pretrainer import BertPretrainer as BertPretrainer
from bert_tf.serving.predictor import load as load
from bert_tf.text.tokenizer import Tokenizer as Tokenizer
from bert_tf.text.vocabulary import Vocabulary as Vocabulary
from bert_tf.training.optimizers import AdamW as AdamW
from bert_tf.training.optimizers import Lamb as Lamb
from bert_tf.training.optimizers import Muon as Muon
from bert_tf.training.optimizers import WarmupDecay as WarmupDecay

__version__: str
