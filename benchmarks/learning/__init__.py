"""Queues of training runs: trials of layers and options, and comparisons with other systems.

`python -m benchmarks.learning.queue pcam_trials` works through `pcam_trials.yaml` in this folder and writes one JSON file a
run to benchmarks/results/. A run that was stopped is resumed, one that is finished is left alone.
"""
