"""Figures as matplotlib objects; `save` writes them as PNG. Nothing here touches pyplot's global state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor, nn

from gcsa._utils.atomic import replacing
from gcsa._utils.errors import UserError
from gcsa.evaluation.attention import Pixel, attention_maps, striking_pixel
from gcsa.evaluation.metrics import Mistake, Reliability
from gcsa.evaluation.relative_error import relative_error
from gcsa.evaluation.rotations import Curve

COLOURS = ("#0b6e99", "#d9480f", "#5f3dc4", "#2b8a3e", "#a61e4d", "#495057", "#e09f00", "#74c0fc")
MARKERS = "os^Dv<P*"
MAPS = 4


def save(figure: Figure, path: str | Path) -> Path:
    """Writes a PNG, whole or not at all, and returns its path. Raises OSError and ValueError where it cannot."""
    with replacing(path) as part:
        FigureCanvasAgg(figure).print_png(str(part))
    return Path(path)


def polar_figure(curves: Mapping[str, Curve], title: str = "Accuracy when the images rotate") -> Figure:
    """Accuracy (radius, percent) against the rotation (angle, degrees), one closed line a model."""
    figure = Figure(figsize=(6.4, 6.6), dpi=150, layout="constrained")
    axes: Any = figure.add_subplot(projection="polar")
    lowest = 100 * min(min(curve.accuracy) for curve in curves.values())
    step = next((step for step in (2.5, 5, 10) if lowest > 100 - 5 * step), 25.0)
    centre = max(0.0, step * (lowest // step - 1))
    for colour, (name, curve) in zip(colours(len(curves)), curves.items(), strict=True):
        angles = np.radians([*curve.positions, curve.positions[0]])
        values = 100 * np.array([*curve.accuracy, curve.accuracy[0]])
        label = f"{name}: mean {values[:-1].mean():.1f} %, worst {values.min():.1f} %"
        axes.plot(angles, values, color=colour, lw=2, label=label)
    axes.set_ylim(centre, 100)
    axes.set_yticks(np.arange(centre + step, 100 + step / 2, step))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    axes.set_rlabel_position(22.5)
    for tick in axes.get_yticklabels():
        tick.set(fontsize=8, color="#495057", bbox=dict(facecolor="white", edgecolor="none", alpha=0.8, pad=1))
    axes.set_xticks(np.radians(np.arange(0, 360, 45)))
    axes.grid(color="#dee2e6")
    axes.spines["polar"].set_color("#adb5bd")
    images = next(iter(curves.values())).images
    subtitle = f"angle: rotation counter-clockwise; radius: accuracy, {centre:g} to 100 %; {images} images"
    axes.set_title(subtitle, fontsize=9, color="#495057", pad=14)
    figure.suptitle(title, fontsize=13)
    figure.legend(loc="outside lower center", frameon=False, fontsize=10)
    return figure


def shift_figure(curves: Mapping[str, Curve], title: str = "When the images shift") -> Figure:
    """Accuracy in percent and relative logit change against the shift in pixels, one line a direction or model."""
    figure = Figure(figsize=(9, 4.2), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2)
    for i, (colour, (name, curve)) in enumerate(zip(colours(len(curves)), curves.items(), strict=True)):
        style: dict[str, Any] = dict(color=colour, lw=2, marker=MARKERS[i % len(MARKERS)], ms=4, label=name)
        left.plot(curve.positions, 100 * np.array(curve.accuracy), **style)
        right.plot(curve.positions, curve.logit_change, **style)
    left.set_ylabel("accuracy [%]")
    right.set_ylabel("logit change, relative")
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.set_xlabel("shift [pixels]")
        axes.grid(color="#dee2e6")
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(title, fontsize=13)
    return figure


def reliability_figure(systems: Mapping[str, Reliability], title: str) -> Figure:
    """Accuracy against the probability of the chosen class, both in percent, one line a system. The area of a point grows
    with its images. A calibrated system follows the diagonal."""
    figure = Figure(figsize=(5.6, 5.6), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0, 100], [0, 100], color="#adb5bd", lw=1, ls="--")
    for colour, (name, bins) in zip(colours(len(systems)), systems.items(), strict=True):
        probability, accuracy = 100 * np.array(bins.probability), 100 * np.array(bins.accuracy)
        images = np.array(bins.images)
        share = images / images.sum()
        label = f"{name}: expected calibration error {share @ abs(accuracy - probability):.1f} %"
        axes.plot(probability, accuracy, color=colour, lw=1.5, label=label)
        axes.scatter(probability, accuracy, s=10 + 300 * share, color=colour, alpha=0.6)
    axes.set(xlim=(0, 102), ylim=(0, 102), aspect="equal")
    axes.set_xlabel("probability of the chosen class [%]")
    axes.set_ylabel("of these answers, right [%]")
    axes.grid(color="#dee2e6")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", frameon=False, fontsize=9)
    figure.suptitle(title, fontsize=13)
    return figure


def attention_figure(model: nn.Module, image: Tensor, query: Pixel | None = None) -> Figure | None:
    """Attention of one pixel's position to all others, for an image (C, H, H) and its rotation by 90 degrees, by layer.

    `query` is a row and a column; by default the pixel that `striking_pixel` chooses. At most four layers, evenly chosen.
    The label below a layer is the difference between the second map, rotated back, and the first. None for a model whose
    attention cannot be read.
    """
    query = striking_pixel(image) if query is None else query
    rotated_query = (image.shape[-1] - 1 - query[1], query[0])
    rotated = image.rot90(1, (-2, -1))
    maps, rotated_maps = attention_maps(model, image, query), attention_maps(model, rotated, rotated_query)
    if not maps:
        return None
    chosen = sorted({round(i) for i in np.linspace(0, len(maps) - 1, min(MAPS, len(maps)))})
    figure = Figure(figsize=(2.1 * (1 + len(chosen)), 5.2), dpi=150, layout="constrained")
    grid = figure.subplots(2, 1 + len(chosen), squeeze=False)
    rows = ((image, query, maps), (rotated, rotated_query, rotated_maps))
    for axes, (picture, (row, column), layers) in zip(grid, rows, strict=True):
        axes[0].imshow(_picture(picture), cmap="gray")
        axes[0].plot(column, row, "o", mfc="none", mec="#d9480f", mew=2, ms=11)
        for panel, layer in zip(axes[1:], chosen, strict=True):
            side = picture.shape[-1]
            top = max(float(maps[layer].max()), float(rotated_maps[layer].max()))
            panel.imshow(layers[layer].numpy(), cmap="magma", vmin=0, vmax=top, extent=(0, side, side, 0))
            panel.add_patch(_cell(row, column, side, layers[layer].shape))
        for panel in axes:
            panel.set(xticks=[], yticks=[])
    for panel, layer in zip(grid[0][1:], chosen, strict=True):
        panel.set_title(f"layer {layer + 1}", fontsize=10)
    for panel, layer in zip(grid[1][1:], chosen, strict=True):
        change = relative_error(rotated_maps[layer].rot90(-1), maps[layer])
        panel.set_xlabel(f"rotated back,\ndiffers by {change:.0e}", fontsize=9)
    grid[0][0].set_title("image, query", fontsize=10)
    grid[0][0].set_ylabel("upright")
    grid[1][0].set_ylabel("rotated by 90\N{DEGREE SIGN}")
    figure.suptitle("Attention of the marked position, mean over heads", fontsize=12)
    return figure


def mistakes_figure(images: Tensor, mistakes: Sequence[Mistake], names: Sequence[str], title: str) -> Figure:
    """Misclassified images (M, C, H, W), each with its class, the class that it was taken for, and the probability of that.

    Raises ValueError where there are none.
    """
    if not mistakes:
        raise UserError(
            "there are no mistakes to show: draw this figure where there is one or more", "figure.no_mistakes"
        )
    columns = 6
    rows = -(-len(mistakes) // columns)
    figure = Figure(figsize=(1.6 * columns, 2.1 * rows + 0.5), dpi=150, layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel in panels:
        panel.axis("off")
    for panel, image, mistake in zip(panels, images, mistakes, strict=False):  # the last row may not be full
        panel.imshow(_picture(image), cmap="gray")
        taken = f"{names[mistake.taken_for]}, {mistake.probability:.0%}"
        panel.set_title(
            f"{names[mistake.label]},\ntaken for\n{taken}", fontsize=8, parse_math=False
        )  # names are users'
    figure.suptitle(title, fontsize=11)
    return figure


def colours(count: int) -> list[str]:
    """A colour for each of `count` lines; they repeat."""
    return [COLOURS[i % len(COLOURS)] for i in range(count)]


def _cell(row: int, column: int, side: int, shape: tuple[int, ...]) -> Rectangle:
    height, width = side / shape[0], side / shape[1]
    corner = (column // width * width, row // height * height)
    return Rectangle(corner, width, height, fill=False, edgecolor="white", linewidth=2)


def _picture(image: Tensor) -> np.ndarray[Any, Any]:
    low, high = image.min(), image.max()
    scaled = ((image - low) / (high - low).clamp_min(1e-9)).cpu().numpy()
    return scaled.transpose(1, 2, 0) if len(scaled) == 3 else scaled[0]
