from bert_tf.checkpoints import model_directory as model_directory
from bert_tf.checkpoints.foreign import guess_lowercase as guess_lowercase
from bert_tf.checkpoints.formats import fixed_settings as fixed_settings
from bert_tf.checkpoints.formats import open_checkpoint as open_checkpoint
from bert_tf.checkpoints.formats import run_original as run_original
from bert_tf.checkpoints.formats import write_checkpoint as write_checkpoint
from bert_tf.checkpoints.model_directory import Checkpoint as Checkpoint
from bert_tf.checkpoints.model_directory import ModelDirectory as ModelDirectory
