"""The fast layers are the literal definitions, element by element; `original` fails by the mechanism that the seed derives."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from gcsa.actions import act
from gcsa.groups import group as make_group
from gcsa.layers.layout import pixel_coordinates
from gcsa.layers.relative_attention import (
    ENCODINGS,
    LiftingSelfAttention,
    RelativeSelfAttention,
    SpatialEncoding,
    wave_phases,
)
from gcsa.testing import assert_equivariant, equivariance_error, randomize, relative_error
from tests.errors import not_equivariant, raises

GROUPS = {"d1": 2, "c4": 4, "c6": 6, "c8": 8, "d4": 8}


def layer(group: str, encoding: str = "corrected", radius: int | None = None, **kwargs: Any) -> RelativeSelfAttention:
    torch.manual_seed(0)
    return randomize(RelativeSelfAttention(4, 2, group, encoding, radius, **kwargs))


def rho_x(spatial: SpatialEncoding, x: float, y: float) -> Tensor:
    """The network as written, at one point; y upwards."""
    return spatial.amplitudes(torch.sin(spatial.waves(torch.tensor([x, y], dtype=torch.float64))))


def offset(group: str, h: int, i: tuple[int, int], j: tuple[int, int]) -> tuple[float, float]:
    """h^-1 (x_j - x_i) of (row, column) positions."""
    g = make_group(group)
    return tuple(g.matrix(int(g.inverse[h])) @ (j[1] - i[1], i[0] - j[0]))


def literal(m: RelativeSelfAttention, x: Tensor, radius: int | None) -> Tensor:
    """The definition, one query at a time."""
    g, heads = m.group, m.num_heads
    height, width = x.shape[1:3]
    positions = [(r, c) for r in range(height) for c in range(width)]
    out = torch.zeros_like(x)
    for i in positions:
        near = [j for j in positions if radius is None or max(abs(i[0] - j[0]), abs(i[1] - j[1])) <= radius]
        for h in range(g.order):
            for turn in [h] if m.encoding == "gevit" else range(g.order):
                logits, values = [], []
                for j in near:
                    for other in range(g.order):
                        r = int(g.cayley[g.inverse[turn], other])
                        if m.encoding == "original":
                            r = int(g.cayley[g.inverse[h], r])
                        key = m.k(x[(0, *j, other)] + rho_x(m.spatial, *offset(g.name, h, i, j)) + m.table[r])
                        query = m.q(x[(0, *i, turn)])
                        logits.append((query * key).unflatten(0, (heads, -1)).sum(1) / math.sqrt(len(key) // heads))
                        values.append(m.v(x[(0, *j, other)]).unflatten(0, (heads, -1)))
                weights = torch.stack(logits).softmax(0)
                out[(0, *i, h)] += (weights[..., None] * torch.stack(values)).sum(0).flatten()
    return m.out(out)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(("group", "radius"), [("c4", None), ("d2", 1), ("d1", 2), ("c3", 1), ("c1", 1)])
def test_group_layer_is_its_definition(encoding: str, group: str, radius: int | None) -> None:
    m = layer(group, encoding, radius).double()
    m.spatial.init_non_persistent_buffers()  # the turns of c3 were rounded to float32
    x = torch.randn(1, 2 if radius is None else radius + 1, 3, m.group.order, 4, dtype=torch.float64)
    with torch.no_grad():
        assert relative_error(m(x), literal(m, x, radius)) < 1e-12


@pytest.mark.parametrize("size", [(4, 5), (3, 3)])
def test_lifting_layer_is_its_definition(size: tuple[int, int]) -> None:
    m = randomize(LiftingSelfAttention(2, 4, 2, "d2", radius=1)).double()
    x = torch.randn(1, 2, *size, dtype=torch.float64)
    positions = [(r, c) for r in range(size[0]) for c in range(size[1])]
    out = torch.zeros(1, *size, 4, 4, dtype=torch.float64)
    with torch.no_grad():
        q, k, v = m.qkv(x).chunk(3, 1)
        for i in positions:
            near = [j for j in positions if max(abs(i[0] - j[0]), abs(i[1] - j[1])) <= 1]
            for h in range(4):
                keys = torch.stack([k[0, :, j[0], j[1]] + rho_x(m.spatial, *offset("d2", h, i, j)) for j in near])
                logits = ((q[0, :, i[0], i[1]] + m.q_bias) * keys).unflatten(1, (2, -1)).sum(2) / math.sqrt(2)
                values = torch.stack([v[0, :, j[0], j[1]] for j in near]).unflatten(1, (2, -1))
                out[(0, *i, h)] = (logits.softmax(0)[..., None] * values).sum(0).flatten()
        assert relative_error(m(x), m.out(out)) < 1e-12


@pytest.mark.parametrize("radius", [None, 1])
@pytest.mark.parametrize("encoding", ["corrected", "gevit"])
@pytest.mark.parametrize("group", GROUPS)
def test_equivariant(group: str, encoding: str, radius: int | None) -> None:
    assert_equivariant(
        layer(group, encoding, radius, proj_drop=0.3, attn_drop=0.3), torch.randn(1, 4, 4, GROUPS[group], 4), group
    )


@pytest.mark.parametrize("radius", [0, 2])
@pytest.mark.parametrize("group", GROUPS)
def test_lifting_is_equivariant(group: str, radius: int) -> None:
    m = randomize(LiftingSelfAttention(3, 4, 2, group, radius))
    for size in ((5, 5), (4, 6)):
        assert_equivariant(m, torch.randn(1, 3, *size), group, input="image")


def test_a_wrong_turn_is_found() -> None:
    x = torch.randn(1, 4, 4, 8, 4)
    for encoding in ("corrected", "gevit"):
        m = layer("d4", encoding)
        m.spatial.matrices.copy_(m.spatial.matrices.roll(1, 0))
        with not_equivariant():
            assert_equivariant(m, x, "d4")
        m = layer("d4", encoding)
        m.relative.copy_(m.relative.flip(-2))
        with not_equivariant():
            assert_equivariant(m, x, "d4")


def sharp(group: str, encoding: str) -> RelativeSelfAttention:
    """With weights large enough that the encoding, and not the mean of the values, decides the output."""
    m = layer(group, encoding).double()
    with torch.no_grad():
        m.k.weight *= 4
    return m


@pytest.mark.parametrize("group", ["d1", "c4", "c8", "d4"])
def test_original_is_not_equivariant(group: str) -> None:
    m, x = sharp(group, "original"), torch.randn(1, 4, 4, GROUPS[group], 4, dtype=torch.float64)
    for g in m.group.exact_elements[1:]:
        assert equivariance_error(m, x, group, g) > 0.05
        assert equivariance_error(sharp(group, "corrected"), x, group, g) < 1e-10


@pytest.mark.parametrize("group", ["c4", "d4"])
def test_original_lacks_one_factor_of_the_group(group: str) -> None:
    """The seed's appendix: turning the input by g replaces (h, h~, h^) by (gh, gh~, gh^), and the index h^-1 h~^-1 h^
    becomes (gh)^-1 h~^-1 h^ = h^-1 g^-1 h~^-1 h^, where equivariance needs it unchanged: g^-1 does not cancel.

    So the layer is equivariant once more if its table is read at h^-1 g h~^-1 h^ for the turned input, and if the
    table is the same for all elements, or as `corrected`, in which the turn cancels.
    """
    m = sharp(group, "original")
    x = torch.randn(1, 4, 4, m.group.order, 4, dtype=torch.float64)
    cayley, inverse, every = m.group.cayley, m.group.inverse, range(m.group.order)
    expected, relative = m(x), m.relative.clone()
    for g in m.group.exact_elements[1:]:
        needed = [
            [[int(cayley[inverse[h], cayley[g, cayley[inverse[t], o]]]) for o in every] for t in every] for h in every
        ]
        found = m(act(x, group, g, "field"))
        m.relative.copy_(torch.eye(m.group.order)[torch.tensor(needed)])
        repaired = m(act(x, group, g, "field"))
        m.relative.copy_(relative)
        assert relative_error(found, act(expected, group, g, "field")) > 0.05
        assert relative_error(repaired, act(expected, group, g, "field")) < 1e-10
    with torch.no_grad():
        m.table.copy_(m.table[:1].clone().expand_as(m.table))
    assert_equivariant(m, x, group)


def test_translations_of_z2() -> None:
    """Where neighbourhoods stay inside the map, a shift of the input shifts the output; an encoding of absolute
    position would not allow it."""
    x = torch.randn(1, 9, 10, 1, 4, dtype=torch.float64)
    for radius in (1, 2):
        m = layer("c1", radius=radius).double()
        inside = slice(radius + 1, -radius - 1)
        for shift in ((1, 0), (0, -1), (1, 1)):
            moved = m(x.roll(shift, (1, 2)))
            assert relative_error(moved[:, inside, inside], m(x).roll(shift, (1, 2))[:, inside, inside]) < 1e-12
    lift = randomize(LiftingSelfAttention(2, 4, 2, "c1", radius=1)).double()
    image = torch.randn(1, 2, 8, 8, dtype=torch.float64)
    moved, still = lift(image.roll((1, -1), (2, 3))), lift(image).roll((1, -1), (1, 2))
    assert relative_error(moved[:, 2:-2, 2:-2], still[:, 2:-2, 2:-2]) < 1e-12


def test_the_encoding_tells_positions_and_orientations_apart() -> None:
    for part in ("table", "spatial"):
        m = layer("c4")
        x = torch.randn(1, 5, 5, 4, 4)
        before = m(x)
        with torch.no_grad():
            (m.table if part == "table" else m.spatial.amplitudes.weight).zero_()
        assert relative_error(m(x), before) > 1e-3


@pytest.mark.parametrize("size", [1e3, 1e4])
def test_large_logits(size: float) -> None:
    """The softmax in two steps neither overflows nor loses the largest logits."""
    m = layer("d1").double()
    with torch.no_grad():
        m.q.weight *= size
        x = torch.randn(1, 2, 3, 2, 4, dtype=torch.float64)
        assert relative_error(m(x), literal(m, x, None)) < 1e-9


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (dict(encoding="rotary"), "encoding"),
        (dict(radius=-1), "radius"),
        (dict(num_heads=3), "num_heads"),
        (dict(num_heads=0), "num_heads"),
        (dict(waves=0), "waves"),
        (dict(attn_drop=1.0), "attn_drop"),
        (dict(proj_drop=1.0), "proj_drop"),
        (dict(in_chans=0), "in_chans"),
        (dict(in_chans=1, radius=-2), "radius"),
        (dict(in_chans=1, num_heads=3), "num_heads"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], key: str) -> None:
    layer = LiftingSelfAttention if "in_chans" in arguments else RelativeSelfAttention
    with raises(key):
        layer(**{"fields": 4, "num_heads": 2, "group": "c4", **arguments})


def test_radius_larger_than_the_map() -> None:
    with raises("radius.too_large"):
        layer("c4", radius=7)(torch.randn(1, 4, 6, 4, 4))
    with raises("radius.too_large"):
        LiftingSelfAttention(1, 4, 2, "c4", radius=7)(torch.randn(1, 1, 4, 6))
    assert layer("c4", radius=6)(torch.randn(1, 4, 6, 4, 4)).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("radius", ["all", 2])
@pytest.mark.parametrize("encoding", ["corrected", "gevit"])
def test_autocast(encoding: str, radius: int | str, dtype: torch.dtype) -> None:
    """Also for waves of a short length and maps of many positions, where phases reach a hundred radians."""
    m, x = layer("c4", encoding, radius), torch.randn(2, 3, 64, 4, 4)
    lift, image = randomize(LiftingSelfAttention(2, 4, 2, "c4")), torch.randn(2, 2, 6, 40)
    for module, input in ((m, x), (lift, image)):
        with torch.no_grad():
            module.spatial.waves.weight.normal_(std=2)
        expected = module(input)
        with torch.autocast("cpu", dtype=dtype):
            out = module(input)
        assert relative_error(out.float(), expected) < 0.03
        out.float().square().mean().backward()
        assert all(p.grad.isfinite().all() for p in module.parameters())


def test_phases_are_computed_in_full_precision() -> None:
    """A negative control for the test above: phases of bfloat16 are other phases."""
    positions, waves = pixel_coordinates(1, 200, torch.zeros(1)).flatten(0, 1), torch.randn(1, 3, 2)
    exact = wave_phases(positions, waves)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(wave_phases(positions, waves), exact)
        assert (positions @ waves.transpose(1, 2) - exact).abs().max() > 0.1
    m = layer("c4").bfloat16()
    assert {x.dtype for x in m.spatial()[1:]} == {torch.float32}
