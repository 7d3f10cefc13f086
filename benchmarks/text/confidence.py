"""Whether a confidence says how much is right: `python -m benchmarks.text.confidence FOLDER WEIGHTS ...`; with --fit, the numbers of
`gcsa.tasks.recognition.reading.calibrated` from half of the sets.

FOLDER holds a folder for each of `COLLECTIONS`, with volumes of images and the PAGE-XML or ALTO of their lines; GCSA_DATA holds the sets of
lines. At most `MOST_LINES` lines of each, drawn with a fixed seed, are read upright, cut as their file says. The sets were drawn by chance into
those that fit and those that test; the published weights were trained on other books than these, or on none of the script.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit

import gcsa
from benchmarks.learning.queue import ROOT
from gcsa._utils.atomic import write_json
from gcsa.data.storage import data_root
from gcsa.tasks.recognition.data.charset import normalize
from gcsa.tasks.recognition.data.line_image import Line, read_line
from gcsa.tasks.recognition.data.lines import list_lines
from gcsa.tasks.recognition.evaluate import edits, text_scores
from gcsa.tasks.recognition.pages.forms import fold
from gcsa.tasks.recognition.pages.page_xml import read_page
from gcsa.tasks.recognition.reading import LEAST, MOST
from gcsa.training.results import git_commit, machine

RESULT = ROOT / "benchmarks/results/ocr/confidence.json"
MOST_LINES, SEED = 160, 0
COLLECTIONS = {
    "HTR-imprime-gothique-16e-siecle": "Gallicorpora, 35b02f7",
    "HTR-incunable-15e-siecle": "Gallicorpora, 6e050f9",
    "HTR-MSS-15e-Siecle": "Gallicorpora, 707a106",
    "CREMMA-Medieval-LAT": "HTR-United, 9439fe3",
    "cremma-medieval": "HTR-United, bc4a105",
    "lectaurep-repertoires": "HTR-United, 3d1c86c",
    "tapuscorpus": "HTR-United, f18a6af",
    "cremma-16-17-print": "HTR-United, 72df865",
    "CREMMA-MSS-18": "HTR-United, e4a8914",
}
LINES = {
    "fr17_roman_print": "val",
    "fr17_18_gallicorpora": "test",
    "de19_fraktur_print": "val",
    "la09_12_caroline_manuscript": "test",
    "ar20_arabic_print": "val",
}
"""And the split, drawn by chance."""


def sets(folder: Path) -> Iterator[tuple[str, list[Line]]]:
    for name, split in LINES.items():
        yield name, list_lines(data_root(None) / "ocr_lines" / name, (split,))
    for name in COLLECTIONS:
        pages = sorted((folder / name).rglob("*.xml"))
        yield name, [line._replace(document=page.parent.name) for page in pages for line in read_page(page)]


def drawn(lines: Sequence[Line]) -> list[Line]:
    able = [line for line in lines if len(line.text) > 2]
    kept = random.Random(SEED).sample(range(len(able)), min(MOST_LINES, len(able)))
    return [able[number] for number in sorted(kept)]  # a page after the other


def fitting() -> set[str]:
    """The sets that fit: half of them, drawn by chance."""
    names = sorted([*COLLECTIONS, *LINES])
    return {*random.Random(SEED).sample(names, len(names) // 2)}


def pages(lines: Sequence[Line]) -> list[int]:
    """The number of the page of each line, or of the document, where the file of a line does not say its page."""
    names = [str(line.image if line.polygon else line.document) for line in lines]
    return [sorted({*names}).index(name) for name in names]


def read(predictor: Any, lines: Sequence[Line]) -> dict[str, Any]:
    """What a set says: of each line the confidence, how many of its characters are right, folded, and how many it has."""
    inks = [partial(read_line, line, predictor.network.height) for line in lines]
    readings = predictor.read_lines(inks, (), "upright")
    pairs = [(r, line.text) for r, line in zip(readings, lines, strict=True) if not isinstance(r, BaseException)]
    found, meant = [reading.text for reading, _ in pairs], [text for _, text in pairs]
    folded = [[normalize(fold(text)) for text in side] for side in (found, meant)]
    distances, lengths = (values.double().numpy() for values in edits(*folded))
    longest = np.maximum(lengths, [len(text) for text in folded[0]])
    return {
        "pages": pages([line for r, line in zip(readings, lines, strict=True) if not isinstance(r, BaseException)]),
        "documents": len({line.document for line in lines}),
        "lines": len(pairs),
        "cer": text_scores(found, meant).cer,
        "cer_folded": float(distances.sum() / lengths.sum()),
        "confidences": [round(reading.confidence, 4) for reading, _ in pairs],
        "right": (1 - distances / longest).round(4).tolist(),
        "lengths": lengths.astype(int).tolist(),
    }


def fitted(rows: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Slope and offset of a logistic regression of the share of right characters on the square of the logit of the confidence, with its sign;
    each set counts the same. (The logit itself fits these lines less well, and is 4 to 9 points too low where nearly all is right.)"""
    own = np.concatenate([logit(np.clip(row["confidences"], LEAST, MOST)) for row in rows])
    x = own * np.abs(own)
    y = np.concatenate([row["right"] for row in rows])
    weights = np.concatenate([np.array(row["lengths"]) / sum(row["lengths"]) for row in rows])

    def loss(given: Any) -> float:
        p = np.clip(expit(given[0] * x + given[1]), 1e-9, 1 - 1e-9)
        return float(-(weights * (y * np.log(p) + (1 - y) * np.log(1 - p))).sum())

    slope, offset = minimize(loss, (1.0, 0.0), method="Nelder-Mead").x
    return float(slope), float(offset)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--fit", action="store_true")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = json.loads(RESULT.read_text())["rows"] if RESULT.is_file() else []
    about, fit = {"commit": git_commit(), "machine": machine()}, fitting()
    chosen = [(name, drawn(lines)) for name, lines in sets(args.folder)]
    for model in args.models:
        predictor: Any = gcsa.load(model)
        rows = [row for row in rows if row["model"] != model]
        for name, lines in chosen:
            row = {"model": model, "set": name, "fits": name in fit, **read(predictor, lines), **about}
            rows.append(row)
            print(model, name, f"{row['cer_folded']:.3f}", np.mean(row["confidences"]), flush=True)
    if args.fit:
        for models in (*([model] for model in args.models), args.models):
            print(models, fitted([row for row in rows if row["model"] in models and row["fits"]]))
    print(write_json(RESULT, {"rows": rows}))


if __name__ == "__main__":
    main()
