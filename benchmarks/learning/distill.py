"""A trial: a fine-tuned backbone, as the mean over the poses of d4, teaches a small exact network (Hinton et al. 2015, arXiv:1503.02531).

    python -m benchmarks.learning.queue pcam_teachers
    python -m benchmarks.learning.distill
    python -m benchmarks.learning.queue pcam_distilled

The teachers learn from a tenth of the labels. `distill` writes their probabilities for all training patches, from which the
students learn, without a label of their own. Both choose the epoch on the validation patches.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from gcsa.evaluation.metrics import score
from gcsa.groups import group
from gcsa.symmetry import Averaged
from gcsa.tasks.classification.data.base import Split
from gcsa.tasks.classification.data.pcam import PCam
from gcsa.tasks.classification.evaluate import draw_sample, model_and_data

TEACHERS = Path("outputs/queue/learning/pcam_teachers")
FILE = "probabilities.safetensors"


class DistilledPCam(PCam):
    """PatchCamelyon whose training patches have the probabilities (N, 2) of a teacher for a label.

    Args:
        teacher: the file that this module wrote.
    """

    name = "pcam_distilled"

    def __init__(self, *, teacher: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.teacher = teacher

    def read_fit(self) -> tuple[Split, Split]:
        train, val = super().read_fit()
        return train._replace(labels=load_file(self.teacher)["train"]), val


@torch.inference_mode()
def main() -> None:
    for run in sorted(TEACHERS.glob("seed*/teacher")):
        network, data, _ = model_and_data(str(run / "checkpoints/best.ckpt"), {"name": "pcam", "seed": 0})
        averaged = Averaged(network, group("d4")).eval()
        found = {}
        for split in ("train", "val"):
            batches = list(draw_sample(data, split))
            logits = torch.cat([averaged(part) for images, _ in batches for part in images.split(32)])
            found[split] = logits.softmax(1).contiguous()
            result = score(logits, torch.cat([labels for _, labels in batches]))
            print(f"{run}, {split}: accuracy {result.accuracy:.4f}, AUROC {result.auroc:.4f}", flush=True)
        save_file(found, run.parent / FILE)


if __name__ == "__main__":
    main()
