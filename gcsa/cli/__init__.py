"""The commands behind train.py, evaluate.py, segment.py, transcribe.py, adapt.py, embed.py and export.py, and the console scripts."""
