"""Training, whatever the task: the run behind `train.py`, callbacks, schedules, distribution."""

from gcsa.training.callbacks import EMA, StepSeed, StopOnNaN
from gcsa.training.checkpoint_io import LastCheckpoint

__all__ = ["EMA", "LastCheckpoint", "StepSeed", "StopOnNaN"]
