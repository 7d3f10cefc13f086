"""What evaluate.py measures of segmenters."""

from __future__ import annotations

from typing import Any

import torch

from gcsa._utils.errors import UserError
from gcsa.tasks import load
from gcsa.tasks.evaluating import check_config, chosen_device, content, evenly_spread, show
from gcsa.tasks.recognition.data.lines import SPLITS
from gcsa.tasks.segmentation.data.datamodule import MasksDataModule
from gcsa.tasks.segmentation.losses import checked_as
from gcsa.tasks.segmentation.metrics import build_metrics, measure_turned
from gcsa.tasks.segmentation.stars import check_installed

NAMES = {
    **{f"ap{share}": f"average precision at IoU 0.{share // 10}" for share in range(50, 100, 10)},
    "ap50_by_image": "average precision at IoU 0.5, mean over images",
    "pq": "panoptic quality",
    "dice": "Dice of objects, or mean over classes",
    "iou": "IoU of objects, or mean over classes",
}
"""Of the results in the table."""


def evaluate_masks(config: dict[str, Any], data: MasksDataModule) -> dict[str, Any]:
    """Dice, IoU and the scores of instances of `config["model"]` on a held-out split of `data`, or on "all" of it, and what changes
    where its pictures are turned and mirrored. Prints a table and
    returns JSON-ready values. Raises as `gcsa.tasks.recognition.evaluate.evaluate_lines`."""
    check_config(config, ("val", "test", "all"))
    model = load(config["model"], task="segmentation").network.to(chosen_device(config)).eval()
    if data.in_chans != model.in_chans:
        raise UserError(
            f"{config['model']} takes pictures of {model.in_chans} channels: set data.in_chans={model.in_chans}"
        )
    if model.task == "instances":
        check_installed()
    data.percentiles = model.low, model.high  # as it was trained, whatever the data module would do
    data.check_labels = checked_as(model)
    wanted = SPLITS if config["split"] == "all" else (config["split"],)
    examples = [data.example(pair) for pair in evenly_spread(data.listed(*wanted), config["limit"])]
    pictures = [(torch.from_numpy(example.normalized()), example.labels) for example in examples]
    metrics: list[Any] = [*build_metrics(model).values()]
    with torch.inference_mode():
        for image, labels in pictures:
            found = model.labels(model.maps(image))
            for metric in metrics:
                metric.update(found, labels)
    results = {name: float(value) for metric in metrics for name, value in metric.compute().items()}
    turned = measure_turned(model, pictures)
    shown = {f"{name} that turns and mirrors change": turned[name] for name in ("pixels", "objects") if name in turned}
    show(config, f"{len(pictures)} pictures", results | shown, NAMES)
    return content(config, pictures=len(pictures), results=results, turned=turned)
