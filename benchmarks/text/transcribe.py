"""Lines a second from file to text: `python -m benchmarks.text.transcribe --threads 2 [--kraken /other/venv/bin/python]`.

256 training lines of fr17_roman_print, read by `RecognitionPredictor.predict` in batches of 16 with the published weights: images
decoded, resized, recognised, decoded greedily. The models are folded, as `gcsa transcribe` folds them, and batches are read
side by side, but for the sides that say otherwise. For both precisions, error rates of the validation lines. Beside it, in a
process of its own on the same files, kraken's default recogniser through kraken's own `predict`, also in batches of 16
with random weights; it is larger, wants lines 120 pixels high and needs an environment of its own, because kraken pins its
dependencies. Needs GCSA_DATA.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from PIL import Image

import gcsa
from benchmarks.common import CPU, alternate, save
from gcsa._utils.memory import keep_compiled_kernels, keep_freed_memory
from gcsa.data.storage import data_root
from gcsa.models.folding import fold
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.recognition.data.lines import list_lines
from gcsa.tasks.recognition.evaluate import text_scores
from gcsa.tasks.recognition.predict import MOST_WORKERS, RecognitionPredictor

SCRIPT, LINES, BATCH = "fr17_roman_print", 256, 16
WEIGHTS = Path(__file__).parents[2] / "weights/gcsa_ocr_tiny.fr17"


@dataclass(frozen=True)
class Side:
    """One way to read all lines."""

    model: CTCRecognizer
    orientation: str
    half: bool = False
    workers: int = MOST_WORKERS

    def read(self, files: list[Path]) -> list[str]:
        batches = patch("gcsa.tasks.recognition.predict.MOST_WORKERS", self.workers)
        with batches, torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            readings = RecognitionPredictor(self.model).predict(files, self.orientation, batch_size=BATCH)
        return [reading.text for reading in readings]


def texts(model: CTCRecognizer, folder: Path) -> dict[str, float]:
    """Of both precisions: character error rates, and the share of lines that read the same upside down; and the share
    that reads the same in both."""
    lines = list_lines(folder, ("val",))
    files, meant = [line.image for line in lines], [line.text for line in lines]
    found: dict[str, float] = {"lines": len(lines)}
    read = []
    with TemporaryDirectory() as other:
        rotated = [Path(other) / f"{i:05d}.png" for i in range(len(files))]
        for file, target in zip(files, rotated, strict=True):
            Image.open(file).rotate(180).save(target)
        for name, half in (("float32", False), ("bfloat16", True)):
            found[f"cer upright, {name}"] = text_scores(Side(model, "upright", half).read(files), meant).cer
            said = Side(model, "any", half).read(files)
            found[f"cer any, {name}"] = text_scores(said, meant).cer
            upside_down = Side(model, "any", half).read(rotated)
            found[f"same upside down, {name}"] = mean(a == b for a, b in zip(said, upside_down, strict=True))
            read.append(said)
    return {**found, "same in both": mean(a == b for a, b in zip(*read, strict=True))}


KRAKEN = Path(__file__).parent / "transcribe_kraken.py"


def kraken(python: str | None, files: list[Path], classes: int, threads: int, repeats: int) -> dict[str, Any]:
    """What `transcribe_kraken.py` measures in the environment of `python`, or why it did not."""
    if python is None:
        return {"not measured": "--kraken was not given: it needs an environment of its own"}
    request = json.dumps(
        {"files": list(map(str, files)), "classes": classes, "batch": BATCH, "threads": threads, "repeats": repeats}
    )
    done = subprocess.run([python, str(KRAKEN)], input=request, capture_output=True, encoding="utf-8")
    if done.returncode:
        return {"not measured": done.stderr.strip().rpartition("\n")[2]}
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each side")
    parser.add_argument("--kraken", metavar="PYTHON", help="of an environment with kraken")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keep_freed_memory()
    keep_compiled_kernels()
    torch.manual_seed(0)
    folder = data_root(None) / "ocr_lines" / SCRIPT
    files = [line.image for line in list_lines(folder, ("train",))[:LINES]]
    model = gcsa.load(WEIGHTS).network
    folded = fold(model)
    crnn = fold(CTCRecognizer(model.charset.characters, "crnn", upsample=1).eval())
    sides = {
        "gcsa_ocr_tiny, upright": Side(folded, "upright"),
        "gcsa_ocr_tiny, any": Side(folded, "any"),
        "gcsa_ocr_tiny, any, bf16": Side(folded, "any", half=True),
        "gcsa_ocr_tiny, any, a batch after the other": Side(folded, "any", workers=1),
        "gcsa_ocr_tiny, any, also not folded": Side(model, "any", workers=1),
        "crnn, upright": Side(crnn, "upright"),
    }
    timings = alternate({name: partial(side.read, files) for name, side in sides.items()}, args.repeats, warm_up=1)
    content: dict[str, Any] = {"lines": len(files), "batch": BATCH, "threads": args.threads}
    for name, times in timings.items():
        speed = len(files) / times["median_ms"] * 1e3
        parameters = sum(p.numel() for p in (model if "gcsa" in name else crnn).parameters())
        content[name] = {"parameters": parameters, **times, "lines_per_second": speed}
    content["texts"] = texts(folded, folder)
    content["kraken"] = kraken(args.kraken, files, len(model.charset), args.threads, args.repeats)
    save("transcribe", content, CPU)


if __name__ == "__main__":
    main()
