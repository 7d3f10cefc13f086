"""The skew of a page from its ink."""

import numpy as np
import pytest
from PIL import Image

from gcsa.tasks.recognition.pages.page_skew import page_skew
from tests.tasks.recognition.test_orientation import printed_page


def skewed(page: np.ndarray, degrees: float) -> np.ndarray:
    return np.asarray(Image.fromarray(page).rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=230))


@pytest.mark.parametrize("degrees", [-15, -3.3, 0, 1, 8.6, 15])
def test_the_angle_of_lines(degrees: float) -> None:
    page = printed_page()[:, 40:]
    assert page_skew(skewed(page, degrees)) == pytest.approx(degrees, abs=0.2)
    assert page_skew(255 - skewed(page, degrees)) == pytest.approx(degrees, abs=0.2), "white on black"


def test_text_that_runs_downwards() -> None:
    page = np.rot90(printed_page()[:, 40:])
    assert page_skew(skewed(page, 5)) == pytest.approx(5, abs=0.2)


@pytest.mark.parametrize("deviation", [0, 12])
def test_paper_has_none(deviation: int) -> None:
    grain = 220 + np.random.default_rng(0).normal(0, 1, (500, 600)) * deviation
    assert abs(page_skew(grain.clip(0, 255).astype(np.uint8))) < 0.05
