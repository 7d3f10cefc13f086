"""Images a second of a published network of each kind, and of what people use beside it: `python -m benchmarks.speed.inference`.

Each as it is, folded, compiled (ours folded), and as an ONNX file in float32 and in int8, on one thread and on two; all ways of a
network alternate. Inputs are random numbers, in batches. A peer cannot be folded. A recogniser reads a line in one orientation
(height x 480 pixels); segmenters give maps, from which objects are still to be found. `--stardist PYTHON` adds StarDist, run by the Python
of an environment that has it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import timm
import torch
from torch import Tensor, nn

import gcsa
from benchmarks.common import CPU, alternate, arguments, save, timing
from benchmarks.speed.deployment import CALIBRATION, WEIGHTS, session
from gcsa.export import export
from gcsa.models.baselines.crnn import CRNN
from gcsa.models.baselines.smp_unet import SMPUNet
from gcsa.models.folding import fold

FORMATS = ("onnx", "onnx-int8")
PATCH, DIGIT, MICROGRAPH, LINE = (3, 96, 96), (1, 28, 28), (3, 256, 256), (1, 40, 480)


def published(name: str) -> nn.Module:
    return gcsa.load(WEIGHTS / name).network


def cases() -> dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int], int]]:
    """Name to what makes the network, the size of an image, and the images of a batch."""
    return {
        "gcsa_pooled_small.pcam": (partial(published, "gcsa_pooled_small.pcam"), PATCH, 16),
        "gcsa_pooled_small.pcam_steady": (partial(published, "gcsa_pooled_small.pcam_steady"), PATCH, 16),
        "resnet18": (partial(timm.create_model, "resnet18", num_classes=2), PATCH, 16),
        "tf_efficientnet_lite0": (partial(timm.create_model, "tf_efficientnet_lite0", num_classes=2), PATCH, 16),
        "vit_tiny_patch16_224": (
            partial(timm.create_model, "vit_tiny_patch16_224", num_classes=2, img_size=96),
            PATCH,
            16,
        ),
        "gcsa_tiny.rotmnist": (partial(published, "gcsa_tiny.rotmnist"), DIGIT, 64),
        "gcsa_unet_tiny.nuclei": (partial(published, "gcsa_unet_tiny.nuclei"), MICROGRAPH, 4),
        "smp.Unet(resnet18)": (partial(SMPUNet, 3, 1, 32), MICROGRAPH, 4),
        "gcsa_ocr_tiny.print": (partial(published, "gcsa_ocr_tiny.print"), LINE, 16),
        "CRNN": (lambda: Recognizer(CRNN()), LINE, 16),
    }


class Recognizer(nn.Module):
    """The scores of 100 characters at each position of a plain encoder."""

    def __init__(self, encoder: CRNN) -> None:
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(encoder.num_features, 100)
        self.height, self.stride = LINE[1], 4

    def forward(self, lines: Tensor) -> Tensor:
        return self.head(self.encoder.forward_features(lines).squeeze(2).transpose(1, 2)).log_softmax(2)


@torch.no_grad()
def measure(model: nn.Module, shape: tuple[int, int, int], batch: int, repeats: int) -> dict[str, Any]:
    """Images a second by threads and way, and why a way is missing."""
    model = model.eval()
    images = torch.randn(batch, *shape)
    ours = type(model).__module__.startswith("gcsa") and not isinstance(model, SMPUNet)
    runs: dict[str, Callable[[Tensor], Any]] = {"eager": model}
    if ours:
        runs["folded"] = fold(model)
    rates: dict[str, Any] = {"batch": batch, "shape": shape}
    with TemporaryDirectory() as folder:
        files = {}
        for format in FORMATS:
            file = Path(folder) / f"{format}.onnx"
            try:
                export(model, file, format, shape, False, torch.randn(CALIBRATION, *shape))
                files[format] = file
            except Exception as error:  # a peer that this format does not know; the row says so
                rates[format] = f"{type(error).__name__}: {error}"[:200]
        for threads in (1, 2):
            torch.set_num_threads(threads)
            torch.compiler.reset()  # code is made for a number of threads
            runs["compiled"] = torch.compile(runs.get("folded", model))
            sessions = {format: session(file, threads) for format, file in files.items()}
            sides: dict[str, Callable[[], object]] = {
                name: partial(run, images) for name, run in {**runs, **sessions}.items()
            }
            times = alternate(sides, repeats, warm_up=3)
            rates[f"threads {threads}"] = {name: batch / time["median_ms"] * 1e3 for name, time in times.items()}
            print(shape, threads, rates[f"threads {threads}"], flush=True)
    return rates


def stardist(python: str, repeats: int) -> dict[str, Any]:
    """`measure` of StarDist's network, by another Python."""
    batch = 4
    rates: dict[str, Any] = {"batch": batch, "shape": MICROGRAPH}
    for threads in (1, 2):
        command = [python, "-m", "benchmarks.speed.stardist_rate"]
        command += map(str, (threads, batch, MICROGRAPH[1], repeats))
        with timing():
            result = subprocess.run(command, capture_output=True, text=True, check=True)
        rates[f"threads {threads}"] = json.loads(result.stdout.splitlines()[-1])
    return rates


def main() -> None:
    parsed = arguments(__doc__, lambda parser: parser.add_argument("--stardist", help="a Python that has StarDist"))
    rows = {name: measure(make(), shape, batch, parsed.repeats) for name, (make, shape, batch) in cases().items()}
    if parsed.stardist:
        rows["StarDist"] = stardist(parsed.stardist, parsed.repeats)
    save("inference", rows, CPU)


if __name__ == "__main__":
    main()
