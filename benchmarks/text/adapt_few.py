"""What `gcsa adapt` gains from few corrected lines: `python -m benchmarks.text.adapt_few --scripts de19_fraktur_print --lines 50 100`.

The lines are the first of the training split in an order that the seed shuffles. Of Gallicorpora they are those of one book, as a user
has them. gcsa adapt splits them itself; the rates here are on other lines: of the test split, or of other pages of the book.
"""

from __future__ import annotations

import argparse
import random
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gcsa
from benchmarks.learning.queue import ROOT
from gcsa._utils.atomic import write_json
from gcsa.cli.adapt import main as adapt
from gcsa.data.storage import data_root
from gcsa.tasks.recognition.adapt import read_scores
from gcsa.tasks.recognition.data.lines import Line, list_lines
from gcsa.training.results import git_commit, machine

BASE = "gcsa_ocr_tiny.print"
BOOKS = {"fr17_18_gallicorpora": "bpt6k831536"}
"""The book of a set whose books have enough lines."""
MEASURED = 150


def corrected_and_others(script: str, seed: int) -> tuple[list[Line], list[Line]]:
    """Lines that may be corrected, and at most `MEASURED` others; of a book, its last lines."""
    folder = data_root(None) / "ocr_lines" / script
    if script in BOOKS:
        lines = [line for line in list_lines(folder) if line.document == BOOKS[script]]
        lines, others = lines[:-MEASURED], lines[-MEASURED:]
    else:
        lines, others = list_lines(folder, ("train",)), list_lines(folder, ("test",))
    random.Random(seed).shuffle(lines)
    return lines, random.Random(seed).sample(others, min(MEASURED, len(others)))


def row(script: str, count: int, seed: int) -> dict[str, Any]:
    lines, others = corrected_and_others(script, seed)
    with TemporaryDirectory() as folder:
        pages, adapter = Path(folder) / "lines", Path(folder) / "adapter"
        pages.mkdir()
        for line in lines[:count]:
            shutil.copy(line.image, pages)
            shutil.copy(line.image.with_suffix(".gt.txt"), pages)
        adapt([str(pages), "--base", BASE, "--output", str(adapter), "--threads", "1"])
        before, after = (read_scores(gcsa.load(BASE, with_), others) for with_ in (None, adapter))
    return {
        "script": script,
        "corrected": min(count, len(lines)),
        "measured": len(others),
        "cer_before": before.cer,
        "cer_before_interval": before.cer_interval,
        "cer_after": after.cer,
        "cer_after_interval": after.cer_interval,
        "seed": seed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", nargs="+", required=True, help="folders in ocr_lines")
    parser.add_argument("--lines", nargs="+", type=int, default=[50, 100, 300])
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for script in args.scripts:
        for count in args.lines:
            found = row(script, count, args.seed) | {"commit": git_commit(), "machine": machine()}
            print(found, flush=True)
            target = ROOT / f"benchmarks/results/ocr_few/{script}-{count}.json"
            target.parent.mkdir(exist_ok=True)
            write_json(target, found)


if __name__ == "__main__":
    main()
