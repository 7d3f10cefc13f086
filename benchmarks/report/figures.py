"""The figures of benchmarks/results/ and of the model cards. Each PNG carries a checksum of its title and numbers, by which `--check` compares."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from PIL import Image

from gcsa.evaluation.figures import polar_figure, reliability_figure, shift_figure
from gcsa.evaluation.metrics import Reliability
from gcsa.evaluation.rotations import Curve

from .card_sections import ANGLE_PICTURE, angle_shares, off_grid_weights
from .drawing import angle_figure, cost_figure, learning_figure, scaling_figure, share_figure
from .results import ROOT, accuracy, entries, load_benchmark, load_timings
from .training import DATA_SETS, few_labels_curves, learning_curves, shares_runs, systems_runs, tested

Plan = tuple[Callable[[Any, str], Figure], dict[Any, Any], str]
"""What draws a figure, with which numbers, under which title."""

CHECKSUM = "numbers-sha256"
"""The PNG text entry."""


def shift_curves(data: str) -> dict[str, Curve]:
    """System to curve of a data set."""
    return {name: Curve(**curve) for name, curve in load_benchmark("shifts")[data]["curves"].items()}


def scaling_lines() -> dict[str, dict[int, float]]:
    """Milliseconds by tokens of attention everywhere, by random features, and to a neighbourhood, on each machine."""
    lines = {
        f"{name}; {machine}": {int(count): row["median_ms"] for count, row in times.items()}
        for machine, content in load_timings("linear", str).items()
        for name, times in content["times by tokens"].items()
    }
    for machine, content in load_timings("neighbourhood", str).items():
        lines[f"neighbourhood of radius 3; {machine}"] = {
            int(key.split()[0]) ** 2: row["tiles"]["median_ms"]
            for key, row in entries(content).items()
            if "positions" in key
        }
    return lines


def plans() -> dict[str, Plan]:
    """Path from the root of the repository to what stands there."""
    angles: dict[str, Plan] = {
        f"weights/{name}/{ANGLE_PICTURE}": (
            angle_figure,
            angle_shares(name),
            f"{name}: answers that change by rotation",
        )
        for name in off_grid_weights()
    }
    return angles | {f"docs/pictures/{name}": plan for name, plan in result_plans().items()}


def result_plans() -> dict[str, Plan]:
    """File name in docs/pictures/ to what stands in it."""
    costs = {name: (run["flops"], accuracy(run), run["parameters"]) for name, run in systems_runs().items()}
    lines = {name: {share: accuracy(run) for share, run in runs.items()} for name, runs in shares_runs().items()}
    mnist, fashion = shift_curves("mnist"), shift_curves("fashion_mnist")
    turns, bins = {}, {}
    for data in ("pcam", "plankton"):
        curves, kept = (tested(f"learning/{data}_long", what) for what in ("turns", "reliability"))
        turns[f"turns_{data}.png"] = (
            polar_figure,
            {name: Curve(**curve) for name, curve in curves.items()},
            f"{DATA_SETS[data]}: accuracy when the test images turn",
        )
        bins[f"calibration_{data}.png"] = (
            reliability_figure,
            {name: Reliability(**each) for name, each in kept.items()},
            f"{DATA_SETS[data]}: how sure and how right",
        )
    few_labels = partial(share_figure, error="validation error")
    return {
        "accuracy_flops.png": (cost_figure, costs, 'Rotated MNIST, 6 epochs but for "same_minutes"'),
        "equivariance_augmentation.png": (share_figure, lines, "Rotated MNIST: equivariance against augmentation"),
        **{
            f"learning_{data}.png": (learning_figure, learning_curves(data), f"Learning {title}")
            for data, title in DATA_SETS.items()
        },
        **{
            f"few_labels_{data}.png": (few_labels, few_labels_curves(data), f"Few labels of {title}")
            for data, title in DATA_SETS.items()
        },
        **turns,
        **bins,
        "scaling.png": (scaling_figure, scaling_lines(), "Attention as the map grows"),
        "shifts_mnist.png": (shift_figure, mnist, "MNIST, digit 1, shifted along x"),
        "shifts_fashion_mnist.png": (shift_figure, fashion, "Fashion-MNIST, trousers, shifted"),
    }


def checksum(numbers: dict[Any, Any], title: str) -> str:
    """SHA-256 of the title and the numbers."""
    return hashlib.sha256(json.dumps([title, numbers], default=asdict).encode()).hexdigest()


def write_figures() -> None:
    """Draws what `outdated_figures` names; where the drawing has changed and no number, delete the figure first."""
    drawn = plans()
    for name in outdated_figures():
        draw, numbers, title = drawn[name]
        draw(numbers, title).savefig(ROOT / name, metadata={CHECKSUM: checksum(numbers, title)})


def drawn_from(path: Path) -> str | None:
    """The checksum that a PNG carries, None where it carries none."""
    with Image.open(path) as image:
        return image.info.get(CHECKSUM)


def outdated_figures() -> list[str]:
    """Paths from the root of the figures that are missing or were drawn from other numbers."""
    outdated = []
    for name, (_, numbers, title) in plans().items():
        path = ROOT / name
        if not path.is_file() or drawn_from(path) != checksum(numbers, title):
            outdated.append(name)
    return outdated
