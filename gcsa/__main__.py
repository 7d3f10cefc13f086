"""`gcsa COMMAND ...`, which is also `python -m gcsa COMMAND ...`.

A command is imported when it is asked for, and loads torch when it starts to work: its help, and what is wrong with its arguments, is
said before.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

from gcsa import __version__
from gcsa._utils.errors import visible

COMMANDS = {
    "train": "trains a model: gcsa train model=gcsa_small data=pcam",
    "evaluate": "measures a model: gcsa evaluate model=gcsa_tiny.rotmnist data=rotmnist",
    "classify": "classifies images, and writes a table",
    "embed": "computes features of images, or of the patches of slides",
    "segment": "finds objects in images",
    "transcribe": "reads pages and lines of text",
    "orient": "measures how pages are rotated, and makes them upright",
    "adapt": "adapts a recogniser to a book, from corrected lines of it",
    "audit": "measures how the answers of any network change when its images rotate",
    "export": "writes a model in a format that runs elsewhere",
    "demo": "shows rotating images in the browser",
}
"""What each does; `gcsa.cli` has a module of that name with `main(arguments)`."""


def usage() -> str:
    """What `gcsa --help` prints."""
    width = max(map(len, COMMANDS))
    rows = [f"  {name:{width}}  {does}" for name, does in COMMANDS.items()]
    return "\n".join(["usage: gcsa COMMAND ...", "", *rows, "", "gcsa COMMAND --help lists what a command takes."])


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code. Raises SystemExit: 2 for wrong arguments, 1 for an unexpected error."""
    name, *arguments = (sys.argv[1:] if argv is None else list(argv)) or ["--help"]
    if name in ("-h", "--help", "--version"):
        print(f"gcsa {__version__}" if name == "--version" else usage())
        return 0
    if name not in COMMANDS:
        close = get_close_matches(name, COMMANDS, 1)
        choose = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(COMMANDS)}"
        print(f"error: unknown command {visible(name)!r}: {choose}", file=sys.stderr)
        return 2
    status: int = import_module(f"gcsa.cli.{name}").main(arguments)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
