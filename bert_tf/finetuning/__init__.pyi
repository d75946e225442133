from bert_tf.finetuning import squad as squad
from bert_tf.finetuning import squad_metrics as squad_metrics
from bert_tf.finetuning.batching import Split as Split
from bert_tf.finetuning.batching import batches as batches
from bert_tf.finetuning.batching import encode as encode
from bert_tf.finetuning.batching import predict as predict
from bert_tf.finetuning.conll import ColumnFile as ColumnFile
from bert_tf.finetuning.conll import to_iob2 as to_iob2
from bert_tf.finetuning.data_sets import NO_GOLD as NO_GOLD
from bert_tf.finetuning.data_sets import DataSet as DataSet
from bert_tf.finetuning.data_sets import Row as Row
from bert_tf.finetuning.data_sets import TablesConfig as TablesConfig
from bert_tf.finetuning.data_sets import read_data_set as read_data_set
from bert_tf.finetuning.data_sets import read_rows as read_rows
from bert_tf.finetuning.decisions import best_temperature as best_temperature
from bert_tf.finetuning.decisions import best_thresholds as best_thresholds
from bert_tf.finetuning.decisions import calibration_error as calibration_error
from bert_tf.finetuning.decisions import fit_join_weights as fit_join_weights
from bert_tf.finetuning.glue import GLUE as GLUE
from bert_tf.finetuning.passages import answer_targets as answer_targets
from bert_tf.finetuning.passages import chunk_questions as chunk_questions
from bert_tf.finetuning.prediction import (
    write_prediction_table as write_prediction_table,
)
from bert_tf.finetuning.run import fine_tune as fine_tune
from bert_tf.finetuning.run import run_task as run_task
from bert_tf.finetuning.siamese import SiameseEncoder as SiameseEncoder
from bert_tf.finetuning.squad import Predictions as Predictions
from bert_tf.finetuning.squad import Question as Question
from bert_tf.finetuning.task import ComputeOptions as ComputeOptions
from bert_tf.finetuning.task import Example as Example
from bert_tf.finetuning.task import FilesConfig as FilesConfig
from bert_tf.finetuning.task import FinetuneConfig as FinetuneConfig
from bert_tf.finetuning.task import PredictConfig as PredictConfig
from bert_tf.finetuning.task import Task as Task
from bert_tf.finetuning.train import DivergedError as DivergedError
