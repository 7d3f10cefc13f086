"""TrOCR on the equivariant encoder, trained on lines for some CPU-minutes: `python -m benchmarks.text.trocr_lines LINES OUTPUT`.

LINES is a folder as `benchmarks.text.french` makes it. The encoder starts as that of `gcsa_ocr_tiny.french`, with the layer that makes
tokens of its columns, the decoder of two layers from scratch. The encoder is fixed for the first half of the time, in which the
decoder learns where to look, and both are trained in the second half. OUTPUT gets model and tokenizer, and `training.json` with the
error rate of the validation lines.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import gcsa
from gcsa._utils.atomic import write_json
from gcsa._utils.memory import keep_compiled_kernels, keep_freed_memory
from gcsa.tasks.recognition.data.batches import LineBatch
from gcsa.tasks.recognition.data.datamodule import LinesDataModule
from gcsa.tasks.recognition.evaluate import text_scores
from gcsa.tasks.recognition.trocr import TrOCRRecognizer, create_trocr
from gcsa.training.results import git_commit, machine

BASE = "gcsa_ocr_tiny.french"
BATCH, SEED, WARMUP = 8, 0, 0.05
RATE, ENCODER_RATE = 1e-3, 2e-4
"""Peak learning rates of the decoder and the encoder."""
AUGMENT = dict(shear=3.0, scale=0.05, shift=0.03, stroke=0.3, blur=0.5, contrast=0.2, noise=0.05)
"""As of conf/data/lines.yaml."""


def start(characters: str) -> TrOCRRecognizer:
    """A recogniser whose encoder is that of `BASE`."""
    base: Any = gcsa.load(BASE).network
    options = {name: value for name, value in base.options.items() if name not in (*type(base).defaults, "encoder")}
    recognizer = create_trocr(
        characters,
        height=base.height,
        hidden_size=base.head.norm.normalized_shape[0],
        upsample=base.head.upsample,
        **options,
    )
    encoder = recognizer.model.encoder
    encoder.backbone.load_state_dict(base.encoder.state_dict())
    encoder.columns.load_state_dict(base.head.columns.state_dict())
    encoder.norm.load_state_dict(base.head.norm.state_dict())
    return recognizer


def endless(data: LinesDataModule) -> Iterator[LineBatch]:
    """Training batches, in a new order in each epoch."""
    loader = data.make_loader("train", shuffle=True)
    epoch = 0
    while True:
        loader.set_epoch(epoch)
        yield from loader
        epoch += 1


def train(recognizer: TrOCRRecognizer, data: LinesDataModule, minutes: float) -> int:
    """Trains for some minutes of this process; returns the lines that it saw."""
    model = recognizer.model.train()
    groups = [
        {"params": [*model.decoder.parameters()], "peak": RATE},
        {"params": [*model.encoder.parameters()], "peak": ENCODER_RATE},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, weight_decay=0.05)
    began, seen = time.process_time(), 0
    for step, batch in enumerate(endless(data)):
        share = (time.process_time() - began) / (60 * minutes)
        if share >= 1:
            return seen
        set_trained(model.encoder, share >= 0.5)
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * min(share / WARMUP, (1 + math.cos(math.pi * share)) / 2)
        loss = model(pixel_values=batch.images, labels=recognizer.labels(batch.texts)).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seen += len(batch.texts)
        if step % 100 == 0:
            print(f"{share:.0%}, step {step}: loss {loss.item():.3f}", flush=True)
    raise AssertionError("the batches are endless")


def set_trained(module: nn.Module, trained: bool) -> None:
    module.train(trained).requires_grad_(trained)


def error(recognizer: TrOCRRecognizer, data: LinesDataModule, split: str, quarters: int = 0) -> float:
    """The character error rate of the lines of a split: upright, or rotated by so many times 90 degrees and read in any orientation."""
    recognizer.model.eval()
    read, texts = [], []
    for batch in data.make_loader(split):
        images = batch.images.rot90(quarters, (2, 3))
        read += [reading.text for reading in recognizer.read(images, "any" if quarters else "upright")]
        texts += batch.texts
    return text_scores(read, texts).cer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--minutes", type=float, default=55, help="of this process's CPU time (default 55)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    keep_freed_memory()
    keep_compiled_kernels()
    commit = git_commit()
    data = LinesDataModule(path=args.lines, any_image=True, batch_size=BATCH, seed=SEED, augment=AUGMENT)
    data.setup("fit")
    recognizer = start(data.charset.characters)
    seen = train(recognizer, data, args.minutes)
    recognizer.save_pretrained(args.output)
    content = {"base": BASE, "cpu_minutes": args.minutes, "lines_seen": seen, "train_lines": len(data.lines("train"))}
    content |= {"val/cer": error(recognizer, data, "val"), "val/cer_rotated": error(recognizer, data, "val", 1)}
    content |= {"seed": SEED, "commit": commit, "machine": machine()}
    print(write_json(args.output / "training.json", content))


if __name__ == "__main__":
    main()
