"""Flex attention gives what the tiles give, passes over what nobody sees, and is used where it was asked for alone.

Its backward pass is for GPUs only, and was not seen.
"""

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import timm
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.nn.attention.flex_attention import flex_attention

from gcsa.export import export
from gcsa.layers import attention as layer_file
from gcsa.layers.attention import GroupAttention, SpatialAttention, attend_nearby, attend_nearby_fused
from gcsa.layers.windows import BLOCK, block_mask
from tests.errors import raises

pytestmark = pytest.mark.filterwarnings(
    "ignore:flex_attention called without",
    "ignore:.*torch.jit",  # timm's contract, deprecated by torch
)
MAPS = [
    (7, 9, 4, 2, "disc", False),
    (12, 12, 8, 1, "square", True),
    (16, 17, 1, 3, "square", False),
    (5, 31, 4, 2, "disc", True),
    (3, 3, 8, 1, "square", False),
]
every_map = pytest.mark.parametrize(("height", "width", "tokens", "radius", "shape", "circular"), MAPS)


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pairs in plain PyTorch: the same function, on any device."""
    monkeypatch.setattr(layer_file, "compiled", lambda: flex_attention)


@pytest.fixture
def experimental() -> Iterator[None]:
    timm.layers.set_fused_attn(True, experimental=True)
    yield
    timm.layers.set_fused_attn(True)


def random_qkv(height: int, width: int, tokens: int, dim: int = 6) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, 2, height, width, tokens, dim, dtype=torch.float64) for _ in range(3)]


@every_map
def test_as_by_tiles(
    height: int, width: int, tokens: int, radius: int, shape: str, circular: bool, uncompiled: None
) -> None:
    qkv = random_qkv(height, width, tokens)
    tiled = attend_nearby(*qkv, radius, shape, circular)
    assert torch.allclose(attend_nearby_fused(*qkv, radius, shape, circular), tiled, atol=1e-10)
    smaller = attend_nearby(*qkv, radius - 1, shape, circular) if radius > 1 else qkv[2]
    assert not torch.allclose(smaller, tiled, atol=1e-3)


@every_map
def test_no_block_is_passed_over_that_a_query_sees(
    height: int, width: int, tokens: int, radius: int, shape: str, circular: bool
) -> None:
    mask = block_mask(height, width, tokens, radius, shape, circular, torch.device("cpu"))
    size = height * width * tokens
    token = torch.arange(size)
    near = mask.mask_mod(0, 0, token[:, None], token[None, :])
    blocks = -(-size // BLOCK)
    filled = torch.zeros(blocks * BLOCK, blocks * BLOCK, dtype=torch.bool)
    filled[:size, :size] = near
    needed = filled.reshape(blocks, BLOCK, blocks, BLOCK).any(3).any(1)
    assert not (needed & ~mask.to_dense()[0, 0].bool()).any()


def test_most_blocks_of_a_large_map_are_passed_over() -> None:
    assert block_mask(64, 64, 8, 2, "square", False, torch.device("cpu")).sparsity() > 95


@pytest.mark.parametrize("attention", [GroupAttention, SpatialAttention])
def test_on_a_pretended_gpu_where_it_was_asked_for(
    attention: type[GroupAttention], uncompiled: None, experimental: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[bool] = []
    attend = layer_file.attend_nearby_fused
    monkeypatch.setattr("gcsa.layers.attention.attend_nearby_fused", lambda *args: calls.append(True) or attend(*args))
    fused = attention(4, 8, 2, radius=1)
    timm.layers.set_fused_attn(True)
    plain = attention(4, 8, 2, radius=1)
    assert (fused.fused_attn, plain.fused_attn) == (True, False)
    qkv = [torch.randn(1, 4, 4, 4, 8) for _ in range(3)]
    assert torch.equal(fused(*qkv), plain(*qkv)), "a CPU has no use for it"
    with raises("radius.too_large"), FakeTensorMode():
        attention(4, 8, 2, radius=5)(*(torch.empty(1, 4, 4, 4, 8, device="cuda") for _ in range(3)))
    assert not calls
    with FakeTensorMode():
        out = fused(*(torch.empty(1, 4, 4, 4, 8, device="cuda") for _ in range(3)))
    assert (out.device.type, out.shape, calls) == ("cuda", (1, 4, 4, 4, 8), [True])


def test_models_with_it_can_be_scripted_and_saved(experimental: None, tmp_path: Path) -> None:
    model = timm.create_model("gcsa_tiny", group="c4", num_classes=3, in_chans=1, fields=4, depth=1, radius=1).eval()
    assert all(m.fused_attn for m in model.modules() if isinstance(m, GroupAttention))
    x = torch.randn(2, 1, 16, 16)
    assert torch.allclose(torch.jit.script(copy.deepcopy(model))(x), model(x), atol=1e-6)
    assert export(model, tmp_path / "m.pt", "torchscript", (1, 16, 16)) < 1e-5


@pytest.mark.slow  # the C++ compiler takes most of a minute
def test_compiled_for_a_cpu() -> None:
    qkv = [x.float() for x in random_qkv(12, 12, 4, dim=16)]
    with torch.no_grad():
        fused = attend_nearby_fused(*qkv, 2, "disc", False)
    assert torch.allclose(fused, attend_nearby(*qkv, 2, "disc", False), atol=1e-5)
