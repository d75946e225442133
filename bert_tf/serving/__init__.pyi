from bert_tf.serving.dev_server import DevServer as DevServer
from bert_tf.serving.predictor import Predictor as Predictor
from bert_tf.serving.predictor import head_signatures as head_signatures
from bert_tf.serving.predictor import load as load
from bert_tf.serving.predictor import load_signatures as load_signatures
from bert_tf.serving.saved_model import export_saved_model as export_saved_model
from bert_tf.serving.servable import Servable as Servable
