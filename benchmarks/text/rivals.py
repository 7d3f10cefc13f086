"""Tesseract and published recognisers on the same lines: `python -m benchmarks.text.rivals`.

Needs Tesseract with fra, lat, deu and frk, and GCSA_DATA. At most `MOST` test lines of a set are read, drawn with a fixed seed.

Tesseract's languages, mode, scale and border are chosen on validation lines. It lays a line on its long side and reads it in both
orientations, of which the more confident counts, as the CRNN does ("two passes"). Apostrophes count as one character. `modern` says
what else counts as one in the second error rate. Times are CPU seconds on one thread, since other processes may run.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps

from benchmarks.text.french import SAME
from benchmarks.text.rotated_lines import DEGREES, ROOT, Side, sides
from gcsa._utils.atomic import write_json
from gcsa._utils.memory import keep_compiled_kernels, keep_freed_memory
from gcsa.data.storage import data_root
from gcsa.tasks.recognition.data.charset import normalize
from gcsa.tasks.recognition.data.line_image import Line, read_line
from gcsa.tasks.recognition.data.lines import list_lines
from gcsa.tasks.recognition.evaluate import text_scores
from gcsa.tasks.recognition.pages.forms import SIGNS
from gcsa.tasks.recognition.reading import Reading, most_confident
from gcsa.training.results import git_commit, machine

RESULT = ROOT / "benchmarks/results/ocr/rivals.json"
FRENCH, FRAKTUR = ("fr17_roman_print", "fr17_18_gallicorpora"), ("de19_fraktur_print",)
LANGUAGES = {FRENCH: ("fra", "lat", "fra+lat"), FRAKTUR: ("frk", "deu", "frk+deu")}
PUBLISHED = {
    FRENCH: ("crnn.french", "gcsa_ocr_tiny.print", "gcsa_ocr_tiny.french"),
    FRAKTUR: ("gcsa_ocr_tiny.print+gcsa_ocr_tiny.print.de19",),
}
MOST, SEED = 100, 0
CHOOSING = 40
"""Validation lines on which Tesseract's settings are chosen."""
UMLAUT = {0x0364: "\u0308"}
"""The small e above a vowel."""
TESSDATA = Path("/usr/share/tesseract-ocr/5/tessdata")

Scan = Image.Image
Read = Callable[[Sequence[Scan], str], list[str]]
"""Texts of lines, "upright" or in "any" orientation."""


def modern(text: str) -> str:
    """A text with the letters and signs of today's type: ligatures, long s, apostrophes and hyphens as `to_form` writes them, and umlauts."""
    for signs in (*SIGNS.values(), UMLAUT):
        text = text.translate(signs)
    return normalize(text)


def cpu_seconds() -> float:
    """Of this process and those that it ran."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@contextmanager
def _files(images: Sequence[Scan]) -> Iterator[str]:
    """A file that lists those of the images."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.png" for number in range(len(images))]
        for path, image in zip(paths, images, strict=True):
            image.save(path)
        listing = Path(folder) / "list.txt"
        listing.write_text("".join(f"{path}\n" for path in paths))
        yield str(listing)


def run_tesseract(*arguments: str) -> str:
    environment = os.environ | {"OMP_THREAD_LIMIT": "1"}
    return subprocess.run(["tesseract", *arguments], capture_output=True, text=True, check=True, env=environment).stdout


@dataclass(frozen=True)
class Tesseract:
    """Tesseract's settings for lines, and what it has read so far by their pixels, since the four scans of a line hold two images."""

    languages: str
    mode: int
    border: int
    scale: int
    known: dict[bytes, Reading] = field(default_factory=dict, repr=False)

    def read(self, scans: Sequence[Scan], orientation: str) -> list[str]:
        if orientation == "upright":
            return [reading.text for reading in self._recognize(scans)]
        laid = [scan.transpose(Image.Transpose.ROTATE_270) if scan.height > scan.width else scan for scan in scans]
        ways = self.readings(laid), self.readings([scan.transpose(Image.Transpose.ROTATE_180) for scan in laid])
        return [most_confident({0: first, 180: second}).text for first, second in zip(*ways, strict=True)]

    def readings(self, lines: Sequence[Scan]) -> list[Reading]:
        new = {image.tobytes(): image for image in lines if image.tobytes() not in self.known}
        if new:
            self.known.update(zip(new, self._recognize([*new.values()]), strict=True))
        return [self.known[image.tobytes()] for image in lines]

    def _recognize(self, lines: Sequence[Scan]) -> list[Reading]:
        prepared = [
            ImageOps.expand(
                image.resize((image.width * self.scale, image.height * self.scale), Image.Resampling.BICUBIC),
                self.border * self.scale,
                fill=255,
            )
            for image in lines
        ]
        with _files(prepared) as listing:
            table = run_tesseract(listing, "-", "-l", self.languages, "--psm", str(self.mode), "tsv")
        words: list[list[tuple[str, float]]] = [[] for _ in lines]
        for row in csv.DictReader(table.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE):
            if row["level"] == "5":
                words[int(row["page_num"]) - 1].append((row["text"], float(row["conf"]) / 100))
        return [_line(found) for found in words]


def _line(words: list[tuple[str, float]]) -> Reading:
    """The text of a line, and the mean confidence of its words, weighted by their lengths."""
    length = sum(len(word) for word, _ in words)
    confidence = sum(len(word) * confidence for word, confidence in words) / length if length else 0.0
    return Reading(normalize(" ".join(word for word, _ in words)), confidence)


def chosen(scripts: tuple[str, ...]) -> Tesseract:
    """The settings with the fewest errors on validation lines, by the letters of today, which is what Tesseract writes."""
    count = CHOOSING // len(scripts)
    lines = []
    for script in scripts:
        listed = _listed(script, "val")
        lines += [listed[i] for i in np.linspace(0, len(listed) - 1, count).astype(int)]
    scans, meant = [_scan(line) for line in lines], [modern(line.text) for line in lines]

    def error(tesseract: Tesseract) -> float:
        return text_scores([modern(text) for text in tesseract.read(scans, "upright")], meant).cer

    tried = [Tesseract(*setting) for setting in product(LANGUAGES[scripts], (7, 13), (0, 12), (1, 2))]
    best = min(tried, key=error)
    return Tesseract(best.languages, best.mode, best.border, best.scale)


def _listed(script: str, split: str) -> list[Line]:
    return list_lines(data_root(None) / "ocr_lines" / script, (split,))


def test_lines(script: str) -> list[Line]:
    lines = _listed(script, "test")
    return random.Random(SEED).sample(lines, min(MOST, len(lines)))


def _scan(line: Line) -> Scan:
    with Image.open(line.image) as image:
        return image.convert("L")


def neural(side: Side) -> Read:
    height = side.model.height
    return lambda scans, orientation: side.read([read_line(scan, height) for scan in scans], orientation)


def measure(read: Read, lines: Sequence[Line]) -> dict[str, Any]:
    """Error rates of a system, upright and scanned in four orientations that it does not know."""
    scans, meant = [_scan(line) for line in lines], [line.text.translate(SAME) for line in lines]
    began = cpu_seconds()
    texts = [text.translate(SAME) for text in read(scans, "upright")]
    row: dict[str, Any] = {"upright_lines_per_second": len(lines) / (cpu_seconds() - began)}
    scores = text_scores(texts, meant)
    row |= {"cer": scores.cer, "cer_interval": scores.cer_interval, "wer": scores.wer}
    row["cer_modern"] = text_scores([modern(text) for text in texts], [modern(text) for text in meant]).cer
    rotated, seconds = [], []
    for degrees in DEGREES:
        turned = [Image.fromarray(np.rot90(np.asarray(scan), degrees // 90)) for scan in scans]
        began = cpu_seconds()
        rotated.append([text.translate(SAME) for text in read(turned, "any")])
        seconds.append(cpu_seconds() - began)
    row["cer_rotated"] = [text_scores(texts, meant).cer for texts in rotated]
    row["cer_any"] = mean(row["cer_rotated"])
    row["same_when_rotated"] = mean(len(set(line)) == 1 for line in zip(*rotated, strict=True))
    row["lines_per_second"] = len(lines) / seconds[0]
    return row


def systems(scripts: tuple[str, ...], tesseract: Tesseract) -> Iterator[tuple[str, Read, int | None]]:
    """(name, what reads, parameters) of each system."""
    yield "Tesseract 5.3", tesseract.read, None
    named = [f"{weights.rpartition('+')[2]}={weights}" for weights in PUBLISHED[scripts]]
    for name, side in sides(named).items():
        yield name, neural(side), side.parameters


def all_lines() -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    settings = {}
    for scripts in (FRENCH, FRAKTUR):
        tesseract = chosen(scripts)
        settings[scripts[0]] = {name: value for name, value in asdict(tesseract).items() if name != "known"}
        print(settings, flush=True)
        for script in scripts:
            lines = test_lines(script)
            for name, read, parameters in systems(scripts, tesseract):
                row = {"system": name, "script": script, "lines": len(lines), "parameters": parameters}
                rows.append(row | measure(read, lines))
                print(rows[-1], flush=True)
    size = {name: (TESSDATA / f"{name}.traineddata").stat().st_size for name in ("fra", "lat", "deu", "frk")}
    return {"rows": rows, "tesseract": settings, "tesseract_bytes": size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    if shutil.which("tesseract") is None:
        parser.error("tesseract is not installed: apt install tesseract-ocr and its languages")
    torch.set_num_threads(1)
    keep_freed_memory()
    keep_compiled_kernels()
    about = {"commit": git_commit(), "machine": machine()}
    print(write_json(RESULT, {"lines": {**all_lines(), **about}}))


if __name__ == "__main__":
    main()
