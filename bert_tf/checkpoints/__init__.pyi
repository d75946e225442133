from bert_tf.checkpoints.checkpoint import Checkpoint as Checkpoint
from bert_tf.checkpoints.checkpoint import extend_vocabulary as extend_vocabulary
from bert_tf.checkpoints.checkpoint import keep_layers as keep_layers
from bert_tf.checkpoints.checkpoint import standardized as standardized
from bert_tf.checkpoints.checkpoint import untrained_encoder as untrained_encoder
from bert_tf.checkpoints.model_directory import ModelDirectory as ModelDirectory
from bert_tf.checkpoints.model_directory import open_checkpoint as open_checkpoint
from bert_tf.checkpoints.model_directory import write_checkpoint as write_checkpoint
