"""The propositions of the LoRA documents: with random, non-zero A and B on q, k, v and out, every attention layer stays
equivariant (Schreiber, GSA-Nets and LoRAs for TrOCR, sections 4 to 6; LoRAs and Equivariant Attention Mechanisms,
sections 2 to 4), and so does G-CSA; a low-rank delta of another form breaks it."""

from typing import Any

import pytest
import torch
from peft import PeftModel, get_peft_model
from torch import Tensor, nn

from gcsa import adapters
from gcsa.layers.attention import GroupConvSelfAttention
from gcsa.layers.conv import SteerableConv2d
from gcsa.layers.relative_attention import LiftingSelfAttention, RelativeSelfAttention
from gcsa.testing import assert_equivariant, equivariance_error, randomize, relative_error
from tests.errors import not_equivariant

RANK = 2


def adapted(layer: nn.Module, *targets: str) -> PeftModel:
    """With random A and B; each of the adapted maps changes the output."""
    torch.manual_seed(1)
    config = adapters.lora_config(
        layer, RANK, target_modules=targets or ("q", "k", "v", "out"), init_lora_weights=False
    )
    return get_peft_model(layer, config)


def relative(group: str, encoding: str = "corrected", radius: int | None = None) -> RelativeSelfAttention:
    torch.manual_seed(0)
    return randomize(RelativeSelfAttention(4, 2, group, encoding, radius))


def assert_all_count(make: Any, x: Tensor, *targets: str) -> None:
    """No projection is bypassed: each adapter alone changes the output."""
    for target in targets:
        base = make().to(x.dtype)
        expected = base(x)
        assert relative_error(adapted(base, target)(x), expected) > 1e-4, target


def test_translations_of_relative_self_attention() -> None:
    """Section 4, eq. 12: a shift of the input shifts the output, where neighbourhoods stay inside the map."""
    x = torch.randn(1, 7, 8, 1, 4, dtype=torch.float64)
    model, inside = adapted(relative("c1", radius=1).double()), slice(2, -2)
    for shift in ((1, 0), (0, -1), (1, 1)):
        moved, still = model(x.roll(shift, (1, 2))), model(x).roll(shift, (1, 2))
        assert relative_error(moved[:, inside, inside], still[:, inside, inside]) < 1e-12
    assert_all_count(lambda: relative("c1", radius=1), x, "q", "k", "v", "out")


@pytest.mark.parametrize("group", ["c4", "d4"])
def test_lifting_self_attention(group: str) -> None:
    """Section 5."""
    make = lambda: randomize(LiftingSelfAttention(3, 4, 2, group, radius=1))
    assert_equivariant(adapted(make(), "qkv", "out"), torch.randn(1, 3, 4, 5), group, input="image")
    torch.manual_seed(0)
    assert_all_count(make, torch.randn(1, 3, 4, 4), "qkv", "out")


@pytest.mark.parametrize("encoding", ["corrected", "gevit"])
@pytest.mark.parametrize("group", ["c4", "d4"])
def test_group_self_attention(group: str, encoding: str) -> None:
    """Section 6; the delta of the keys acts on the encoding too, as eq. 10 has it."""
    model = adapted(relative(group, encoding))
    x = torch.randn(1, 3, 4, model.base_model.model.group.order, 4)
    assert_equivariant(model, x, group)
    assert_all_count(lambda: relative(group, encoding), x, "q", "k", "v", "out")


def test_group_self_attention_of_the_original_encoding() -> None:
    """What is not equivariant does not become so."""
    layer = relative("c4", "original").double()
    with torch.no_grad():
        layer.k.weight *= 4
    x = torch.randn(1, 4, 4, 4, 4, dtype=torch.float64)
    assert equivariance_error(adapted(layer), x, "c4", 1) > 0.05


@pytest.mark.parametrize(
    "options",
    [
        dict(attention="group"),
        dict(attention="group", kv_stride=2),
        dict(attention="spatial"),
        dict(attention="spatial", separable=True, padding_mode="circular"),
        dict(attention="linear", num_random_features=8),
    ],
)
@pytest.mark.parametrize("group", ["c4", "d4"])
def test_gcsa(group: str, options: dict[str, Any]) -> None:
    make = lambda: randomize(GroupConvSelfAttention(4, 2, group, **options))
    model = adapted(make())
    x = torch.randn(1, 4, 4, model.base_model.model.group.order, 4)
    assert_equivariant(model, x, group)
    torch.manual_seed(0)
    assert_all_count(make, x, "q", "k", "v", "out")


class DenseLora(nn.Module):
    """W + B A on the N * C channels of the expanded filter, as a LoRA that knows nothing of the group would add it."""

    def __init__(self, conv: SteerableConv2d) -> None:
        super().__init__()
        self.conv = conv
        self.a = nn.Conv2d(conv.in_features, RANK, conv.kernel_size, padding=conv.padding, bias=False)
        self.b = nn.Conv2d(RANK, conv.out_features, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        change = self.b(self.a(x.flatten(3).permute(0, 3, 1, 2)))
        return self.conv(x) + change.permute(0, 2, 3, 1).unflatten(3, x.shape[3:])


@pytest.mark.parametrize("target", ["q", "k", "v", "out"])
@pytest.mark.parametrize("group", ["c4", "d4"])
def test_a_lora_of_another_form_breaks_it(group: str, target: str) -> None:
    layer = randomize(GroupConvSelfAttention(4, 2, group, "group"))
    setattr(layer, target, DenseLora(getattr(layer, target)))
    x = torch.randn(1, 4, 4, layer.group.order, 4)
    with not_equivariant():
        assert_equivariant(layer, x, group)


@pytest.mark.parametrize("kind", ["Z^2", "lifting", "group", "G-CSA"])
def test_merged_is_unmerged(kind: str) -> None:
    """phi + phi_B o phi_A is one map of the same kind (section 2: W + B A)."""
    torch.manual_seed(0)
    layer, x, targets = {
        "Z^2": (relative("c1"), torch.randn(1, 4, 4, 1, 4), ("q", "k", "v", "out")),
        "lifting": (LiftingSelfAttention(3, 4, 2, "c4", radius=1), torch.randn(1, 3, 4, 4), ("qkv", "out")),
        "group": (relative("d4"), torch.randn(1, 3, 3, 8, 4), ("q", "k", "v", "out")),
        "G-CSA": (GroupConvSelfAttention(4, 2, "d4"), torch.randn(1, 4, 4, 8, 4), ("q", "k", "v", "out")),
    }[kind]
    base = layer(x)
    model = adapted(layer, *targets)
    expected = model(x)
    with model.disable_adapter():
        assert torch.equal(model(x), base)
    assert relative_error(model.merge_and_unload()(x), expected) < 1e-5
