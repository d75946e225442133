from bert_tf.serving.answers import Passages as Passages
from bert_tf.serving.answers import answers_from_logits as answers_from_logits
from bert_tf.serving.answers import cut_passages as cut_passages
from bert_tf.serving.dev_server import DevServer as DevServer
from bert_tf.serving.loading import load_signatures as load_signatures
from bert_tf.serving.predictor import Predictor as Predictor
from bert_tf.serving.predictor import load as load
from bert_tf.serving.ragged_encoder import (
    optimize_for_inference as optimize_for_inference,
)
from bert_tf.serving.saved_model import export_saved_model as export_saved_model
from bert_tf.serving.servable import Servable as Servable
from bert_tf.serving.signatures import Signature as Signature
from bert_tf.serving.signatures import class_probabilities as class_probabilities
from bert_tf.serving.signatures import classify_signature as classify_signature
from bert_tf.serving.signatures import ids_signature as ids_signature
from bert_tf.serving.signatures import pretrained_signatures as pretrained_signatures
from bert_tf.serving.signatures import regress_signature as regress_signature
from bert_tf.serving.signatures import signature as signature
from bert_tf.serving.signatures import string_input as string_input
from bert_tf.serving.task_heads import HEADS as HEADS
from bert_tf.serving.task_heads import Head as Head
from bert_tf.serving.task_heads import find_head as find_head
from bert_tf.serving.task_heads import pool_windows as pool_windows
from bert_tf.serving.task_heads import read_choices as read_choices
from bert_tf.serving.task_heads import read_texts as read_texts
from bert_tf.serving.task_heads import task_signatures as task_signatures
