"""The models with relative encodings: which encodings and groups they are invariant to, budgets, wrong arguments."""

from typing import Any

import pytest
import timm
import torch

from gcsa.models.baselines.gsa import GSA
from gcsa.testing import assert_equivariant, assert_invariant, randomize, relative_error
from tests.errors import not_equivariant


def create(name: str = "gsa_tiny", **kwargs: Any) -> GSA:
    torch.manual_seed(0)
    return randomize(timm.create_model(name, **kwargs)).eval()


@pytest.mark.parametrize("options", [dict(encoding="gevit"), dict(radius=2), dict(stride=2, lift_radius=1, depth=1)])
@pytest.mark.parametrize("group", ["c4", "d4"])
def test_invariant(group: str, options: dict[str, Any]) -> None:
    assert_invariant(create(group=group, **options), torch.randn(1, 1, 12, 12), group)


@pytest.mark.parametrize("group", ["c4", "d4"])
def test_original_is_not_invariant(group: str) -> None:
    """Layers, norms and pooling are those of the invariant model; the encoding alone breaks it."""
    model, x = create(group=group, encoding="original"), torch.randn(1, 1, 16, 16)
    with not_equivariant():
        assert_invariant(model, x, group)
    assert_equivariant(model.stem, x, group, input="image")


def test_z2sa_is_not_invariant_to_turns() -> None:
    model = create("z2sa_tiny")
    assert model.group.name == "c1"
    with not_equivariant():
        assert_equivariant(model, torch.randn(1, 1, 16, 16), "c4", "image", "invariant")


def test_z2sa_is_equivariant_to_shifts() -> None:
    """By multiples of the stride; in the positions whose neighbourhoods stay inside the map."""
    model = create("z2sa_tiny", radius=1, depth=2).double()
    x = torch.randn(1, 1, 36, 36, dtype=torch.float64)
    with torch.no_grad():
        still, moved = model.forward_features(x), model.forward_features(x.roll((4, -4), (2, 3)))
    # Two blocks and the stem reach over 2 positions and 2 pixels, and what the roll brings in is one position more.
    inside = slice(4, -4)
    assert relative_error(moved[..., inside, inside], still.roll((1, -1), (2, 3))[..., inside, inside]) < 1e-12


def test_as_wide_deep_and_fine_as_gcsa() -> None:
    for size in ("tiny", "small"):
        ours, theirs = (timm.create_model(f"{family}_{size}", group="c4", device="meta") for family in ("gsa", "gcsa"))
        assert len(ours.stages) == len(theirs.stages)
        assert ours.size_divisor == theirs.size_divisor
        assert abs(ours.num_features / theirs.num_features - 1) < 0.2
