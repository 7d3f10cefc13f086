"""How the figures of benchmarks/results/ are drawn that no command draws; `report.figures` says with which numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from gcsa.evaluation.figures import MARKERS, colours

MARKED = 50
"""Up to so many points of a line each have a marker."""


def cost_figure(systems: Mapping[str, tuple[float, float, int]], title: str) -> Figure:
    """Test error against FLOPs an image, both logarithmic; better systems stand higher. Each system is a bubble with its name
    and accuracy; the area is proportional to its parameters.

    `systems`: name to (FLOPs, accuracy, parameters).
    """
    figure = Figure(figsize=(9, 5.4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    counts = [parameters for _, _, parameters in systems.values()]
    area = 120 / max(counts)
    label_height = 0.045  # of the axes
    # A logarithm has no 0.
    points = {name: (flops, max(100 * (1 - accuracy), 0.01)) for name, (flops, accuracy, _) in systems.items()}
    for colour, (name, point) in zip(colours(len(systems)), points.items(), strict=True):
        axes.scatter(*point, s=area * systems[name][2], color=colour, alpha=0.6)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(x=0.3, y=0.1)
    axes.invert_yaxis()
    shown = {
        name: axes.transAxes.inverted().transform(axes.transData.transform(point)) for name, point in points.items()
    }
    taken: list[tuple[float, float]] = []
    for name, (x, y) in sorted(shown.items(), key=lambda item: item[1][1]):
        lower = [other for at, other in taken if abs(at - x) < 0.45 and other > y - label_height]
        height = max([y, *(other + label_height for other in lower)])
        taken.append((x, height))
        axes.annotate(
            f"{name}, {systems[name][1]:.1%}",
            points[name],
            xytext=(x + (0.02 if x < 0.6 else -0.02), height),
            textcoords="axes fraction",
            ha="left" if x < 0.6 else "right",
            va="center",
            fontsize=8,
            arrowprops=dict(arrowstyle="-", color="#adb5bd", lw=0.8),
        )
    for count in sorted({min(counts), max(counts)}):
        axes.scatter([], [], s=area * count, color="#868e96", alpha=0.6, label=f"{count / 1e3:,.0f}k parameters")
    axes.set_axisbelow(True)
    axes.set_xlabel("FLOPs an image (a multiply-add is two)")
    axes.set_ylabel("test error [%]")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:g}"[0] in "25" else "")
    axes.grid(color="#dee2e6")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    figure.suptitle(title, fontsize=13)
    return figure


def share_figure(systems: Mapping[str, Mapping[float, float]], title: str, error: str = "test error") -> Figure:
    """Test error, or another `error`, in percent against the share of the training set, both logarithmic, one line a system."""
    errors = {
        name: {100 * share: 100 * (1 - accuracy) for share, accuracy in sorted(line.items())}
        for name, line in systems.items()
    }
    figure, axes = _lines(errors, title, "share of the training set", error)
    _error_axis(axes)
    axes.set_xscale("log")
    axes.set_xticks(sorted({share for line in errors.values() for share in line}))
    axes.xaxis.set_major_formatter(_percent)
    axes.xaxis.set_minor_formatter("")
    return figure


def learning_figure(systems: Mapping[str, Mapping[float, float]], title: str) -> Figure:
    """Validation error in percent, logarithmic, against computing time in epochs of a ViT, one line a system."""
    errors = {
        name: {cost: 100 * (1 - accuracy) for cost, accuracy in sorted(line.items())} for name, line in systems.items()
    }
    figure, axes = _lines(errors, title, "time, in epochs of the ViT", "validation error")
    _error_axis(axes)
    axes.set_xlim(left=0)
    return figure


def angle_figure(shares: Mapping[float, float], title: str) -> Figure:
    """The share of answers that change, in percent, against the angle in degrees; multiples of 90 degrees, exact on the pixel
    grid, are marked."""
    figure = Figure(figsize=(6.4, 2.8), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    percents = {angle: 100 * share for angle, share in shares.items()}
    exact = [angle for angle in percents if angle % 90 == 0]
    line, mark = colours(2)
    axes.plot(list(percents), list(percents.values()), color=line, lw=1.5, marker="o", ms=3)
    axes.plot(exact, [percents[angle] for angle in exact], color=mark, ls="", marker="D", ms=6, label="exact angles")
    axes.set_xticks(range(0, 361, 45))
    axes.set_ylim(bottom=0, top=max(1, 1.15 * max(percents.values())))
    axes.set_xlabel("rotation [degrees]")
    axes.set_ylabel("answers that change")
    axes.yaxis.set_major_formatter(_percent)
    axes.grid(color="#dee2e6")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    for artist in axes.lines:
        artist.set_clip_on(False)  # a point at 0 % is whole
    figure.legend(loc="outside lower center", frameon=False, fontsize=9)
    figure.suptitle(title, fontsize=11)
    return figure


def scaling_figure(systems: Mapping[str, Mapping[int, float]], title: str) -> Figure:
    """Milliseconds against tokens, both logarithmic, one line a system."""
    figure, axes = _lines(
        {name: dict(sorted(line.items())) for name, line in systems.items()}, title, "tokens", "forward [ms]"
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    return figure


def _lines(systems: Mapping[str, Mapping[Any, float]], title: str, across: str, upwards: str) -> tuple[Figure, Any]:
    """A figure and its axes: for each system its points, in their order, joined by a line."""
    figure = Figure(figsize=(7, 5.4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for i, (colour, (name, line)) in enumerate(zip(colours(len(systems)), systems.items(), strict=True)):
        marker = MARKERS[i % len(MARKERS)]
        style: dict[str, Any] = dict(color=colour, lw=2, marker=marker, markersize=5, markevery=1 + len(line) // MARKED)
        axes.plot(list(line), list(line.values()), label=name, **style)
    axes.set_xlabel(across)
    axes.set_ylabel(upwards)
    axes.grid(color="#dee2e6")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", frameon=False, fontsize=9, ncols=2)  # never over a line
    figure.suptitle(title, fontsize=13)
    return figure, axes


def _percent(value: float, _: object = None) -> str:
    return f"{value:g} %"


def _error_axis(axes: Any) -> None:
    """Makes the upright axis logarithmic, with ticks at round numbers of percent, fewer where it is long."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    digits = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8) if high < 10 * low else (1, 1.5, 2, 3, 5, 7)
    ticks = [digit * decade for decade in (0.1, 1, 10) for digit in digits]
    axes.set_yticks([tick for tick in ticks if low <= tick <= high])
    axes.yaxis.set_major_formatter(_percent)
    axes.yaxis.set_minor_formatter("")
