"""What train.py and evaluate.py do with the task of this room; see `gcsa.training.task`."""

from pathlib import Path
from typing import Any

import torch

from gcsa._utils.errors import UserError
from gcsa.evaluation.cost import count_flops
from gcsa.tasks.segmentation.data.datamodule import MasksDataModule, Nuclei
from gcsa.tasks.segmentation.evaluate import evaluate_masks
from gcsa.tasks.segmentation.losses import checked_as, targets_of
from gcsa.tasks.segmentation.metrics import measure_turned
from gcsa.tasks.segmentation.module import Segmentation, check_crop
from gcsa.tasks.segmentation.stars import check_installed
from gcsa.tasks.segmentation.thresholds import choose_thresholds
from gcsa.training.task import data_options
from gcsa.weights import save_segmenter

MODULES = {module.name: module for module in (Nuclei, MasksDataModule)}
COUNTED_SIDE = 256
"""Pixels a side of the image whose FLOPs are counted."""

MODULES = {module.name: module for module in (Nuclei, MasksDataModule)}
COUNTED_SIDE = 256


class Task:
    """The task of data sets whose images have label maps; see `Task`."""

    module = Segmentation
    monitored = ("val/ap50", "val/pq", "val/dice", "val/iou")

    def build_data(self, cfg: dict[str, Any]) -> MasksDataModule:
        """The data module of `cfg["data"]`, which has read nothing yet. Raises ValueError for options that it refuses."""
        options = data_options(cfg)
        kind = MODULES[options.pop("name")]
        try:
            return kind(**options)
        except TypeError as error:
            raise UserError(f"data={kind.name} does not take these options: {error}") from error

    def build_module(self, cfg: dict[str, Any], data: MasksDataModule) -> Segmentation:
        """The segmenter of `cfg`, which normalises as `data` does. Raises ValueError for arguments that it refuses."""
        if cfg.get("adapter") is not None:
            raise UserError("a segmenter takes no adapter: leave out adapter=, and train it whole")
        if cfg["compile"]:
            raise UserError("compile=true is for classifiers, and a segmenter is not compiled: leave compile=false")
        model = {key: value for key, value in cfg["model"].items() if value is not None and key != "img_size"}
        if model.get("task", "instances") == "instances":
            check_installed()
        elif cfg["monitor"]["metric"] in ("val/ap50", "val/pq"):
            raise UserError(
                f"monitor.metric={cfg['monitor']['metric']} is of instances: take val/dice for model.task=masks"
            )
        low, high = data.percentiles
        optimizer = dict(cfg["optimizer"])
        schedule = optimizer.pop("schedule")
        model |= {"in_chans": data.in_chans, "low": low, "high": high}
        module = Segmentation(model=model, schedule=schedule, optimizer=optimizer)
        check_crop(data.crop, module.model.multiple, module.model.least)
        data.targets = targets_of(module.model)
        data.check_labels = checked_as(module.model)
        return module

    def export(self, module: Segmentation, data: MasksDataModule, folder: Path) -> str:
        """Chooses the thresholds on the validation images, and writes the weights into `folder`, for segment.py; returns it."""
        if module.model.task == "instances":
            data.trainer = None  # all images: in a fit of several processes each had its share
            data.setup("validate")  # which a process that only started those has not read
            choose_thresholds(
                module.model.eval(), ((image[0], labels[0].numpy()) for image, labels in data.val_dataloader())
            )
        return str(save_segmenter(module.model, folder, {"data": data.name}))

    def evaluate(self, config: dict[str, Any], output_dir: Path) -> dict[str, Any]:
        """How right the label maps of a segmenter are, see `evaluate_masks`."""
        return evaluate_masks(config, self.build_data(config))

    def count_flops(self, module: Segmentation, data: MasksDataModule) -> int:
        """FLOPs of an image of `COUNTED_SIDE` pixels a side."""
        return count_flops(module.model, torch.zeros(data.in_chans, COUNTED_SIDE, COUNTED_SIDE))

    def measure(
        self, module: Segmentation, data: MasksDataModule, scores: dict[str, float], output_dir: Path
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """What the turned and mirrored test images give, and lines for the screen."""
        examples = ((image[0], labels[0].numpy()) for image, labels in data.test_dataloader())
        turned = measure_turned(module.model.eval(), examples)
        shown = {"test dice": f"{scores['test/dice']:.4f}"}
        change = f"{turned['pixels']} pixels"
        if "test/ap50" in scores:
            shown["test AP at IoU 0.5"] = f"{scores['test/ap50']:.4f}"
            change += f" and {turned['objects']} objects"
        shown["turned and mirrored"] = f"{change} change"
        settings = {key: module.model.options[key] for key in ("threshold", "overlap")}
        return {"turned": turned, **settings}, shown
