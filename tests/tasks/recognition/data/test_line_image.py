from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gcsa.tasks.recognition.data.line_image import MAX_WIDTH, Line, fit_line, nearest_width, read_line, widths_of
from tests.errors import raises


def page(height: int = 40, width: int = 100, paper: int = 220, black: int = 20) -> np.ndarray:
    """Paper with a block of ink, a fifth of the area."""
    grey = np.full((height, width), paper, np.uint8)
    grey[height // 4 : height // 2, width // 10 : -width // 10] = black
    return grey


def ink(grey: np.ndarray) -> np.ndarray:
    return (grey < 100).astype(np.float32)


@pytest.mark.parametrize("suffix", [".png", ".tif", ".webp"])
def test_ink_is_one_and_paper_zero(tmp_path: Path, suffix: str) -> None:
    image = Image.fromarray(page())
    image.save(tmp_path / f"1{suffix}", lossless=True)
    for source in (tmp_path / f"1{suffix}", str(tmp_path / f"1{suffix}"), image, Line(tmp_path / f"1{suffix}")):
        line = read_line(source)
        assert line.dtype == torch.float32
        assert np.array_equal(line[0].numpy(), ink(page()))


def test_contrast_and_brightness_do_not_matter() -> None:
    shades = page().astype(int)
    shades[:5] = 120  # half-way
    lines = [read_line(Image.fromarray((a * shades + b).astype(np.uint8))) for a, b in ((1, 0), (0.5, 60))]
    assert torch.allclose(*lines, atol=0.02)
    assert lines[0][0, 0, 0] == pytest.approx(0.5)


@pytest.mark.parametrize("share", [0.02, 0.3])
def test_light_on_dark_is_inverted(share: float) -> None:
    grey = np.full((40, 100), 30, np.uint8)
    grey[:, : round(100 * share)] = 250
    line = read_line(Image.fromarray(grey))
    assert line.mean().item() == pytest.approx(share)
    assert line[0, 0, 0] == 1


@pytest.mark.parametrize("dark", [True, False])
@pytest.mark.parametrize("turned", [True, False])
def test_a_few_letters_on_a_wide_line(dark: bool, turned: bool) -> None:
    grey = np.full((40, 3000), 220, np.uint8)
    grey[10:30, 50:70] = 20  # a third of a hundredth
    grey = grey if dark else 255 - grey
    line = read_line(Image.fromarray(grey.T.copy() if turned else grey))[0].numpy()
    assert np.array_equal(line.T if turned else line, ink(grey if dark else 255 - grey))


@pytest.mark.parametrize("width", [100, 3000])
def test_noise_is_blank(width: int) -> None:
    noise = np.random.default_rng(0).normal(200, 3, (40, width))
    with raises("line.blank"):
        read_line(Image.fromarray(noise.astype(np.uint8)))
    with raises("line.blank"):
        read_line(Image.fromarray((256 * noise).astype(np.uint16)))


def test_no_light_on_a_sensor_of_12_bits_is_blank() -> None:
    noise = np.random.default_rng(0).normal(40, 8, (40, 1000))
    with raises("line.blank"):
        read_line(Image.fromarray(noise.astype(np.uint16)))


def test_a_polygon_is_cut_out(tmp_path: Path) -> None:
    grey = page(80, 200, paper=200)
    grey[:, :8] = 0  # the edge of the page, outside the line
    Image.fromarray(grey).save(tmp_path / "page.png")
    box = ((4.0, 10.0), (104.0, 10.0), (104.0, 75.0), (14.0, 75.0))
    line = read_line(Line(tmp_path / "page.png", polygon=box))
    assert line.shape == (1, 66, 101)
    assert line[0, -1, 0] == 0, "outside of the polygon is paper"
    assert line[0, 15, -1] == 1
    assert read_line(Line(tmp_path / "page.png", polygon=((-9, -9), (150, -9), (150, 500)))).shape == (1, 80, 151)
    with raises("line.too_small", w=0, h=41):
        read_line(Line(tmp_path / "page.png", polygon=((300, 0), (310, 0), (310, 40))))


@pytest.mark.parametrize(
    ("levels", "key"),
    [
        (np.full((40, 100), 255, np.uint8), "line.blank"),
        (page(paper=200, black=190), "line.blank"),
        (page(3, 100), "line.too_small"),
        (page(100, 2), "line.too_small"),
        (page(40, 20000), "line.too_wide"),
        (page(8000, 8000), "line.too_large"),
        (page(20000, 80), "line.too_wide"),
        (np.full((40, 40), np.nan, np.float32), "image.range"),
    ],
)
def test_impossible_lines_are_named(tmp_path: Path, levels: np.ndarray, key: str) -> None:
    path = tmp_path / "7.tif"
    Image.fromarray(levels).save(path)
    with raises(key):
        read_line(path, height=40)


@pytest.mark.parametrize("step", [4, 8, 16])
def test_widths(step: int) -> None:
    widths = widths_of(step)
    assert widths[0] == step
    assert MAX_WIDTH / 1.03 - step < widths[-1] <= MAX_WIDTH
    assert all(width % step == 0 for width in widths)
    assert all(b - a == step or b / a <= 1.03 for a, b in pairwise(widths))
    assert all(b / a > 1.015 or b - a > step / 2 for a, b in pairwise(widths))
    for width in (1, 30, 100, 777.7, 5000):
        assert abs(nearest_width(width, step) - width) == min(abs(member - width) for member in widths)
    assert nearest_width(10**6, step) == widths[-1]


@pytest.mark.parametrize("size", [(40, 320), (57, 301), (31, 97), (13, 200), (121, 1507), (33, 34), (35, 35), (80, 80)])
@pytest.mark.parametrize("turns", [1, 2, 3])
def test_reading_commutes_with_quarter_turns(size: tuple[int, int], turns: int) -> None:
    grey = torch.randint(256, size, dtype=torch.uint8)
    upright = fit_line(read_line(Image.fromarray(grey.numpy())), 40)
    turned = fit_line(read_line(Image.fromarray(grey.rot90(turns).numpy())), 40)
    assert min(upright.shape[1:]) <= 40
    assert upright.shape[1] == 40
    assert torch.allclose(turned, upright.rot90(turns, (-2, -1)), rtol=0, atol=1e-6)
    assert 0 <= turned.min() <= turned.max() <= 1


def test_sizes() -> None:
    line = torch.rand(1, 40, 320)
    assert fit_line(line, 40) is line
    assert fit_line(torch.rand(1, 20, 51), 40).shape == (1, 40, 104)
    assert fit_line(torch.rand(1, 51, 20), 40).shape == (1, 104, 40)
    assert fit_line(torch.rand(1, 50, 20), 40, upright=True).shape == (1, 40, 16)
    assert fit_line(torch.rand(1, 40, 1), 40, upright=True).shape == (1, 40, 8)
    assert fit_line(torch.rand(1, 50, 50), 40, upright=True).shape == (1, 40, 40)
    with raises("height.step", height=42):
        fit_line(line, 42)
    with raises("line.too_wide"):
        fit_line(torch.rand(1, 8, 2000), 40)
