"""Devices: without a GPU, every model on a pretended one finds tensors left on the CPU; with one, the real thing.

FakeTensorMode gives each tensor a shape, a type and a device and no memory, and refuses operations on two devices. Its
backward pass asks for a driver even so, which is why gradients are left to the tests marked `cuda`.
"""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel

from gcsa.layers.attention import GroupAttention, SpatialAttention
from gcsa.layers.norm import FieldNorm
from gcsa.testing import randomize, relative_error

from .test_timm import shallow

OURS = ["gcsa*", "gcnn*", "gsa*", "z2sa*", "performer*", "linformer*", "routing*", "alexnet_small", "vgg16_small"]


# The Routing Transformer's package reads numbers from its tensors, which fake ones do not have.
OPTIONS = [(name, shallow(name)) for name in timm.list_models(OURS) if name != "routing_transformer_tiny"]
OPTIONS += [
    ("gcsa_tiny", dict(attention="group", radius=1)),
    ("gcsa_tiny", dict(radius=2, shape="disc", padding_mode="circular")),
    ("gcsa_tiny", dict(separable=True, kv_stride=7)),
    ("gsa_small", dict(encoding="gevit", radius=1)),
    ("performer_tiny", dict(position="absolute")),
    ("performer_tiny", dict(position="relative_s2")),
]
every_model = pytest.mark.parametrize(("name", "options"), OPTIONS)
gpu = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
SMALL: dict[str, dict[str, Any]] = {
    "gcsa_tiny": dict(fields=8, depth=1),
    "gcsa_linear_tiny": dict(fields=8, depth=1),
    "gcsa_pooled_small": dict(depth=1),
    "gcsa_hybrid_tiny": dict(fields=8, conv_depth=1),
    "gcsa_hybrid_small": dict(conv_depth=1),
    "gcsa_pyramid_tiny": dict(fields=(4, 4, 8, 8), depths=(1, 1, 1, 1), num_heads=(1, 1, 2, 2)),
    "gcnn_tiny": dict(fields=8, depth=1),
    "gsa_tiny": dict(fields=4, depth=1),
    "performer_tiny": dict(depth=1),
}
on_a_gpu = pytest.mark.parametrize("name", [pytest.param(name, marks=gpu) for name in SMALL])


@pytest.fixture
def fake_gpu() -> Iterator[FakeTensorMode]:
    """A mode in which tensors pretend to be on a GPU, and modules can be moved to it."""
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # for a fake tensor cannot be put into a real one
    with FakeTensorMode() as mode:
        yield mode
    torch.__future__.set_overwrite_module_params_on_conversion(False)


def moved(model: nn.Module) -> nn.Module:
    return model._apply(lambda t: torch.empty(t.shape, dtype=t.dtype, device="cuda"))


def image(model: nn.Module, device: str = "cuda") -> Tensor:
    channels, height, width = model.default_cfg["input_size"]
    return torch.rand(2, channels, min(height, 96), min(width, 96), device=device)


def create(name: str) -> nn.Module:
    return randomize(timm.create_model(name, num_classes=5, **SMALL[name]))


@every_model
def test_no_tensor_stays_on_the_cpu(name: str, options: dict[str, Any], request: pytest.FixtureRequest) -> None:
    model = timm.create_model(name, num_classes=5, **options)
    request.getfixturevalue("fake_gpu")
    moved(model)
    x = image(model)
    out = model.eval()(x)
    assert (out.device.type, out.shape) == ("cuda", (2, 5))
    if not name.startswith(("linformer", "routing", "alexnet", "vgg")):
        model.set_grad_checkpointing()
    assert model.train()(x).device.type == "cuda"
    assert {p.device.type for p in model.parameters()} == {"cuda"}


class Forgetful(nn.Module):
    """A tensor that is no buffer, and so is not moved."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.table = torch.ones(3)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.table


def test_a_tensor_left_behind_is_found(request: pytest.FixtureRequest) -> None:
    model = Forgetful()
    request.getfixturevalue("fake_gpu")
    moved(model)
    with pytest.raises(Exception, match=r"(?i)device|fake"):
        model(torch.ones(2, 3, device="cuda"))


@on_a_gpu
@pytest.mark.parametrize("train", [False, True])
def test_gpu_gives_what_the_cpu_gives(name: str, train: bool) -> None:
    model = create(name).train(train)
    twin, x = copy.deepcopy(model).cuda(), image(model, "cpu")
    # Without TF32, the default of convolutions: with it, gradients of gcsa_tiny and gcnn_tiny differed by more than 5 %.
    with torch.backends.cudnn.flags(allow_tf32=False):
        outputs = [model(x), twin(x.cuda())]
        for out in outputs:
            out.square().mean().backward()
    assert relative_error(outputs[1].cpu(), outputs[0]) < 1e-2
    for (key, p), q in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert q.grad.isfinite().all(), key
        assert (q.grad.cpu() - p.grad).norm() <= 0.05 * p.grad.norm() + 1e-5, key


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_gpu_norm_of_many_positions() -> None:
    norm, x = randomize(FieldNorm(23, 4)), torch.randn(2, 256, 256, 4, 23)
    gradients = []
    for device in ("cpu", "cuda"):
        module = copy.deepcopy(norm).to(device)
        module(x.to(device)).square().mean().backward()
        gradients.append(torch.stack([p.grad.cpu() for p in module.parameters()]))
    assert relative_error(gradients[1], gradients[0]) < 1e-3


@on_a_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gpu_trains_in_half_precision(name: str, dtype: torch.dtype) -> None:
    model = create(name).cuda().train()
    with torch.autocast("cuda", dtype=dtype):
        loss = model(image(model)).float().square().mean()
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@on_a_gpu
@pytest.mark.filterwarnings("ignore")  # torch compiles with warnings of its own
def test_gpu_compiles(name: str) -> None:
    model = create(name).cuda().eval()
    x = image(model)
    with torch.no_grad():
        assert relative_error(torch.compile(model, fullgraph=True)(x), model(x)) < 1e-2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("fields", [16, 34])
@pytest.mark.parametrize(
    ("attention", "options"),
    [
        pytest.param(attention, options, marks=gpu)
        for attention in (GroupAttention, SpatialAttention)
        for options in ({}, dict(radius=1), dict(radius=3), dict(radius=2, shape="disc", circular=True))
    ],
)
def test_gpu_takes_the_memory_efficient_kernel(
    attention: type[GroupAttention], options: dict[str, Any], fields: int, dtype: torch.dtype
) -> None:
    attend = attention(4, fields, 2, **options)
    q, k, v = (torch.randn(2, 9, 7, 4, fields, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3))
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):  # raises RuntimeError where the kernel does not take them
        out = attend(q, k, v)
        out.sum().backward()
    expected = attend(*(x.detach().cpu().float() for x in (q, k, v)))
    assert relative_error(out.detach().cpu().float(), expected) < 0.02
    assert all(x.grad.isfinite().all() for x in (q, k, v))


@pytest.mark.parametrize("width", [pytest.param(17, marks=gpu)])
def test_gpu_kernel_refuses_what_was_given_before(width: int) -> None:
    """A negative control: heads of one more number, the mask that a neighbourhood once was."""
    q = torch.randn(2, 2, 64, width, device="cuda", dtype=torch.bfloat16)
    with (
        sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION),
        pytest.warns(UserWarning, match="(?i)kernel"),
        pytest.raises(RuntimeError),
    ):
        F.scaled_dot_product_attention(q, q, q)
