"""benchmarks/peers: what is measured of other packages, which need not be installed here."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from benchmarks.peers.docorient_peer import QUARTER_TURNS, block, judge
from benchmarks.peers.equiadapt_peer import answers, changes
from gcsa.symmetry import Averaged

PAGE = Image.fromarray(np.arange(24, dtype=np.uint8).reshape(4, 6))


class Corner(nn.Module):
    """Scores of one pixel: nothing about them is symmetric."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x[:, 0, 0, 1], 1 - x[:, 0, 0, 1]], 1)


def test_what_rotations_change_is_counted() -> None:
    images = torch.rand(4, 1, 5, 5, generator=torch.Generator().manual_seed(0))
    exact = changes(answers(Averaged(Corner(), "d4"), images, "d4"))
    assert exact["relative"] < 1e-6
    assert exact["above_rounding"] == exact["answers"] == 0
    plain = changes(answers(Corner(), images, "d4"))
    assert plain["relative"] > 0.1
    assert plain["above_rounding"] == 1
    images[:, :, 0, 1] = images[:, :, 1, 0]  # what the diagonal reflection shows: one of seven elements changes nothing
    assert changes(answers(Corner(), images, "d4"))["above_rounding"] == pytest.approx(6 / 7)


def test_pages_laid_alike_are_counted() -> None:
    assert len({PAGE.transpose(turn).tobytes() for turn in QUARTER_TURNS if turn is not None} | {PAGE.tobytes()}) == 4
    assert judge(PAGE, lambda scan: scan) == {"pages": 1, "alike": 0, "right": 0, "scans_right": 1}
    assert judge(PAGE, lambda scan: PAGE) == {"pages": 1, "alike": 1, "right": 1, "scans_right": 4}
    flat = PAGE.transpose(Image.Transpose.ROTATE_180)
    assert judge(PAGE, lambda scan: flat) == {"pages": 1, "alike": 1, "right": 0, "scans_right": 0}


def test_lines_stand_under_each_other() -> None:
    page = np.asarray(block([PAGE, Image.new("L", (8, 2), 7)]))
    assert page.shape == (6, 8)
    assert (page[:4, :6] == np.asarray(PAGE)).all()
    assert (page[:4, 6:] == 255).all()
    assert (page[4:] == 7).all()
