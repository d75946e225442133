from bert_tf.serving import model_server as model_server
from bert_tf.serving import ragged_encoder as ragged_encoder
from bert_tf.serving import rest as rest
from bert_tf.serving import saved_model as saved_model
from bert_tf.serving import signatures as signatures
from bert_tf.serving.signatures import Signature as Signature
