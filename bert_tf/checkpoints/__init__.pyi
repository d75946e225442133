from bert_tf.checkpoints.checkpoint import Checkpoint as Checkpoint
from bert_tf.checkpoints.model_directory import ModelDirectory as ModelDirectory
from bert_tf.checkpoints.model_directory import open_checkpoint as open_checkpoint
from bert_tf.checkpoints.model_directory import write_checkpoint as write_checkpoint
