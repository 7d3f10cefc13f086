"""What the user types to start a command of gcsa, for sentences that tell what to type next."""

import sys
from pathlib import Path

from gcsa._utils.published import PACKAGE, shipped


def program(name: str) -> str:
    """How to start the command `name`, such as "train": "gcsa-train" where a console script was started or gcsa was
    installed from a wheel, else "python train.py"."""
    installed = Path(sys.argv[0]).name.startswith("gcsa-") or PACKAGE in shipped("conf").parents
    return f"gcsa-{name}" if installed else f"python {name}.py"
