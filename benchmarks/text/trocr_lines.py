"""TrOCR on the equivariant encoder, trained on lines for some CPU-minutes: `python -m benchmarks.text.trocr_lines LINES OUTPUT`.

LINES is a folder as `benchmarks.text.french` makes it, or of XML pages. The encoder starts as that of `gcsa_ocr_tiny.french`, with the layer
that makes tokens of its columns, the decoder of two layers from scratch. The encoder is fixed for the first quarter of the time, in which
the decoder learns where to look. A fifth of the characters that the decoder is told to have written are wrong, drawn by chance, so that it
looks at the line and does not learn texts by heart. OUTPUT gets model and tokenizer, and `training.json` with the error rate of the
validation lines.

With `--base`, an OUTPUT of an earlier run, an adapter of that TrOCR learns LINES instead, and `training.json` has the error rates of the
validation and test lines before and after.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from peft import get_peft_model
from torch import Tensor, nn
from transformers.models.vision_encoder_decoder.modeling_vision_encoder_decoder import shift_tokens_right

import gcsa
from gcsa._utils.atomic import write_json
from gcsa._utils.memory import keep_compiled_kernels, keep_freed_memory
from gcsa.adapters import lora_config
from gcsa.tasks.recognition.data.batches import LineBatch
from gcsa.tasks.recognition.data.datamodule import LinesDataModule
from gcsa.tasks.recognition.evaluate import text_scores
from gcsa.tasks.recognition.trocr import SPECIAL, TrOCRRecognizer, create_trocr
from gcsa.training.results import git_commit, machine

BASE = "gcsa_ocr_tiny.french"
BATCH, SEED, WARMUP = 8, 0, 0.05
RATE, ENCODER_RATE, ADAPTER_RATE = 1e-3, 2e-4, 3e-3
"""Peak learning rates of the decoder, the encoder, and an adapter of both."""
FIXED, WRONG, DROPOUT = 0.25, 0.2, 0.2
"""Shares of the time with a fixed encoder, of wrong characters before the next one, and of the decoder's dropout."""
AUGMENT = dict(shear=3.0, scale=0.05, shift=0.03, stroke=0.3, blur=0.5, contrast=0.2, noise=0.05)
"""As of conf/data/lines.yaml."""
RANK = 6
ADAPTED = ("stem", "v", "out", "mlp", "columns", "q_proj", "v_proj", "out_proj", "fc1", "fc2")
"""As of conf/experiment/ocr_adapter.yaml, and of the decoder."""


def start(characters: str) -> TrOCRRecognizer:
    """A recogniser whose encoder is that of `BASE`."""
    base: Any = gcsa.load(BASE).network
    options = {name: value for name, value in base.options.items() if name not in (*type(base).defaults, "encoder")}
    recognizer = create_trocr(
        characters,
        height=base.height,
        hidden_size=base.head.norm.normalized_shape[0],
        upsample=base.head.upsample,
        dropout=DROPOUT,
        **options,
    )
    encoder = recognizer.model.encoder
    encoder.backbone.load_state_dict(base.encoder.state_dict())
    encoder.columns.load_state_dict(base.head.columns.state_dict())
    encoder.norm.load_state_dict(base.head.norm.state_dict())
    return recognizer


def adapted(folder: Path, characters: str) -> TrOCRRecognizer:
    """The TrOCR in a folder, which can also write `characters`, with a fresh adapter."""
    recognizer = TrOCRRecognizer.from_pretrained(folder)
    tokens = recognizer.extend(characters)
    options: Any = dict(modules_to_save=["output_projection"], trainable_token_indices={"embed_tokens": tokens})
    config = lora_config(recognizer.model, RANK, target_modules=ADAPTED, **(options if tokens else {}))
    return TrOCRRecognizer(get_peft_model(recognizer.model, config), recognizer.tokenizer)


def endless(data: LinesDataModule) -> Iterator[LineBatch]:
    """Training batches, in a new order in each epoch."""
    loader = data.make_loader("train", shuffle=True)
    epoch = 0
    while True:
        loader.set_epoch(epoch)
        yield from loader
        epoch += 1


def train(
    recognizer: TrOCRRecognizer,
    data: LinesDataModule,
    minutes: float,
    rates: list[tuple[float, nn.Module]],
    fixed: float,
) -> int:
    """Trains what requires gradients for some minutes of this process; returns the lines that it saw.

    rates: peak learning rates of modules. fixed: share of the time in which the encoder is fixed.
    """
    model = recognizer.model.train()
    groups = [{"params": [p for p in module.parameters() if p.requires_grad], "peak": rate} for rate, module in rates]
    optimizer = torch.optim.AdamW(groups, lr=RATE, weight_decay=0.05)
    began, seen = time.process_time(), 0
    for step, batch in enumerate(endless(data)):
        share = (time.process_time() - began) / (60 * minutes)
        if share >= 1:
            return seen
        if fixed:
            model.encoder.train(share >= fixed).requires_grad_(share >= fixed)
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * min(share / WARMUP, (1 + math.cos(math.pi * share)) / 2)
        labels = recognizer.labels(batch.texts)
        loss = model(pixel_values=batch.images, labels=labels, decoder_input_ids=written(recognizer, labels)).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seen += len(batch.texts)
        if step % 100 == 0:
            print(f"{share:.0%}, step {step}: loss {loss.item():.3f}", flush=True)
    raise AssertionError("the batches are endless")


def written(recognizer: TrOCRRecognizer, labels: Tensor) -> Tensor:
    """What the decoder is told to have written before each of `labels` (B, L), with `WRONG` of it drawn by chance."""
    config = recognizer.model.config
    before = shift_tokens_right(labels, config.pad_token_id, config.decoder_start_token_id)
    drawn = torch.randint(len(SPECIAL), len(recognizer.tokenizer), before.shape)
    wrong = torch.rand(before.shape) < WRONG
    wrong[:, 0] = False
    return torch.where(wrong, drawn, before)


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
    parser.add_argument("--base", type=Path, help="a TrOCR to adapt")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    keep_freed_memory()
    keep_compiled_kernels()
    commit = git_commit()
    data = LinesDataModule(path=args.lines, any_image=True, batch_size=BATCH, seed=SEED, augment=AUGMENT)
    data.setup("fit")
    content: dict[str, Any] = {"base": args.base.name if args.base else BASE, "cpu_minutes": args.minutes}
    splits = ["val"]
    if args.base:
        data.setup("test")
        splits.append("test")
        base = TrOCRRecognizer.from_pretrained(args.base)
        content |= {f"{split}/cer, before": error(base, data, split) for split in splits}
        recognizer = adapted(args.base, data.charset.characters)
        rates, fixed = [(ADAPTER_RATE, recognizer.model)], 0.0
    else:
        recognizer = start(data.charset.characters)
        rates, fixed = [(RATE, recognizer.model.decoder), (ENCODER_RATE, recognizer.model.encoder)], FIXED
    parameters: list[Tensor] = list(recognizer.model.parameters())
    content["trained"] = sum(p.numel() for p in parameters if p.requires_grad)
    content["lines_seen"] = train(recognizer, data, args.minutes, rates, fixed)
    content["train_lines"] = len(data.lines("train"))
    recognizer.save_pretrained(args.output)
    for split in splits:
        content[f"{split}/cer"] = error(recognizer, data, split)
    content["val/cer_rotated"] = error(recognizer, data, "val", 1)
    content |= {"seed": SEED, "commit": commit, "machine": machine()}
    print(write_json(args.output / "training.json", content))


if __name__ == "__main__":
    main()
