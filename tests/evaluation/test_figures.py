import matplotlib.image
import pytest
import timm
import torch

from gcsa.evaluation.figures import (
    attention_figure,
    mistakes_figure,
    polar_figure,
    reliability_figure,
    save,
    shift_figure,
)
from gcsa.evaluation.metrics import Mistake, Reliability
from gcsa.evaluation.rotations import ANGLES, Curve
from tests.errors import raises

CURVE = Curve(ANGLES, tuple(0.9 + 0.001 * i for i in range(48)), (0.0,) * 48, 100)


def test_polar_figure_closes_each_line_and_names_each_model(tmp_path):
    figure = polar_figure({"one": CURVE, "two": Curve(ANGLES, (0.5,) * 48, (0.0,) * 48, 100)})
    first, second = figure.axes[0].lines
    assert first.get_xdata()[-1] == first.get_xdata()[0] == 0
    assert first.get_ydata()[0] == first.get_ydata()[-1] == pytest.approx(90)
    assert "two: mean 50.0 %, worst 50.0 %" in second.get_label()
    assert figure.axes[0].get_ylim()[0] < 50
    path = save(figure, tmp_path / "turns.png")
    assert matplotlib.image.imread(path).shape[:2] == (990, 960)
    assert [p.name for p in tmp_path.iterdir()] == ["turns.png"]


@pytest.mark.parametrize(("accuracy", "centre"), [(1.0, 97.5), (0.99, 95), (0.0, 0), (0.62, 50)])
def test_every_accuracy_stays_on_the_polar_plot(accuracy, centre):
    axes = polar_figure({"one": Curve(ANGLES, (accuracy,) * 48, (0.0,) * 48, 1)}).axes[0]
    assert axes.get_ylim() == (centre, 100)


def test_shift_figure_draws_accuracy_in_percent_and_change():
    left, right = shift_figure({"x": Curve((-1, 0, 1), (0.5, 1, 0.75), (0.2, 0, 0.3), 4)}).axes
    assert left.lines[0].get_ydata().tolist() == [50, 100, 75]
    assert list(right.lines[0].get_ydata()) == [0.2, 0, 0.3]


def test_reliability_figure_draws_percent_over_percent():
    bins = Reliability((30, 10), (0.6, 0.9), (0.5, 1.0))
    axes = reliability_figure({"a": bins}, "title").axes[0]
    diagonal, line = axes.lines
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata())
    assert line.get_xdata().tolist() == pytest.approx([60, 90])
    assert line.get_ydata().tolist() == pytest.approx([50, 100])
    assert line.get_label() == "a: expected calibration error 10.0 %"
    large, small = axes.collections[0].get_sizes()
    assert large > small


def test_mistakes_figure_shows_each_image_with_both_classes():
    mistakes = [Mistake(i, 0, 1, 0.75) for i in range(7)]
    panels = mistakes_figure(torch.rand(7, 1, 5, 5), mistakes, ("cat", "dog"), "title").axes
    assert [len(panel.images) for panel in panels] == [1] * 7 + [0] * 5
    assert panels[0].get_title() == "cat,\ntaken for\ndog, 75%"
    with raises("figure.no_mistakes"):
        mistakes_figure(torch.rand(0, 1, 5, 5), [], ("cat", "dog"), "title")


def test_attention_figure_shows_maps_that_turn_with_the_image():
    model = timm.create_model("gcsa_tiny", group="c4", num_classes=10, in_chans=1)
    figure = attention_figure(model, torch.randn(1, 28, 28), (3, 20))
    upright, turned = (figure.axes[i].images[0].get_array() for i in (1, 5))
    assert len(figure.axes) == 2 * (1 + len(model.stages))
    assert abs(upright - torch.from_numpy(turned.data.copy()).rot90(-1).numpy()).max() < 1e-5
    assert abs(upright - turned).max() > 1e-3


def test_no_attention_figure_for_a_resnet():
    assert attention_figure(timm.create_model("resnet10t", in_chans=1), torch.randn(1, 32, 32)) is None


def test_a_figure_that_cannot_be_written_leaves_nothing(tmp_path):
    with pytest.raises(OSError, match="missing"):
        save(polar_figure({"one": CURVE}), tmp_path / "missing" / "turns.png")
    (tmp_path / "turns.png").mkdir()
    with raises("file.is_folder"):
        save(polar_figure({"one": CURVE}), tmp_path / "turns.png")
    assert [p.name for p in tmp_path.iterdir()] == ["turns.png"]
