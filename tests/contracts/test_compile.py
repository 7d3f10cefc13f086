"""torch.compile: one graph without breaks for each family, in evaluation and training, over all numbers of images."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from gcsa.export.formats import to_program
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.segmentation import Segmenter
from gcsa.testing import randomize

from ..export import small
from ..export.small import images

SMALL: dict[str, dict[str, Any]] = {
    **{name: options for name, options in small.SMALL.items() if name != "gcsa_hybrid_small"},
    "gsa_small": dict(fields=4, depth=1, encoding="gevit", stride=4),
    "performer_tiny": dict(dim=8, depth=1, num_random_features=8, redraw_interval=2),
    "performer_horn": dict(
        dim=8, depth=1, num_heads=2, num_random_features=8, position="relative_s2", attn_drop_rate=0.1
    ),
    "alexnet_small": {},
}
SEGMENTER: dict[str, Any] = dict(
    in_chans=1, rays=4, group="c4", fields=(2,), depths=(1,), num_heads=(1,), radii=(1,), stem_fields=(2,)
)
MODES = pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
pytestmark = pytest.mark.filterwarnings("ignore")  # torch compiles with warnings of its own


def create(name: str, **kwargs: Any) -> nn.Module:
    return randomize(timm.create_model(name, in_chans=1, num_classes=3, **{**SMALL[name], **kwargs}))


def compiled(run: Any, backend: str = "eager", fullgraph: bool = True) -> Any:
    """`run`, compiled, with the counts of graphs and breaks at zero."""
    torch.compiler.reset()
    counters.clear()
    return torch.compile(run, backend=backend, fullgraph=fullgraph)


def graphs_and_breaks() -> tuple[int, int]:
    return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())


def assert_same(model: nn.Module, backend: str = "eager", tolerance: float = 1e-5) -> None:
    """The compiled model, and in training its gradients, are those of the model, over numbers of images."""
    twin = copy.deepcopy(model)
    fast = compiled(twin, backend)
    for batch in (2, 3, 5):
        x, out = images(batch), []
        torch._dynamo.mark_dynamic(x, 0)
        for run in (model, fast):
            torch.manual_seed(batch)
            with torch.set_grad_enabled(model.training):
                out.append(run(x))
        assert torch.allclose(*out, rtol=0, atol=tolerance)
        if model.training:
            for y in out:
                y.square().mean().backward()
            for (name, p), q in zip(model.named_parameters(), twin.parameters(), strict=True):
                assert torch.allclose(p.grad, q.grad, rtol=1e-4, atol=tolerance), name
    assert all(torch.allclose(b, c, atol=tolerance) for b, c in zip(model.buffers(), twin.buffers(), strict=True))


@pytest.mark.parametrize(
    ("name", "train"),
    [
        *((name, True) for name in SMALL),
        *((name, False) for name in ("gcsa_pyramid_tiny", "performer_tiny", "alexnet_small")),
    ],
)
def test_every_family_is_one_graph(name: str, train: bool) -> None:
    """In evaluation those with parts that ask for the mode; the others run the same code in both."""
    assert_same(create(name).train(train))
    assert graphs_and_breaks() == (1, 0)


def test_recognizer_is_one_graph() -> None:
    model = CTCRecognizer("ab", height=16, hidden=8, fields=4, depth=1, num_heads=1)
    assert_same(model.train())
    assert graphs_and_breaks() == (1, 0)


def test_segmenter_is_one_graph() -> None:
    """In training; the program below is of the evaluation."""
    assert_same(randomize(Segmenter(**SEGMENTER)).train())
    assert graphs_and_breaks() == (1, 0)


def test_segmenter_is_one_program() -> None:
    """torch.export: for any number of images of any sides that the stride divides (and two tiles of attention or more)."""
    model = randomize(Segmenter(**SEGMENTER)).eval()
    run = to_program(model, images(2).repeat(1, 1, 2, 2), any_size=True).module()
    for x in (torch.randn(3, 1, 48, 32), torch.randn(2, 1, 20, 64)):
        assert torch.allclose(run(x), model(x), atol=1e-5)
    with pytest.raises((RuntimeError, AssertionError)):
        run(torch.randn(2, 1, 30, 32))


def test_checkpointed_training_is_one_graph() -> None:
    model = create("gcsa_tiny").train()
    model.set_grad_checkpointing()
    assert_same(model)
    assert graphs_and_breaks() == (1, 0)


def test_one_image_has_a_graph_of_its_own() -> None:
    """torch compiles dimensions of size 1 apart (its 0/1 specialisation); the model has no part in that."""
    run = compiled(create("gcnn_tiny").eval())
    for batch in (2, 3, 1, 5):
        x = images(batch)
        if batch > 1:
            torch._dynamo.mark_dynamic(x, 0)
        run(x)
    assert graphs_and_breaks() == (2, 0)


class Steps(nn.Module):
    """A negative control: what a step count must not be, a number read from a tensor or a number in Python."""

    def __init__(self, read: Callable[["Steps"], int]) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.number, self.read = 0, read

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        self.number += 1
        return 2 * x if self.read(self) % 2 == 0 else x


def test_counting_breaks_is_not_blind() -> None:
    from_tensor = Steps(lambda self: int(self.steps))
    with pytest.raises(torch._dynamo.exc.TorchDynamoException):
        compiled(from_tensor)(images(2))
    compiled(from_tensor, fullgraph=False)(images(2))
    assert graphs_and_breaks()[1] > 0
    run = compiled(Steps(lambda self: self.number))
    for _ in range(3):
        run(images(2))
    assert graphs_and_breaks() == (3, 0)


def test_compiled_performer_redraws_and_resumes_as_a_plain_one() -> None:
    """Bit for bit: 5 steps that draw new random features after the second and the fourth, resumed after the third."""
    plain = create("performer_tiny").train()
    whole, resumed = (copy.deepcopy(plain) for _ in range(2))
    before = plain.blocks[0].attn.projection.clone()

    def train(model: nn.Module, run: Callable[[Tensor], Tensor], steps: range) -> None:
        for step in steps:
            torch.manual_seed(step)
            model.zero_grad()
            run(images(2)).square().sum().backward()
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(1e-3 * p.grad)

    train(plain, plain, range(5))
    run = compiled(whole, "aot_eager")
    train(whole, run, range(3))
    resumed.load_state_dict(whole.state_dict())
    train(whole, run, range(3, 5))
    train(resumed, compiled(resumed), range(3, 5))
    assert not torch.equal(plain.blocks[0].attn.projection, before)
    for model in (whole, resumed):
        for (key, a), b in zip(plain.state_dict().items(), model.state_dict().values(), strict=True):
            assert torch.equal(a, b), key


@pytest.mark.slow  # Inductor's C++ compiler takes most of a minute
@pytest.mark.parametrize("name", ["gcsa_tiny", "gcsa_pyramid_tiny", "performer_tiny"])
@MODES
def test_inductor(name: str, train: bool) -> None:
    assert_same(create(name).train(train), "inductor", 1e-4)
    assert graphs_and_breaks() == (1, 0)
