"""A training step of low-rank adapters against one of the whole model: `python -m benchmarks.text.adapters`.

Forward, CTC loss, backward and AdamW on 8 lines of 480 pixels, for the recogniser and, last, an adapter of rank 2 on
the modules of conf/experiment/ocr_adapter.yaml. Peak memory is that of three steps in a fresh process each, beyond what the process
holds before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import peft
import torch

from benchmarks.common import CPU, alone, alternate, arguments, resident_peak, save
from gcsa.adapters import lora_config
from gcsa.tasks.recognition.ctc import CTCRecognizer, ctc_loss

CHARACTERS = "".join(chr(33 + i) for i in range(100))
SIDES: dict[str, dict[str, Any] | None] = {
    "whole model": None,
    "adapter on q, k, v, out": dict(rank=2, target_modules=("q", "k", "v", "out")),
    "adapter on stem, v, out, MLP and head": dict(rank=2, target_modules=("stem", "v", "out", "mlp", "columns")),
}


def make_step(side: str) -> tuple[Callable[[], None], int]:
    """One training step, and the parameters that it trains."""
    torch.manual_seed(0)
    model: Any = CTCRecognizer(CHARACTERS)
    options = SIDES[side]
    if options is not None:
        model = peft.get_peft_model(model, lora_config(model, modules_to_save=["head.classifier"], **options))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained)
    images, lengths = torch.rand(8, 1, 40, 480), torch.full((8,), 40)
    targets = torch.randint(1, 101, (320,))

    def step() -> None:
        optimizer.zero_grad()
        ctc_loss(model(images), targets, lengths).backward()
        optimizer.step()

    return step, sum(p.numel() for p in trained)


def peak_megabytes(side: str, threads: int) -> float:
    """Growth of the largest resident size in three steps; run it by `alone`."""
    torch.set_num_threads(threads)
    step, _ = make_step(side)
    before = resident_peak()
    for _ in range(3):
        step()
    return resident_peak() - before


def main() -> None:
    args = arguments(__doc__)
    steps = {side: make_step(side) for side in SIDES}
    total = sum(p.numel() for p in CTCRecognizer(CHARACTERS).parameters())
    save(
        "adapters",
        {
            "shape": "gcsa_ocr_tiny, 8 lines of 40 x 480",
            "parameters": total,
            "trainable": {side: count for side, (_, count) in steps.items()},
            "step": alternate({side: step for side, (step, _) in steps.items()}, args.repeats),
            "peak_megabytes": {side: alone(peak_megabytes, side, args.threads) for side in SIDES},
        },
        CPU,
    )


if __name__ == "__main__":
    main()
