"""What a training step of each system in benchmarks/results/learning costs: `python -m benchmarks.learning.pace --threads 1`.

Forward and backward in training mode, 32 images, the systems of a data set taking turns.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import nn

from benchmarks.common import DEVICE, RESULTS, arguments, forward_and_step, save
from gcsa.models.create import create_model

LEARNING = RESULTS / "learning"
BATCH = 32
SHAPES = {"pcam": (3, 96, 2), "plankton": (1, 64, 31), "rotmnist": (1, 28, 10)}  # channels, side, classes


def main() -> None:
    args = arguments(__doc__)
    content: dict[str, Any] = {"batch": BATCH}
    for data, (in_chans, side, num_classes) in SHAPES.items():
        systems: dict[str, tuple[nn.Module, torch.Tensor]] = {}
        for path in sorted(LEARNING.glob(f"{data}*/seed0/*.json")):
            name = path.stem.partition("+")[0]  # without the augmentation
            if name in systems:
                continue
            options = json.loads(path.read_text())["config"]["model"]
            if options.get("img_size") == "auto":
                options["img_size"] = side
            model = create_model(options.pop("name"), in_chans=in_chans, num_classes=num_classes, **options)
            systems[name] = (model, torch.randn(BATCH, in_chans, side, side, device=DEVICE))
        content[data] = forward_and_step(systems, args.repeats, modes=("forward_backward",))["forward_backward"]
    save("pace", content)


if __name__ == "__main__":
    main()
