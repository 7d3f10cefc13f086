"""Thousands of damaged and hostile weights: each is read, or refused in one sentence, and nothing else happens."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import peft
import pytest
import torch

import gcsa
from gcsa import adapters, weights as checkpoints
from gcsa._utils.errors import UserError
from gcsa.groups import group
from gcsa.layers.kernels import planar_tables
from gcsa.models.create import create_model
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.segmentation import SegmentationPredictor
from tests.fuzzing import as_json, json_mutations, mutations, sealed

# Groups of other turns are among the variations.
pytestmark = pytest.mark.filterwarnings("ignore:group=.* is exact on a grid")

TINY: dict[str, Any] = dict(depth=1, fields=4, group="c4")
FEW, MANY = 30, 500


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """weights/, recognizer/, segmenter/, adapter/ and the checkpoints of the first three."""
    folder = tmp_path_factory.mktemp("good")
    model = classifier()
    scorer = {"mean": [0.5, 1.0], "axes": [[1.0, 0.0]], "variances": [2.0], "rest": 0.5, "limit": 3.0}
    about: dict[str, Any] = dict(input_size=(1, 28, 28), mean=(0.5,), std=(0.25,))
    checkpoints.save_classifier(model, folder / "weights", ood_score=scorer, **about)
    recognizer = CTCRecognizer("ab c", hidden=8, **TINY)
    recognizer.save_pretrained(folder / "recognizer")
    segmenter = SegmentationPredictor.create("gcsa_unet_tiny", **SEGMENTER)
    segmenter.save_pretrained(folder / "segmenter", {"data": "nuclei"})
    torch.save(stored(model, HYPER), folder / "weights.ckpt")
    torch.save(stored(recognizer, TEXT_HYPER), folder / "recognizer.ckpt")
    torch.save(stored(segmenter.network, DENSE_HYPER), folder / "segmenter.ckpt")
    peft.get_peft_model(model, adapters.lora_config(model, 2)).save_pretrained(str(folder / "adapter"))
    # What PEFT and escnn import late is imported here, not in the sandbox: the latter for a group without shipped tables.
    adapters.load(classifier(), folder / "adapter")
    planar_tables(group("c5"), 3)
    return folder


def classifier() -> Any:
    """The same each time, for an adapter belongs to the weights of its base."""
    torch.manual_seed(0)
    return create_model("gcsa_tiny", num_classes=3, in_chans=1, **TINY)


HYPER = {
    "task": "classification",
    "model": {"name": "gcsa_tiny", **TINY, "radius": None},
    "num_classes": 3,
    "in_chans": 1,
    "preprocessing": {"input_size": [1, 28, 28], "mean": [0.5], "std": [0.25]},
    "adapter": None,
}
TEXT_HYPER = {
    "task": "recognition",
    "model": {"name": "gcsa_ocr_tiny", "hidden": 8, **TINY},
    "characters": "ab c",
    "adapter": None,
}

SEGMENTER: dict[str, Any] = dict(
    fields=[2, 4], depths=[1, 1], num_heads=[1, 2], radii=[1, "all"], stem_fields=[2], rays=8
)
DENSE_HYPER = {
    "task": "segmentation",
    "model": {"name": "gcsa_unet_tiny", **SEGMENTER, "in_chans": 3, "pmin": 1.0},
    "adapter": None,
}


def stored(model: Any, hyper: Any) -> dict[str, Any]:
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    return {"state_dict": tensors, "hyper_parameters": hyper}


def hyperparameters(name: str, hyper: dict[str, Any], good: Path, sandbox: Path, count: int) -> Iterator[Path]:
    """Checkpoints of which the hyperparameters were changed."""
    whole = torch.load(good / f"{name}.ckpt", weights_only=True)
    for changed in json_mutations(hyper, count, seed=1):
        torch.save({**whole, "hyper_parameters": changed}, sandbox / "x.ckpt")
        yield sandbox / "x.ckpt"


def files(folder: str, name: str, good: Path, sandbox: Path, count: int) -> Iterator[Path]:
    """Folders of which one file was changed, as bytes and, where it is JSON, as values."""
    for file in (good / folder).iterdir():
        (sandbox / file.name).write_bytes(file.read_bytes())
    content = (good / folder / name).read_bytes()
    if name.endswith(".json"):
        variations = [as_json(value) for value in json_mutations(json.loads(content), count * 3 // 4, seed=2)]
        variations += mutations(content, count - len(variations), seed=3)
    else:
        header = 8 + int.from_bytes(content[:8], "little")
        variations = [mutated + content[header:] for mutated in mutations(content[:header], count * 3 // 4, seed=4)]
        variations += mutations(content, count - len(variations), seed=5)
    for changed in variations:
        (sandbox / name).write_bytes(changed)
        yield sandbox


def checkpoint_bytes(good: Path, sandbox: Path, count: int) -> Iterator[Path]:
    for changed in mutations((good / "weights.ckpt").read_bytes(), count, seed=6):
        (sandbox / "x.ckpt").write_bytes(changed)
        yield sandbox / "x.ckpt"


def read(source: Path) -> None:
    model = gcsa.load(source).network
    assert all(p.isfinite().all() for p in model.parameters())


def read_segmenter(source: Path) -> None:
    model = gcsa.load(source).network
    assert all(p.isfinite().all() for p in model.parameters())
    assert model.margin is None or model.margin % model.size_divisor == 0


def read_adapter(source: Path) -> None:
    adapters.load(classifier(), source)


TARGETS: dict[str, tuple[Callable[[Path], None], Callable[[Path, Path, int], Iterator[Path]]]] = {
    "config.json of a classifier": (read, lambda *a: files("weights", "config.json", *a)),
    "config.json of a recogniser": (read, lambda *a: files("recognizer", "config.json", *a)),
    "config.json of a segmenter": (read_segmenter, lambda *a: files("segmenter", "config.json", *a)),
    "hyperparameters of a classifier": (read, lambda *a: hyperparameters("weights", HYPER, *a)),
    "hyperparameters of a recogniser": (read, lambda *a: hyperparameters("recognizer", TEXT_HYPER, *a)),
    "hyperparameters of a segmenter": (read_segmenter, lambda *a: hyperparameters("segmenter", DENSE_HYPER, *a)),
    "bytes of a checkpoint": (read, checkpoint_bytes),
    "safetensors": (read, lambda *a: files("weights", "model.safetensors", *a)),
    "safetensors of a segmenter": (read_segmenter, lambda *a: files("segmenter", "model.safetensors", *a)),
    "adapter_config.json": (read_adapter, lambda *a: files("adapter", "adapter_config.json", *a)),
    "safetensors of an adapter": (read_adapter, lambda *a: files("adapter", "adapter_model.safetensors", *a)),
}


def deeply(sources: Iterator[Path]) -> Iterator[Path]:
    """The same sources, made with more recursion than they are read with, which is what their author would allow."""
    limit = sys.getrecursionlimit()
    while True:
        sys.setrecursionlimit(50_000)
        source = next(sources, None)
        sys.setrecursionlimit(limit)
        if source is None:
            return
        yield source


def fuzz(target: str, good: Path, sandbox: Path, count: int) -> int:
    """How many of `count` variations were refused. Fails for an undocumented exception, a leak or a long message."""
    read_target, variations = TARGETS[target]
    refused = 0
    for source in deeply(variations(good, sandbox, count)):
        try:
            with sealed(sandbox, readable=[good]):
                read_target(source)
        except (ValueError, FileNotFoundError) as error:
            if type(error) not in (UserError, FileNotFoundError) or "\n" in str(error) or len(str(error)) > 2000:
                raise
            refused += 1
    written = {path.name for path in sandbox.iterdir()} - {path.name for path in good.rglob("*")} - {"x.ckpt"}
    assert all(name.startswith("tables-v") for name in written), written
    return refused


@pytest.mark.parametrize("target", TARGETS)
def test_a_few(target: str, good: Path, tmp_path: Path) -> None:
    assert fuzz(target, good, tmp_path, FEW) >= FEW // 4


@pytest.mark.slow  # minutes: each of the files is read, and some of them give a model
@pytest.mark.parametrize("target", TARGETS)
def test_many(target: str, good: Path, tmp_path: Path) -> None:
    assert fuzz(target, good, tmp_path, MANY) >= MANY // 4
