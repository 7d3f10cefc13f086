"""Training, whatever the task: the run behind `train.py`, callbacks, schedules, distribution."""

from gcsa.training.callbacks import EMA, StepSeed, StopOnNaN

__all__ = ["EMA", "StepSeed", "StopOnNaN"]
