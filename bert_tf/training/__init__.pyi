from bert_tf.training import report as report
from bert_tf.training.distribution import Devices as Devices
from bert_tf.training.distribution import check_batch_size as check_batch_size
from bert_tf.training.distribution import create_devices as create_devices
from bert_tf.training.distribution import (
    create_training_variables as create_training_variables,
)
from bert_tf.training.initialization import (
    initialize_from_corpus as initialize_from_corpus,
)
from bert_tf.training.jax_devices import jax_step as jax_step
from bert_tf.training.loop import DivergedError as DivergedError
from bert_tf.training.loop import TrainingLoop as TrainingLoop
from bert_tf.training.loop import TrainingState as TrainingState
from bert_tf.training.optimizers import AdamW as AdamW
from bert_tf.training.optimizers import Lamb as Lamb
from bert_tf.training.optimizers import Muon as Muon
from bert_tf.training.optimizers import WarmupDecay as WarmupDecay
from bert_tf.training.pretrain_config import PretrainConfig as PretrainConfig
from bert_tf.training.pretrain_config import open_phases as open_phases
from bert_tf.training.pretraining import check_rules as check_rules
from bert_tf.training.pretraining import check_tokens as check_tokens
from bert_tf.training.pretraining import create_optimizer as create_optimizer
from bert_tf.training.pretraining import pretrain as pretrain
from bert_tf.training.pretraining import read_history as read_history
from bert_tf.training.pretraining import resolve_architecture as resolve_architecture
