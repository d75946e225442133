from bert_tf.families.family import Family as Family
from bert_tf.families.table import FAMILIES as FAMILIES
