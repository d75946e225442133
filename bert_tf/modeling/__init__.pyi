from bert_tf.modeling.backbone import BertBackbone as BertBackbone
from bert_tf.modeling.backbone import (
    initialize_local_attention as initialize_local_attention,
)
from bert_tf.modeling.backend import Dropout as Dropout
from bert_tf.modeling.bert import EncoderLayer as EncoderLayer
from bert_tf.modeling.bert import attend as attend
from bert_tf.modeling.bert import attention_bias as attention_bias
from bert_tf.modeling.config import FEATURES as FEATURES
from bert_tf.modeling.config import GOOGLE_KEYS as GOOGLE_KEYS
from bert_tf.modeling.config import MASKED_SCORE as MASKED_SCORE
from bert_tf.modeling.config import SIZES as SIZES
from bert_tf.modeling.config import BertConfig as BertConfig
from bert_tf.modeling.keras_model import BertModel as BertModel
from bert_tf.modeling.keras_model import cross_entropies as cross_entropies
from bert_tf.modeling.keras_model import sum_losses as sum_losses
from bert_tf.modeling.pretrainer import BertPretrainer as BertPretrainer
