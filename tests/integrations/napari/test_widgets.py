"""The widgets in a window of napari: in an environment with it and pytest-qt, on a display with OpenGL (Xvfb has both), by
`pytest -o filterwarnings=default tests/integrations/napari`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("napari")
pytest.importorskip("pytestqt")

from gcsa.integrations.napari.embedding import embed_objects
from gcsa.integrations.napari.widgets import AuditWidget, EmbedWidget, SegmentWidget, Work, plane
from gcsa.tasks import load
from gcsa.weights import save_classifier
from tests.integrations.napari.test_embedding import classifier, scene
from tests.integrations.napari.test_turning import PICTURE, segmenter

pytestmark = pytest.mark.filterwarnings("ignore")  # of napari's own libraries


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return segmenter().save_pretrained(tmp_path / "weights")


@pytest.fixture
def docked(make_napari_viewer: Any) -> Callable[[type[Work], Path], Any]:
    """A widget in a window with an image of pixels of half a micrometre."""

    def dock(kind: Any, weights: Path) -> Any:
        viewer = make_napari_viewer()
        viewer.add_image(PICTURE, name="nuclei", scale=(0.5, 0.5), translate=(3, 4), units="um")
        widget = kind(viewer)
        viewer.window.add_dock_widget(widget)
        widget.weights.own.value = weights
        return widget

    return dock


def test_segment(docked: Any, weights: Path, qtbot: Any) -> None:
    widget = docked(SegmentWidget, weights)
    widget.button.native.click()
    assert not widget.button.enabled
    qtbot.waitUntil(lambda: widget.worker is None, timeout=60_000)
    layer = widget.viewer.layers["nuclei objects"]
    expected = load(weights).predict(PICTURE)
    assert np.array_equal(layer.data > 0, expected.labels > 0)
    assert (layer.scale.tolist(), layer.translate.tolist()) == ([0.5, 0.5], [3, 4])
    table = layer.features
    assert table["index"].tolist() == list(range(1, layer.data.max() + 1))
    assert np.allclose(table["area_um2"], table["area"] / 4)
    assert widget.status.value == f"{len(table)} objects"
    widget.prob_thresh.value = 0.95
    widget.run()
    qtbot.waitUntil(lambda: widget.worker is None, timeout=60_000)
    assert len(widget.viewer.layers[-1].features) < len(table)


def test_what_is_wrong_is_said(docked: Any, weights: Path, qtbot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("gcsa.integrations.napari.widgets.show_error", told.append)
    widget = docked(SegmentWidget, weights.parent / "nothing")
    widget.run()
    qtbot.waitUntil(lambda: widget.worker is None, timeout=60_000)
    assert "nothing" in widget.status.value
    assert told == [widget.status.value]
    assert widget.button.enabled
    widget.viewer.layers.clear()
    widget.run()
    assert widget.status.value == "open an image first"


def test_audit(docked: Any, weights: Path, qtbot: Any) -> None:
    widget = docked(AuditWidget, weights)
    widget.degrees.value = 180
    widget.degrees.value = 30  # while the first runs
    widget.degrees.value = 270
    qtbot.waitUntil(lambda: widget.worker is None, timeout=60_000)
    assert widget.status.value.startswith("270 degrees: 0 of 2,080 pixels and 0 of")
    names = ["nuclei", "nuclei rotated", "nuclei objects upright", "nuclei changed"]
    assert [layer.name for layer in widget.viewer.layers] == names
    assert not widget.viewer.layers["nuclei changed"].data.any()
    assert np.array_equal(widget.viewer.layers["nuclei rotated"].data, np.rot90(PICTURE, 3))
    widget.degrees.value = 30
    qtbot.waitUntil(lambda: widget.worker is None, timeout=60_000)
    assert [layer.name for layer in widget.viewer.layers] == names
    assert widget.viewer.layers["nuclei changed"].data.any()


def test_embed(make_napari_viewer: Any, tmp_path: Path, qtbot: Any) -> None:
    picture, numbers = scene()
    viewer = make_napari_viewer()
    viewer.add_image(picture, name="cells")
    widget = EmbedWidget(viewer)
    viewer.window.add_dock_widget(widget)
    widget.run()
    assert widget.status.value == "find the objects first: Plugins > gcsa > Segment"
    table = {"index": [1, 2, 4, 5], "area": [42.0, 88.0, 130.0, 49.0]}  # 6 was painted afterwards
    layer = viewer.add_labels(numbers, name="objects", features=table)
    save_classifier(classifier().network, tmp_path / "weights", input_size=(1, 16, 16), mean=(0.5,), std=(0.5,))
    widget.weights.own.value = tmp_path / "weights"
    widget.components.value = 2
    for _ in range(2):  # the second takes the place of the first
        widget.button.native.click()
        qtbot.waitUntil(lambda: widget.worker is None, timeout=60_000)
        expected, share = embed_objects(classifier(), picture, numbers, 0, 2)
        assert list(layer.features) == ["index", "area", "gcsa_1", "gcsa_2"]
        assert layer.features["index"].tolist() == [1, 2, 4, 5, 6]
        assert layer.features["area"].tolist()[:4] == table["area"]
        assert np.allclose(layer.features["gcsa_2"], expected["gcsa_2"])
        assert widget.status.value == f"5 objects, 2 components with {share:.0%} of the variance"
    light = [layer.colormap.map(number)[:3].sum() for number in expected["index"]]
    assert np.array_equal(np.argsort(light), np.argsort(expected["gcsa_1"]))


def test_the_slice_that_is_shown(make_napari_viewer: Any) -> None:
    viewer = make_napari_viewer()
    stack = np.random.default_rng(0).integers(0, 256, (3, 20, 30), dtype=np.uint8)
    layer = viewer.add_image(stack, scale=(2, 0.5, 0.25))
    viewer.dims.set_point(0, 4)
    picture, place = plane(layer, viewer)
    assert np.array_equal(picture, stack[2])
    assert place["scale"].tolist() == [0.5, 0.25]
