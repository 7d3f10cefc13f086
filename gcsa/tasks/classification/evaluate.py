"""One evaluation, from a configuration (conf/evaluate.yaml) to the table on the screen and the figures on disk."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_int
from gcsa.evaluation.figures import (
    attention_figure,
    mistakes_figure,
    polar_figure,
    reliability_figure,
    save,
    shift_figure,
)
from gcsa.evaluation.rotations import Curve
from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.load import load_model
from gcsa.tasks.classification.report import measure, table
from gcsa.tasks.classification.sample import draw_sample, first_images, pick
from gcsa.tasks.evaluating import check_config, chosen_device
from gcsa.training.task import data_options

RESULT = "evaluation.json"


def read_turns(folder: str) -> tuple[str, Curve]:
    """Name and turn curve of an earlier evaluation in `folder`.

    Raises FileNotFoundError if there is none and ValueError if it is damaged.
    """
    path = Path(folder) / RESULT
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path} to overlay: name the output_dir of an earlier evaluation")
    try:
        content = json.loads(path.read_text())
        return content["label"], Curve(**content["rotation"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}): evaluate that model again") from error


def evaluate(config: dict[str, Any], output_dir: Path) -> dict[str, Any]:
    """Measures `config["model"]` on `config["data"]`, prints the table, writes PNG figures into `output_dir`.

    Returns what was found as JSON-ready values. Raises ValueError or FileNotFoundError, before any data is read, for a
    configuration, a model or an overlay that cannot work.
    """
    check_config(config, ("test", "val", "train"), options=("curve_images", "cyclic", "copies", "overlay"))
    for key in ("curve_images", "copies"):
        check_int(key, config[key], 1)
    overlay = [read_turns(folder) for folder in config["overlay"]]
    torch.manual_seed(config["seed"])
    data = create_datamodule(**data_options(config))
    model, trained = load_model(str(config["model"]), data)
    model = model.to(chosen_device(config))
    label = str(config["label"] or getattr(model, "pretrained_cfg", {}).get("architecture", config["model"]))
    labels = [label, *(name for name, _ in overlay)]
    if twice := [name for name in labels if labels.count(name) > 1]:
        raise UserError(f"two curves of one figure are called {twice[0]}: set another label= in one of the evaluations")

    data.prepare_data()
    options = {key: config[key] for key in ("split", "limit", "curve_images", "cyclic", "copies")}
    report = measure(model, data, **options)
    image = first_images(draw_sample(data, config["split"], 1), 1)[0]
    shifts = {"x (to the right)": report.shift_x, "y (down)": report.shift_y}
    figures = {
        "rotation": polar_figure({label: report.rotation, **dict(overlay)}),
        "calibration": reliability_figure({label: report.reliability}, "How sure and how right answers are"),
        "shifts": shift_figure(shifts, f"{label} when the images shift"),
        "attention": attention_figure(model, image),
    }
    if report.mistakes:
        wrong = pick(draw_sample(data, config["split"], config["limit"]), [m.image for m in report.mistakes])
        mean, std = (torch.tensor(values)[:, None, None] for values in (data.mean, data.std))
        pictures, heading = wrong * std + mean, f"The worst mistakes of {label}"  # in their own colours
        figures["mistakes"] = mistakes_figure(pictures, report.mistakes, data.class_names, heading)
    paths = {key: str(save(figure, output_dir / f"{key}.png")) for key, figure in figures.items() if figure}
    title = f"{label} on {config['data']['name']}, {config['split']} split"
    console = Console()
    console.print(table(report, model, title, trained))
    console.print("\n".join(paths.values()), highlight=False, soft_wrap=True)
    if "attention" not in paths:
        console.print("attention maps: not available for this model")
    identity = {"model": str(config["model"]), "label": label, "trained": trained}
    where = {"data": config["data"]["name"], "split": config["split"]}
    return identity | where | asdict(report) | {"figures": paths}
