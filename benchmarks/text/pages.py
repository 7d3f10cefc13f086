"""How pages are read: `python -m benchmarks.text.pages gcsa_ocr_tiny.print`.

A page of French print of about 1800 in its four orientations, from image to text, against a transcription made by hand; and lines
of unknown orientation, one by one and as pages of `LINES` that vote. Only validation lines are read.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import gcsa
from gcsa._utils.atomic import write_json
from gcsa.data.storage import data_root
from gcsa.tasks.recognition.data.line_image import Line, read_line
from gcsa.tasks.recognition.data.lines import list_lines
from gcsa.tasks.recognition.evaluate import text_scores
from gcsa.tasks.recognition.predict import RecognitionPredictor
from gcsa.tasks.recognition.reading import Reading
from gcsa.training.results import git_commit, machine

ROOT = Path(__file__).parents[2]
SCRIPTS = ("fr17_roman_print", "de19_fraktur_print")
LINES = 25
"""Of a page."""


def page(predictor: RecognitionPredictor, file: Path) -> dict[str, Any]:
    """Seconds and errors in each orientation, and whether all texts are the same."""
    truth = (ROOT / "tests/tasks/recognition/fr_print_page.txt").read_text(encoding="utf-8").strip()
    upright = np.asarray(Image.open(file).convert("RGB"))
    texts, found = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for degrees in (0, 90, 180, 270):
            scan = Path(folder) / f"{degrees}.png"
            Image.fromarray(np.rot90(upright, degrees // 90)).save(scan)
            start = time.perf_counter()
            read = predictor.predict(scan, "any")
            texts[degrees] = "\n".join(reading.text for reading in read)
            seconds = round(time.perf_counter() - start, 1)
            found[degrees] = {"lines": len(read), "cer": text_scores([texts[degrees]], [truth]).cer, "seconds": seconds}
    return {"orientations": found, "same_text": len(set(texts.values())) == 1, "text": texts[0].splitlines()}


def line_errors(predictor: RecognitionPredictor, script: str) -> dict[str, float]:
    """Character error rates of the validation lines of a script: orientation given, unknown for each line, unknown for each page."""
    documents: dict[str, list[Line]] = defaultdict(list)
    for line in list_lines(data_root(None) / "ocr_lines" / script, ("val",)):
        documents[line.document].append(line)
    lines = [line for document in documents.values() for line in document]
    pages = [(name, i // LINES) for name, document in documents.items() for i in range(len(document))]
    inks = [partial(read_line, line, predictor.network.height) for line in lines]
    rates: dict[str, float] = {"lines": len(lines)}
    for name, orientation, of in (("given", "upright", ()), ("each line", "any", ()), ("each page", "any", pages)):
        readings = predictor.read_lines(inks, of, orientation)
        texts = [reading.text if isinstance(reading, Reading) else "" for reading in readings]
        rates[name] = text_scores(texts, [line.text for line in lines]).cer
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    commit, predictor = git_commit(), gcsa.load(args.weights).fold()
    found = {
        "weights": args.weights,
        "lines_of_a_page": LINES,
        "page": page(predictor, data_root(None) / "pages/fr_print_page.jpg"),
        "line_errors": {script: line_errors(predictor, script) for script in SCRIPTS},
    }
    print(
        write_json(
            ROOT / f"benchmarks/results/pages/{args.weights}.json", {**found, "commit": commit, "machine": machine()}
        )
    )


if __name__ == "__main__":
    main()
