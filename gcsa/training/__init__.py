"""Training, whatever the task: the run behind `train.py`, callbacks, schedules, distribution."""
