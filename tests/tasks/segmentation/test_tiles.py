"""The maps of a tile are those of the whole, for every side and placement; without a margin they are not."""

import numpy as np
import pytest
import torch

from gcsa.images.windows import ArrayImage
from gcsa.tasks.segmentation import tiles
from gcsa.tasks.segmentation.tiles import (
    MAX_GLOBAL,
    MAX_WHOLE,
    Tile,
    choose_tiles,
    placements,
    reflect,
    split_into_tiles,
    tile_maps,
)
from tests.errors import raises
from tests.tasks.segmentation.networks import picture, untrained, whole_maps

NARROW = dict(stem_strides=[2, 2], fields=[2, 2], num_heads=[1, 1])


@pytest.mark.parametrize("shape", [(200, 168), (211, 190), (197, 195)], ids=str)
def test_tiles_are_the_whole(shape: tuple[int, int]) -> None:
    """Sides that the stride divides, one odd side, and two, which are read in four placements."""
    network, image = untrained(**NARROW).network, picture(*shape)
    whole = whole_maps(network, image)
    with torch.no_grad():
        for tile in split_into_tiles(shape, 64):
            maps = tile_maps(network, ArrayImage(image), tile, (0.0, 255.0))
            assert torch.allclose(maps, whole[(..., *tile.slices())], atol=1e-9)
        network.margin = 0
        tile = Tile(64, 64, 128, 128)
        maps = tile_maps(network, ArrayImage(image), tile, (0.0, 255.0))
    assert not torch.allclose(maps, whole[(..., *tile.slices())], atol=1e-3), "negative control"


def test_an_image_that_fits_is_read_as_it_is() -> None:
    network, image = untrained().network, picture(16, 24)
    x = torch.from_numpy(image.astype(np.float32) / np.float32(255)).movedim(-1, 0).double()
    with torch.no_grad():
        assert torch.equal(whole_maps(network, image), network(x[None])[0])


def test_beyond_its_border_an_image_continues_by_reflection() -> None:
    assert reflect(torch.arange(-2, 6), 3).tolist() == [2, 1, 0, 1, 2, 1, 0, 1]
    assert reflect(torch.arange(-1, 3), 2).tolist() == [1, 0, 1, 0]
    assert reflect(torch.arange(-3, 3), 1).tolist() == 6 * [0]
    assert placements(16, 8, 8) == [(0, 0)]
    assert placements(14, 8, 8) == [(1, 1)]
    assert placements(13, 8, 8) == [(1, 2), (2, 1)]
    assert placements(3, 8, 32) == [(14, 15), (15, 14)]


def test_tiles_cover_each_pixel_once() -> None:
    counts = np.zeros((70, 33), int)
    for tile in split_into_tiles((70, 33), 16):
        counts[tile.slices()] += 1
    assert (counts == 1).all()


def test_tiles_and_windows_have_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each window takes the memory of the one before."""
    assert {(tile.bottom - tile.top, tile.right - tile.left) for tile in split_into_tiles((100, 90), 32)} == {(25, 30)}
    rows = [(tile.top, tile.bottom) for tile in split_into_tiles((100, 40), 32, margin=20)]
    assert rows == [(0, 50), (50, 100)]
    predictor, shapes = untrained(**NARROW), set()
    forward = predictor.network.forward
    monkeypatch.setattr(predictor.network, "forward", lambda x: shapes.add(tuple(x.shape)) or forward(x))
    predictor.predict(picture(331, 290), tile=40)
    assert len(shapes) == 1
    assert max(next(iter(shapes))) < 290


def test_the_choice_of_tiles() -> None:
    local, attends_globally = untrained().network, untrained(radii=[1, "all"]).network
    small, large = (1400, 1400), (1400, 1401)
    assert small[0] * small[1] == MAX_WHOLE
    assert len(choose_tiles(local, small, None)) == 1
    assert len(choose_tiles(local, large, None)) > 1
    assert attends_globally.margin is None
    assert len(choose_tiles(attends_globally, large, max(large))) == 1
    for network, shape, side, key in (
        (attends_globally, large, 64, "tile.global_attention"),
        (attends_globally, (1, MAX_GLOBAL + 1), None, "tile.image_too_large"),
        (local, small, 0, "tile"),
    ):
        with raises(key):
            choose_tiles(network, shape, side)


def test_half_precision_is_summed_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    network = untrained(torch.float32).network
    monkeypatch.setattr(network, "forward", lambda x: torch.ones(1, 9, *x.shape[2:], dtype=torch.bfloat16))
    assert tiles.tile_maps(network, ArrayImage(picture(13, 13)), Tile(0, 0, 13, 13), (0, 1)).dtype == torch.float32
