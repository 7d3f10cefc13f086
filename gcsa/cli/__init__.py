"""The commands behind train.py, evaluate.py, segment.py and the others beside them, and the console scripts."""
