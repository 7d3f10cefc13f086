"""What the package ships is what escnn makes, and enough for everything that is common, without escnn."""

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import timm
import torch

import gcsa
from gcsa.groups import group
from gcsa.layers import kernels
from gcsa.layers.kernels import fingerprint, planar_tables
from gcsa.tasks.segmentation import Segmenter
from tests.errors import raises

COMMON = ("c1", "c2", "c3", "c4", "c6", "c8", "c12", "c16", "d1", "d2", "d3", "d4", "d6", "d8")


@pytest.fixture
def no_escnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it is not installed, with nothing left of what it made; tests/test_import.py sees that gcsa imports it late."""
    for name in ("escnn", "lie_learn"):
        monkeypatch.setitem(sys.modules, name, None)
    for made in (kernels.sample, kernels.shipped, kernels._planar_tables, kernels._pixels):
        made.cache_clear()


def test_the_file_is_what_escnn_makes(tmp_path: Path) -> None:
    for name in ("one.npz", "two.npz"):
        kernels.write_shipped(tmp_path / name)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    with np.load(kernels.SHIPPED) as shipped, np.load(tmp_path / "one.npz") as made:
        assert set(shipped) == set(made)
        for name, functions in made.items():
            assert np.allclose(shipped[name], functions, rtol=0, atol=1e-12), name


def test_another_table_is_seen() -> None:
    """A wrong number anywhere would be another function."""
    right, rotated = (kernels.shipped(turn, 5) for turn in (Fraction(0), Fraction(1, 8)))
    assert right is not None
    assert rotated is not None
    assert not np.allclose(right, rotated, atol=1e-3)


def test_what_is_not_shipped_is_made() -> None:
    assert kernels.shipped(Fraction(1, 5), 3) is None
    tables = planar_tables(group("c5"), 3)
    assert tables.shape == (5, *planar_tables(group("c4"), 3).shape[1:])
    assert np.allclose(np.square(tables).sum((2, 3)).mean(0), 1)
    assert fingerprint(group("c5"), 3) != fingerprint(group("c4"), 3)


@pytest.mark.usefixtures("no_escnn")
def test_other_tables_name_the_extra() -> None:
    with raises("escnn.missing") as error:
        timm.create_model("gcsa_tiny", group="c5")
    assert "pip install gcsa-vit[escnn]" in str(error.value)


@pytest.mark.usefixtures("no_escnn")
def test_common_groups_need_no_escnn() -> None:
    for name in COMMON:
        for size in range(1, 10):
            planar_tables(group(name), size)
    for name in ("c1", "c2", "c4", "d1", "d2", "d4"):
        for size in (11, 13, 15, 16):
            planar_tables(group(name), size)


@pytest.mark.usefixtures("no_escnn")
def test_models_and_published_weights_need_no_escnn() -> None:
    """Every model is made, and some are trained for a step."""
    names = sorted({name for family in ("gcsa_", "gsa_", "z2sa_", "gcnn_") for name in timm.list_models(family + "*")})
    assert len(names) > 15
    with torch.device("meta"):
        for name in names:
            timm.create_model(name)
    for name in gcsa.list_weights():
        gcsa.load(name)
    models = [timm.create_model(name) for name in names if name.count("_") == 1 and "base" not in name]
    models += [timm.create_model("gcsa_pyramid_tiny"), timm.create_model("gcsa_tiny", group="d8")]
    sizes = dict(fields=[2, 4], depths=[1, 1], num_heads=[1, 2], radii=[1, "all"], stem_fields=[2])
    models.append(Segmenter(rays=8, **sizes).network)
    for model in models:
        side = 4 * getattr(model, "size_divisor", 8)
        before = [parameter.detach().clone() for parameter in model.parameters()]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        outputs = model.train()(torch.randn(2, getattr(model, "in_chans", 3), side, side))
        parts = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
        sum(part.square().mean() for part in parts).backward()
        optimizer.step()
        moved = sum(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
        assert moved > len(before) / 2
