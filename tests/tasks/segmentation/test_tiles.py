"""Tiles are the whole, whatever their side and the size of the picture; without a margin they are not."""

from typing import Any

import numpy as np
import pytest
import torch

from gcsa._utils.arrays import Array
from gcsa.images.windows import ArrayImage
from gcsa.tasks.segmentation import Segmenter
from gcsa.tasks.segmentation.tiles import MOST_WHOLE, WHOLE, Tile, outputs, segment, tiled, tiles
from gcsa.testing import randomize

SIZES: dict[str, Any] = dict(
    fields=[2, 2],
    depths=[1, 1],
    heads=[1, 1],
    radii=[1, 1],
    stem_fields=[2],
    stem_strides=[2, 2],
    rays=8,
    threshold=0.45,
)


def untrained(**options: Any) -> Segmenter:
    torch.manual_seed(0)
    segmenter = randomize(Segmenter(**{**SIZES, **options})).double().eval()
    assert isinstance(segmenter, Segmenter)
    head: Any = segmenter.network.head
    with torch.no_grad():  # logits lie about 0, so that there is something of each kind
        logits = segmenter(torch.rand(1, 3, 64, 64, dtype=torch.float64))[:, : head.count]
        head.out.bias[: head.count] -= logits.mean((0, 2, 3))
    return segmenter


def picture(height: int, width: int) -> Array:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize(("shape", "side"), [((200, 168), 20), ((211, 190), 25), ((197, 195), 30)], ids=str)
def test_tiles_are_the_whole(shape: tuple[int, int], side: int) -> None:
    """Sides that the stride divides, one odd side, and two, which are read in four places."""
    segmenter = untrained()
    assert segmenter.margin is not None
    source = ArrayImage(picture(*shape))
    scale = source.percentiles(segmenter.low, segmenter.high)
    with torch.inference_mode():
        whole = segmenter.maps(segmenter.tensor(source.picture))
        for tile in tiles(shape, 64):
            expected = whole[:, tile.top : tile.bottom, tile.left : tile.right]
            assert torch.allclose(outputs(segmenter, source, tile, scale), expected, atol=1e-9)
    assert len(tiled(segmenter, shape, side)) > 1
    in_tiles, at_once = segment(segmenter, source, side), segment(segmenter, source, max(shape))
    assert at_once.labels.max() > 3
    assert np.array_equal(in_tiles.labels, at_once.labels)
    assert np.array_equal(at_once.labels > 0, segmenter.labels(whole) > 0)
    assert in_tiles.objects is not None
    assert at_once.objects is not None
    assert np.allclose(in_tiles.objects.points, at_once.objects.points)
    assert np.allclose(in_tiles.objects.distances, at_once.objects.distances)


def test_without_a_margin_they_are_not() -> None:
    """The control."""
    segmenter = untrained()
    source = ArrayImage(picture(200, 168))
    scale = source.percentiles(segmenter.low, segmenter.high)
    tile = Tile(64, 64, 128, 128)
    with torch.inference_mode():
        expected = segmenter.maps(segmenter.tensor(source.picture))[:, 64:128, 64:128]
        segmenter.margin = 0
        assert not torch.allclose(outputs(segmenter, source, tile, scale), expected, atol=1e-3)


@pytest.mark.parametrize("side", [20, 33])
def test_classes_in_tiles(side: int) -> None:
    segmenter, source = untrained(task="masks", num_classes=3), ArrayImage(picture(210, 184))
    assert len(tiled(segmenter, source.shape, side)) > 1
    result = segment(segmenter, source, side)
    assert result.objects is None
    assert len(np.unique(result.labels)) == 3
    assert np.array_equal(result.labels, segmenter.segment(source.picture))


def test_tiles_cover_each_pixel_once() -> None:
    counts = np.zeros((70, 33), int)
    for tile in tiles((70, 33), 16):
        counts[tile.top : tile.bottom, tile.left : tile.right] += 1
    assert (counts == 1).all()


def test_tiles_and_windows_have_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the memory of one is that of the next."""
    assert {(tile.bottom - tile.top, tile.right - tile.left) for tile in tiles((100, 90), 32)} == {(25, 30)}
    rows = [(tile.top, tile.bottom) for tile in tiles((100, 40), 32, margin=20)]
    assert rows == [(0, 50), (50, 100)]
    segmenter, shapes = untrained(), set()
    forward = segmenter.forward
    monkeypatch.setattr(segmenter, "forward", lambda x: shapes.add(tuple(x.shape)) or forward(x))
    segment(segmenter, ArrayImage(picture(331, 290)), 40)
    assert len(shapes) == 1
    assert max(next(iter(shapes))) < 290


def test_numbers_and_objects_belong_together() -> None:
    """What another object hides has no number; the shares that are reported add up."""
    segmenter, done = untrained(overlap=1.0, threshold=0.3), []
    result = segment(segmenter, ArrayImage(picture(190, 184)), 30, done.append)
    assert len(done) == 4
    assert result.objects is not None
    assert set(np.unique(result.labels)) - {0} == set(range(1, len(result.objects) + 1))
    assert list(result.objects.scores) == sorted(result.objects.scores, reverse=True)
    assert sum(done) == pytest.approx(1)


def test_what_is_read_at_once() -> None:
    small, large = (1400, 1400), (1400, 1401)
    assert small[0] * small[1] == WHOLE
    assert len(tiled(untrained(), small, None)) == 1
    assert len(tiled(untrained(), large, None)) > 1
    everywhere = untrained(radii=[1, "all"])
    assert everywhere.margin is None
    assert len(tiled(everywhere, large, max(large))) == len(tiled(everywhere, large, None)) == 1
    with pytest.raises(ValueError, match="a tile of 64 pixels is less than this network reads, for it sees everything"):
        tiled(everywhere, large, 64)
    with pytest.raises(
        ValueError, match=r"1 x 16777217 pixels are too many for one pass.*sees everything: train one with a number"
    ):
        tiled(everywhere, (1, MOST_WHOLE + 1), None)
    with pytest.raises(ValueError, match="a tile of 0 pixels holds nothing"):
        tiled(untrained(), small, 0)


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (3, 200)], ids=str)
def test_tiny_pictures(shape: tuple[int, int]) -> None:
    segmenter, source = untrained(), ArrayImage(picture(*shape))
    assert np.array_equal(segment(segmenter, source, 16).labels > 0, segmenter.segment(source.picture) > 0)
