"""What the package ships is what escnn makes, and enough for everything that is common, without escnn."""

import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np

from gcsa.groups import group
from gcsa.layers import kernels
from gcsa.layers.kernels import fingerprint, planar_tables

WITHOUT = "import sys; sys.modules['escnn'] = sys.modules['lie_learn'] = None\n"
COMMON = ("c1", "c2", "c3", "c4", "c6", "c8", "c12", "c16", "d1", "d2", "d3", "d4", "d6", "d8")

TABLES = f"""
from gcsa.groups import group
from gcsa.layers.kernels import planar_tables
for name in {COMMON}:
    for size in range(1, 10):
        planar_tables(group(name), size)
for name in ("c1", "c2", "c4", "d1", "d2", "d4"):
    for size in (11, 13, 15, 16):
        planar_tables(group(name), size)
"""

ZOO = """
import timm, torch
import gcsa
from gcsa.tasks.segmentation import Segmenter
from gcsa.tasks.segmentation.network import SEGMENTERS
names = sorted({name for family in ("gcsa_", "gsa_", "z2sa_", "gcnn_") for name in timm.list_models(family + "*")})
assert len(names) > 15
with torch.device("meta"):
    for name in names:
        timm.create_model(name)
models = {name: timm.create_model(name, num_classes=3) for name in names if name.count("_") == 1 and "base" not in name}
models["gcsa_pyramid_tiny"] = timm.create_model("gcsa_pyramid_tiny", num_classes=3)
models["d8"] = timm.create_model("gcsa_tiny", group="d8", num_classes=3)
models["segmenter"] = Segmenter(fields=[2, 4], depths=[1, 1], num_heads=[1, 2], radii=[1, "all"], stem_fields=[2], rays=8).network
for name, model in models.items():
    side = 4 * getattr(model, "size_divisor", 8)
    channels = getattr(model, "in_chans", 3)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    outputs = model.train()(torch.randn(2, channels, side, side))
    parts = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    sum(part.square().mean() for part in parts).backward()
    optimizer.step()
    moved = sum(not torch.equal(old, new) for old, new in zip(before, model.parameters()))
    assert moved > len(before) / 2, name
"""

PUBLISHED = """
import gcsa
for name in gcsa.list_weights():
    gcsa.load(name)
"""


def without_escnn(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT + code], capture_output=True, text=True, timeout=600
    )


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


def test_other_tables_name_the_extra() -> None:
    done = without_escnn("import timm, gcsa; timm.create_model('gcsa_tiny', group='c5')")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "gcsa._utils.errors.MissingExtraError: no tables are shipped for 5 rotations and kernels of size"
    )
    assert "pip install gcsa-vit[escnn]" in last


def test_what_is_common_needs_no_escnn() -> None:
    """Common groups have tables, every model is made, some are trained for a step, and the published weights are read."""
    done = without_escnn(TABLES + ZOO + PUBLISHED)
    assert done.returncode == 0, done.stderr
