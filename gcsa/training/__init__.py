"""Training: a Lightning classifier for any timm model, callbacks, schedules and the run behind `train.py`."""

from gcsa.training.callbacks import EMA, StepSeed, StopOnNaN
from gcsa.training.classifier import Classifier, create_timm_model
from gcsa.training.export_weights import save_pretrained_timm

__all__ = ["EMA", "Classifier", "StepSeed", "StopOnNaN", "create_timm_model", "save_pretrained_timm"]
