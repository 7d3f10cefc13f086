import pytest
import timm
import torch
from torch import nn

from gcsa.evaluation.attention import attention_maps, striking_pixel
from gcsa.layers.attention import GroupAttention, SpatialAttention
from gcsa.layers.favor import LinearAttention, orthogonal_features

B, H, W, N, C, HEADS = 1, 4, 4, 4, 6, 2


class Holder(nn.Module):
    """Calls one attention layer with fixed queries, keys and values, whatever the image."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.q, self.k, self.v = torch.randn(3, B, H, W, N, C)

    def forward(self, x):
        return self.layer(self.q, self.k, self.v)


def explicit(q, k, fibre, row, column):
    """Mean over heads (and group elements of the query) of the softmax, summed over those of the keys."""
    q, k = (x[0].unflatten(3, (HEADS, -1)) for x in (q, k))
    if fibre:
        logits = torch.einsum("nad,hwnad->ahw", q[row, column], k) / (N * C // HEADS) ** 0.5
        return logits.flatten(1).softmax(1).unflatten(1, (H, W)).mean(0)
    logits = torch.einsum("nad,hwmad->anhwm", q[row, column], k) / (C // HEADS) ** 0.5
    return logits.flatten(2).softmax(2).unflatten(2, (H, W, N)).sum(-1).mean((0, 1))


@pytest.mark.parametrize("layer", [GroupAttention, SpatialAttention])
def test_maps_are_the_softmax(layer):
    model = Holder(layer(N, C, HEADS))
    (attention,) = attention_maps(model, torch.zeros(1, 8, 8), (5, 2))
    assert torch.allclose(attention, explicit(model.q, model.k, layer.fibre, 2, 1), atol=1e-6)
    assert not model.layer._forward_pre_hooks


def test_neighbourhoods_see_nothing_beyond_their_radius():
    (attention,) = attention_maps(Holder(GroupAttention(N, C, HEADS, radius=1)), torch.zeros(1, 4, 4), (0, 0))
    assert attention.sum() == pytest.approx(1, abs=1e-5)
    assert (attention > 1e-6).nonzero().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]


def test_linear_attention_has_maps_too():
    torch.manual_seed(0)
    layer = LinearAttention(N, C, HEADS, num_random_features=2000)
    layer.projection.copy_(orthogonal_features(2000, C // HEADS))
    model = Holder(layer)
    (attention,) = attention_maps(model, torch.zeros(1, 4, 4), (1, 3))
    assert attention.sum() == pytest.approx(1, abs=1e-5)
    assert torch.allclose(attention, explicit(model.q, model.k, False, 1, 3), atol=0.03)


def test_maps_of_a_timm_vit_leave_the_model_alone():
    model = timm.create_model("vit_tiny_patch16_224", img_size=16, patch_size=4, depth=2, num_classes=3, in_chans=1)
    fused = [block.attn.fused_attn for block in model.blocks]
    image, attn = torch.randn(1, 16, 16), model.blocks[0].attn
    maps = attention_maps(model, image, (3, 9))
    assert [m.shape for m in maps] == [(4, 4)] * 2
    assert all(0.5 < m.sum() < 1 for m in maps)  # the rest goes to the class token
    assert [block.attn.fused_attn for block in model.blocks] == fused
    assert not any(module._forward_hooks for module in model.modules())

    inputs: list[torch.Tensor] = []
    attn.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    model.eval()(image[None])
    q, k, _ = attn.qkv(inputs[0]).unflatten(2, (3, attn.num_heads, -1)).permute(2, 0, 3, 1, 4)
    weights = (q @ k.mT * attn.scale).softmax(-1)[0, :, 1 + 0 * 4 + 2, 1:].mean(0)
    assert torch.allclose(maps[0], weights.unflatten(0, (4, 4)), atol=1e-6)


def test_a_resnet_has_none():
    assert attention_maps(timm.create_model("resnet10t", in_chans=1), torch.randn(1, 32, 32), (0, 0)) == []


def test_the_striking_pixel_is_far_from_the_border_value():
    image = torch.full((1, 12, 12), -0.4)
    image[0, 6:9, 2:5] = 1.0
    row, column = striking_pixel(image)
    assert abs(row - 7) <= 1
    assert abs(column - 3) <= 1
