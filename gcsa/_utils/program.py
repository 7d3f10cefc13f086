"""What the user types to train, for sentences that tell what to type next."""

import shlex
import sys


def train_command(*options: str) -> str:
    """`python train.py OPTIONS` where that was started, else `gcsa train OPTIONS`."""
    started = ["python", sys.argv[0]] if sys.argv[0].endswith("train.py") else ["gcsa", "train"]
    return shlex.join([*started, *options])
