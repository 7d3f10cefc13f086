"""Images a second of the students of docs/teach.md, folded, and of their teacher in one pass and in eight: `python -m
benchmarks.learning.teach_rate --threads 1`. Weights are random, which changes no time."""

from __future__ import annotations

from functools import partial

import timm
import torch
from torch import Tensor, nn

from benchmarks.common import CPU, alternate, arguments, save
from gcsa.models.create import create_model
from gcsa.models.folding import fold
from gcsa.symmetry import Averaged

BATCH = 16
STUDENTS = {
    "plankton": ("gcsa_hybrid_small", dict(num_classes=31, in_chans=1, img_size=64), 128),
    "tissue": ("gcsa_pooled_small", dict(num_classes=2, in_chans=3, img_size=96), 96),
}
"""Name and options of the student, and the side of the teacher's images."""


@torch.inference_mode()
def answer(network: nn.Module, images: Tensor) -> None:
    network(images)


def main() -> None:
    args = arguments(__doc__)
    rates: dict[str, dict[str, float]] = {}
    for data, (name, options, side) in STUDENTS.items():
        student = fold(create_model(name, positions=True, centred=True, **options).eval())
        teacher = timm.create_model("tf_efficientnet_lite0", num_classes=options["num_classes"]).eval()
        own = torch.randn(BATCH, options["in_chans"], options["img_size"], options["img_size"])
        larger = torch.randn(BATCH, 3, side, side)
        sides = {
            "teacher, one pose": partial(answer, teacher, larger),
            "teacher, averaged": partial(answer, Averaged(teacher, "d4").eval(), larger),
            "student": partial(answer, student, own),
        }
        timings = alternate(sides, args.repeats)
        rates[data] = {kind: 1000 * BATCH / found["median_ms"] for kind, found in timings.items()}
    save("teach_rate", {"batch": BATCH, "threads": args.threads, "images_per_second": rates}, CPU)


if __name__ == "__main__":
    main()
