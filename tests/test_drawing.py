"""benchmarks/report/drawing.py: the figures that only the documents show."""

from itertools import pairwise

import pytest

from benchmarks.report import drawing


def test_cost_figure_has_one_bubble_a_system_with_an_area_as_its_parameters():
    axes = drawing.cost_figure({"a": (1e6, 0.9, 100), "b": (1e8, 0.95, 400)}, "title").axes[0]
    small, large, *key = axes.collections
    assert small.get_offsets()[0].tolist() == pytest.approx([1e6, 10])
    assert large.get_sizes()[0] == pytest.approx(4 * small.get_sizes()[0])
    assert [bubble.get_sizes()[0] for bubble in key] == [small.get_sizes()[0], large.get_sizes()[0]]
    assert axes.yaxis_inverted()


def test_cost_figure_keeps_the_names_of_near_points_apart():
    axes = drawing.cost_figure({name: (1e6, 0.9 + i / 1e5, 100) for i, name in enumerate("abc")}, "title").axes[0]
    names = [text.get_text() for text in axes.texts]
    heights = sorted(text.xyann[1] for text in axes.texts)
    assert sorted(names) == ["a, 90.0%", "b, 90.0%", "c, 90.0%"]
    assert min(high - low for low, high in pairwise(heights)) > 0.04


def test_scaling_figure_draws_rising_tokens_on_logarithmic_axes():
    axes = drawing.scaling_figure({"a": {64: 2.0, 16: 0.5}}, "title").axes[0]
    assert list(axes.lines[0].get_xdata()) == [16, 64]
    assert list(axes.lines[0].get_ydata()) == [0.5, 2.0]
    assert axes.get_xscale() == axes.get_yscale() == "log"


def test_learning_figure_draws_errors_in_percent_by_rising_time():
    axes = drawing.learning_figure({"a": {3.0: 0.75, 1.5: 0.5}}, "title").axes[0]
    assert list(axes.lines[0].get_xdata()) == [1.5, 3]
    assert list(axes.lines[0].get_ydata()) == [50, 25]
    assert axes.get_yscale() == "log"
    assert list(axes.get_yticks()) == [25, 30, 40, 50]


def test_share_figure_has_ticks_where_its_points_are():
    axes = drawing.share_figure({"a": {1.0: 0.86, 0.03: 0.79}}, "title", "validation error").axes[0]
    assert list(axes.get_xticks()) == [3, 100]
    assert list(axes.get_yticks()) == [15, 20]
    assert axes.get_ylabel() == "validation error"


def test_share_figure_draws_errors_in_percent_by_rising_share():
    line = drawing.share_figure({"a": {1.0: 0.9, 0.1: 0.5}}, "title").axes[0].lines[0]
    assert list(line.get_xdata()) == [10, 100]
    assert list(line.get_ydata()) == [50, pytest.approx(10)]


def test_angle_figure_draws_percent_by_angle_and_marks_the_exact_ones():
    shares = {0.0: 0.0, 45.0: 0.25, 90.0: 0.0}
    line, exact = drawing.angle_figure(shares, "title").axes[0].lines
    assert list(line.get_xdata()) == [0, 45, 90]
    assert list(line.get_ydata()) == [0, 25, 0]
    assert list(exact.get_xdata()) == [0, 90]
