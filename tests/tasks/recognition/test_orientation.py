"""The orientation of pages: exactly equivariant whatever the weights are, right on a printed page, and none on paper."""

from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor, nn

from gcsa._utils.arrays import Array
from gcsa.tasks.recognition.pages import orientation
from gcsa.tasks.recognition.pages.orientation import OrientationScorer, find_orientation, tiles_of
from gcsa.testing import assert_equivariant, randomize

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "while",
    "five",
    "boxing",
    "wizards",
    "plod",
    "home",
    "by",
    "night",
]


class AsField(nn.Module):
    """The scores (B, 4) of a scorer as a regular field (B, 4, 1, 1) of one position."""

    def __init__(self, scorer: nn.Module) -> None:
        super().__init__()
        self.scorer = scorer

    def forward(self, x: Tensor) -> Tensor:
        return self.scorer(x)[:, :, None, None]


def printed_page(width: int = 700, height: int = 900) -> Array:
    """Lines of print, the last of each paragraph short, with a black edge at the left as scans have it."""
    font = ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSerif.ttf"), 17)
    page = Image.new("L", (width, height), 230)
    pen, draw = ImageDraw.Draw(page), np.random.default_rng(0)
    for y in range(50, height - 50, 27):
        pen.text((60, y), " ".join(draw.choice(WORDS, 4 if y % 5 == 0 else 9)), font=font, fill=40)
    pen.rectangle((0, 0, 22, height), fill=5)
    return np.asarray(page)


def test_a_rotated_tile_has_permuted_scores() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 1, 48, 48)
    assert_equivariant(AsField(randomize(OrientationScorer())), x, "c4", "image", "regular")
    with pytest.raises(AssertionError):  # one that prefers an orientation
        assert_equivariant(AsField(nn.Sequential(nn.Flatten(), nn.Linear(48 * 48, 4))), x, "c4", "image", "regular")


@pytest.mark.parametrize("letters", ["אבגדהוזחטיכלמנסעפצקרשת", "აბგდევზთიკლმნოპჟრსტუფ", "աբգդեզէըթժիլխծկհձղճմ"])
def test_no_page_is_surely_upside_down_for_its_script(letters: str) -> None:
    """The network before was sure that Hebrew lies upside down."""
    font = ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"), 17)
    page, draw = Image.new("L", (700, 900), 230), np.random.default_rng(0)
    for y in range(50, 850, 27):
        words = ["".join(draw.choice(list(letters), draw.integers(2, 8))) for _ in range(9)]
        ImageDraw.Draw(page).text((60, y), " ".join(words), font=font, fill=40)
    found = find_orientation(np.asarray(page))
    assert found.degrees == 0 or found.doubtful


def test_the_scorer_is_small() -> None:
    assert sum(parameter.numel() for parameter in OrientationScorer().parameters()) <= 100_000


@pytest.mark.parametrize("shape", [(901, 700), (640, 1333)])
def test_the_tiles_rotate_with_the_page(shape: tuple[int, int]) -> None:
    grey = np.random.default_rng(1).integers(0, 255, shape).astype(np.uint8)
    tiles = tiles_of(grey, 512)
    for k in (1, 2, 3):
        rotated = torch.rot90(tiles_of(np.rot90(grey, k), 512), -k, (2, 3))
        sums, expected = (x.flatten(1) @ torch.arange(x[0].numel()).float().sin() for x in (rotated, tiles))
        assert torch.allclose(sums.sort().values, expected.sort().values, atol=1e-3)


def test_a_printed_page_and_its_rotations() -> None:
    grey = printed_page()
    upright = find_orientation(grey)
    assert upright.degrees == 0
    assert not upright.blank
    for k in (1, 2, 3):
        found = find_orientation(np.rot90(grey, k))
        assert found.degrees == 90 * k
        assert np.roll(found.probabilities, -k) == pytest.approx(upright.probabilities, abs=1e-4)


@pytest.mark.parametrize("deviation", [0, 2, 12])
def test_paper_is_blank(deviation: int) -> None:
    grain = 220 + np.random.default_rng(0).normal(0, 1, (500, 600)) * deviation
    assert find_orientation(grain.clip(0, 255).astype(np.uint8)).blank


def test_autocast_does_not_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding to 16 bits could decide between two orientations."""
    grey = printed_page(400, 300)
    monkeypatch.setattr(orientation, "BATCH", 8)
    expected = find_orientation(grey)
    with torch.autocast("cpu", torch.bfloat16):
        assert find_orientation(grey) == expected
