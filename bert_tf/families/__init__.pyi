from bert_tf.families.family import Family as Family
from bert_tf.families.family import families as families
