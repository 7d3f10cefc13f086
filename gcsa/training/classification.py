"""What a run needs to know about images and classes."""

from pathlib import Path
from typing import Any

import torch

from gcsa.data import create_datamodule
from gcsa.evaluation import count_flops, summarize
from gcsa.training.classifier import Classifier
from gcsa.training.export_weights import save_pretrained_timm

MODULE = Classifier


def build_data(cfg: dict[str, Any]) -> Any:
    """The data module of `cfg["data"]`, which has read nothing yet. Raises ValueError for options it refuses."""
    if "upsample" in cfg["model"]:
        raise ValueError(f"model={cfg['model']['name']} reads text lines: choose data=lines")
    try:
        data = create_datamodule(seed=cfg["seed"], **cfg["data"])
    except TypeError as error:
        raise ValueError(f"data={cfg['data']['name']} does not take these options: {error}") from error
    if cfg["monitor"]["metric"] in ("val/cer", "val/wer"):
        raise ValueError(f"monitor.metric={cfg['monitor']['metric']} is of text: choose val/accuracy or val/loss")
    if cfg["monitor"]["metric"] == "val/auroc" and data.num_classes != 2:
        raise ValueError(f"monitor.metric=val/auroc needs two classes, but {data.name} has {data.num_classes}")
    return data


def build_module(cfg: dict[str, Any], data: Any) -> Classifier:
    """The classifier of `cfg`, sized for `data`; `img_size: auto` becomes the data's.

    Raises ValueError for arguments the model refuses and for an image size that would break its equivariance.
    """
    model = dict(cfg["model"])
    if model.get("img_size") == "auto":
        model["img_size"] = data.image_size
    optimizer = dict(cfg["optimizer"])
    classifier = Classifier(
        model=model,
        schedule=optimizer.pop("schedule"),
        optimizer=optimizer,
        num_classes=data.num_classes,
        in_chans=data.in_chans,
        label_smoothing=cfg["label_smoothing"],
        compile=cfg["compile"],
    )
    check_input_size = getattr(classifier.model, "check_input_size", None)
    if callable(check_input_size):
        check_input_size(data.image_size, data.image_size)
    return classifier


def export(classifier: Classifier, data: Any, folder: Path) -> str:
    """Writes the weights into `folder`; returns how timm names them."""
    side = data.image_size
    preprocessing = dict(input_size=(data.in_chans, side, side), mean=tuple(data.mean), std=tuple(data.std))
    return f"local-dir:{save_pretrained_timm(classifier.model, folder, **preprocessing)}"


def count(classifier: Classifier, data: Any) -> int:
    """FLOPs of one image."""
    return count_flops(classifier.model, torch.zeros(data.in_chans, data.image_size, data.image_size))


def measure(
    classifier: Classifier, data: Any, scores: dict[str, float], output_dir: Path
) -> tuple[dict[str, Any], dict[str, str]]:
    """What the best model reaches beyond the `scores` of the test loop, and lines for the screen."""
    summary = summarize(classifier.model, data, output_dir)
    error = summary["invariance_error"]
    lines = {
        "test accuracy": f"{scores['test/accuracy']:.4f}",
        "invariance error": f"{error:.1e}",
        "figure": str(summary["figure"]),
    }
    return {"invariance_error": error}, lines
