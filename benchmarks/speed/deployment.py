"""Narrow ONNX files in onnxruntime: `python -m benchmarks.speed.deployment --threads 2`. Needs GCSA_DATA.

Size, time, distance from the model, what it costs in accuracy and what remains of the symmetry: of gcsa_small (random weights,
PatchCamelyon), of the published gcsa_tiny (rotated MNIST) and of the published recogniser of lines, upright. int8 is
calibrated on 64 training images, everything else is of validation images. Beside them the folded model in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnxruntime
import torch
from torch import Tensor, nn

import gcsa
from benchmarks.common import CPU, alternate, arguments, save
from gcsa.actions import act
from gcsa.data.storage import data_root
from gcsa.export import export
from gcsa.models.backbone import Backbone
from gcsa.models.create import create_model
from gcsa.models.folding import fold
from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.recognition.data.line_image import fit_line, read_line
from gcsa.tasks.recognition.data.lines import list_lines
from gcsa.tasks.recognition.evaluate import text_scores
from gcsa.testing import randomize, relative_error

WEIGHTS = Path(__file__).parents[2] / "weights"
FORMATS = ("onnx", "onnx-bf16", "onnx-int8")
CALIBRATION, BATCH = 64, 16
LINE = 480
"""Pixels of the lines that are timed."""

Run = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """A model with images to calibrate on, and others; `quality` tells what a run of it is worth."""

    model: nn.Module
    calibration: Tensor
    images: Tensor
    quality: Callable[[Run], dict[str, float]]
    any_size: bool = False


def classifier(model: Backbone, data: str, labelled: bool) -> Case:
    module = create_datamodule(data, batch_size=CALIBRATION)
    module.prepare_data()
    module.setup("fit")
    calibration, _ = next(iter(module.train_dataloader()))
    batches = list(module.val_dataloader())
    images = batches[0][0][:BATCH]

    def quality(run: Run) -> dict[str, float]:
        exact = model.group.exact_elements
        logits = [run(act(images, model.group, g, "image")) for g in exact]
        found = {"invariance_error": max(relative_error(turned, logits[0]) for turned in logits[1:])}
        if labelled:
            right = sum(int((run(x).argmax(1) == y).sum()) for x, y in batches)
            found["accuracy"] = right / sum(len(y) for _, y in batches)
        return found

    return Case(model, calibration, images, quality)


def recognizer() -> Case:
    model = gcsa.load(WEIGHTS / "gcsa_ocr_tiny.fr17").network
    folder = data_root(None) / "ocr_lines/fr17_roman_print"
    lines = list_lines(folder, ("val",))

    def image(line: Any) -> Tensor:
        return fit_line(read_line(line, model.height), model.height, model.stride, upright=True)

    def wide(line: Any) -> Tensor:
        return nn.functional.pad(image(line), (0, LINE))[..., :LINE]

    def quality(run: Run) -> dict[str, float]:
        said = [model.reading(run(image(line.image)[None])[0]).text for line in lines]
        return {"cer": text_scores(said, [line.text for line in lines]).cer}

    train = list_lines(folder, ("train",))[:CALIBRATION]
    images = (torch.stack([wide(line.image) for line in some]) for some in (train, lines[:BATCH]))
    return Case(model, *images, quality, any_size=True)


def session(file: Path, threads: int) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # or it computes beside whose turn is next
    opened = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    name = opened.get_inputs()[0].name
    return lambda x: torch.from_numpy(opened.run(None, {name: x.contiguous().numpy()})[0])


@torch.no_grad()
def measure(case: Case, threads: int, repeats: int) -> dict[str, Any]:
    """A row for each format and for the folded model."""
    rows: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        runs: dict[str, Run] = {"folded": fold(case.model)}
        shape = tuple(case.images.shape[1:])
        for format in FORMATS:
            file = Path(folder) / f"{format}.onnx"
            export(case.model, file, format, shape, case.any_size, case.calibration)  # type: ignore[arg-type]
            runs[format] = session(file, threads)
            rows[format] = {"megabytes": file.stat().st_size / 1e6}
        expected = runs["folded"](case.images)
        for name, run in runs.items():
            error = (run(case.images) - expected).abs().max() / expected.abs().max().clamp_min(1)
            rows[name] = {**rows.get(name, {}), "parity_error": error.item(), **case.quality(run)}
        for batch in (1, BATCH):
            times = alternate({name: partial(run, case.images[:batch]) for name, run in runs.items()}, repeats)
            for name, time in times.items():
                rows[name][f"batch {batch}"] = time
    return rows


def main() -> None:
    args = arguments(__doc__)
    small = randomize(create_model("gcsa_small", num_classes=2, in_chans=3)).eval()
    tiny = gcsa.load(WEIGHTS / "gcsa_tiny.rotmnist").network
    cases = {
        "gcsa_small": classifier(small, "pcam", labelled=False),
        "gcsa_tiny.rotmnist": classifier(tiny, "rotmnist", labelled=True),
        "gcsa_ocr_tiny.fr17": recognizer(),
    }
    save("deployment", {name: measure(case, args.threads, args.repeats) for name, case in cases.items()}, CPU)


if __name__ == "__main__":
    main()
