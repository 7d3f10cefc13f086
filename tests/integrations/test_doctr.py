"""docTR makes pages upright by our orientation."""

from pathlib import Path

import matplotlib
import numpy as np
import pytest

from gcsa.integrations import doctr
from gcsa.integrations.doctr import PageOrientation
from gcsa.tasks.recognition.data.typeset import set_lines
from gcsa.tasks.recognition.pages.orientation import Orientation

FONT = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSerif.ttf"
TEXTS = [f"{word} ces faits paroissent incontestables" for word in ("cerveau", "Tous", "qui", "si", "nous", "peine")]


@pytest.fixture(scope="module")
def page() -> np.ndarray:
    sheet = np.full((600, 600, 3), 230, np.uint8)
    for i, (_, image) in enumerate(set_lines(TEXTS, [FONT], seed=1)):
        small = np.asarray(image.resize((image.width // 2, image.height // 2)).convert("L"))[:, :520]
        top = 40 + 90 * i
        sheet[top : top + small.shape[0], 40 : 40 + small.shape[1]] = np.minimum(small, 230)[..., None]
    return sheet


def test_what_doctr_is_told(page: np.ndarray) -> None:
    scans = [np.rot90(page, k).copy() for k in range(4)]
    indices, angles, probabilities = PageOrientation()([*scans, np.full_like(page, 230)])
    assert (indices, angles) == ([0, 1, 2, 3, 0], [0, -90, 180, 90, 0])
    assert min(probabilities[:4]) > 0.9
    assert np.ptp(probabilities[:4]) < 1e-3
    assert probabilities[4] == pytest.approx(0.25)


def test_a_doubtful_page_is_left(monkeypatch: pytest.MonkeyPatch, page: np.ndarray) -> None:
    found = Orientation(180, (0.05, 0.03, 0.89, 0.03), False)
    monkeypatch.setattr(doctr, "find_orientation", lambda grey: found)
    assert PageOrientation()([page]) == [[0], [0], [0.89]]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("quarter_turns", range(4))
def test_doctr_straightens_the_page(quarter_turns: int, page: np.ndarray) -> None:
    """Its own code, with the ink of the page in the place of the map of its detection network."""
    pytest.importorskip("doctr")
    from doctr.models.predictor.base import _OCRPredictor

    model = _OCRPredictor(
        assume_straight_pages=False, straighten_pages=True, disable_page_orientation=True, disable_crop_orientation=True
    )
    model.page_orientation_predictor = PageOrientation()
    scan = np.rot90(page, quarter_turns).copy()
    ink = 255 * (scan[..., :1] < 150).astype(np.uint8)
    (straight,), _ = model._straighten_pages([scan], [ink])
    height, width = straight.shape[:2]  # at most a pixel less, which it takes for padding
    inside = np.s_[20 : height - 20, 20 : width - 20]
    to_upright, to_upside_down = (
        np.abs(straight.astype(int)[inside] - other[:height, :width][inside]).mean()
        for other in (page, page[::-1, ::-1])
    )
    assert to_upright < to_upside_down / 2
