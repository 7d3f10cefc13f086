"""TrOCR on the equivariant encoder learns 64 lines by heart: `python -m benchmarks.text.trocr_overfit --threads 1`.

The first 64 training lines of fr17_roman_print that are at most 256 pixels wide at height 40; gcsa_ocr_tiny and a
decoder of two layers from scratch, AdamW with one cycle of the rate. The error is counted in a fresh process that loads
the saved folder and generates, upright and, with orientation "any", from lines rotated by 0, 90, 180 and 270 degrees. Needs
GCSA_DATA.
"""

from __future__ import annotations

import multiprocessing
import random
import tempfile
import time
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import arguments, save
from gcsa.data.storage import data_root
from gcsa.tasks.recognition.data.charset import Charset
from gcsa.tasks.recognition.data.line_image import fit_line, read_line
from gcsa.tasks.recognition.data.lines import list_lines
from gcsa.tasks.recognition.evaluate import text_scores
from gcsa.tasks.recognition.trocr import TrOCRRecognizer, create_trocr

SCRIPT, LINES, WIDEST, HEIGHT = "fr17_roman_print", 64, 256, 40
EPOCHS, BATCH, RATE, SEED = 100, 8, 1e-3, 0


def short_lines() -> list[tuple[Tensor, str]]:
    """The images (1, 40, W) and texts."""
    lines: list[tuple[Tensor, str]] = []
    for line in list_lines(data_root(None) / "ocr_lines" / SCRIPT, ("train",)):
        image = fit_line(read_line(line, HEIGHT), HEIGHT, upright=True)
        if image.shape[2] <= WIDEST:
            lines.append((image, line.text))
        if len(lines) == LINES:
            break
    return lines


def batches(lines: list[tuple[Tensor, str]]) -> list[tuple[Tensor, list[str]]]:
    """Lines of one width together, at most BATCH."""
    buckets: dict[int, list[tuple[Tensor, str]]] = defaultdict(list)
    for image, text in lines:
        buckets[image.shape[2]].append((image, text))
    parts = [bucket[i : i + BATCH] for bucket in buckets.values() for i in range(0, len(bucket), BATCH)]
    return [(torch.stack([image for image, _ in part]), [text for _, text in part]) for part in parts]


def train(recognizer: TrOCRRecognizer, lines: list[tuple[Tensor, str]]) -> list[float]:
    """The mean loss of each epoch."""
    model = recognizer.model.train()
    data = [(images, recognizer.labels(texts)) for images, texts in batches(lines)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, EPOCHS * len(data), pct_start=0.1)
    losses = []
    for epoch in range(EPOCHS):
        total = 0.0
        for images, labels in random.sample(data, len(data)):
            loss = model(pixel_values=images, labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item() / len(data)
        losses.append(total)
        print(f"epoch {epoch}: loss {total:.4f}", flush=True)
    return losses


def evaluate(folder: str, threads: int) -> dict[str, Any]:
    """What the saved model reads; run it in a process of its own."""
    torch.set_num_threads(threads)
    recognizer = TrOCRRecognizer.from_pretrained(folder)
    data = batches(short_lines())
    expected = [text for _, texts in data for text in texts]
    read = {
        name: [reading.text for images, _ in data for reading in recognizer.read(images, orientation, beams)]
        for name, orientation, beams in (("greedy", "upright", 1), ("beams of 4", "upright", 4), ("any", "any", 1))
    }
    rotated = {
        degrees: [
            reading.text
            for images, _ in data
            for reading in recognizer.read(torch.rot90(images, degrees // 90, (2, 3)), "any")
        ]
        for degrees in (90, 180, 270)
    }
    return {
        "cer": {name: text_scores(texts, expected).cer for name, texts in read.items()},
        "rotated_lines_that_read_the_same": {
            degrees: sum(a == b for a, b in zip(texts, read["any"], strict=True)) for degrees, texts in rotated.items()
        },
    }


def main() -> None:
    args = arguments(__doc__)
    torch.manual_seed(SEED)
    random.seed(SEED)
    lines = short_lines()
    recognizer = create_trocr(Charset("").extended(text for _, text in lines).characters, dropout=0.0)
    start = time.perf_counter()
    losses = train(recognizer, lines)
    seconds = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        recognizer.save_pretrained(folder)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            read = pool.apply(evaluate, (folder, args.threads))
    content = {
        "lines": len(lines),
        "characters": sum(len(text) for _, text in lines),
        "parameters": sum(p.numel() for p in recognizer.model.parameters()),
        "seed": SEED,
        "steps": EPOCHS * len(batches(lines)),
        "seconds": round(seconds, 1),
        "loss": {"first epoch": losses[0], "last epoch": losses[-1]},
        **read,
    }
    save("trocr_overfit", content)


if __name__ == "__main__":
    main()
