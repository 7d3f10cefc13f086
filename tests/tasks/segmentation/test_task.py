"""A whole run on pictures with label maps: what it writes, and that the objects are the same in every pose."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image

import gcsa
from gcsa.images.reader import read_labels
from gcsa.tasks.segmentation.metrics import InstanceScores
from gcsa.tasks.segmentation.module import SegmentationModule
from gcsa.tasks.segmentation.task import Task as SegmentationTask
from tests.errors import raises
from tests.runs import composed, train

NETWORK = (
    *(
        "model.fields=[4,8]",
        "model.depths=[1,1]",
        "model.num_heads=[1,1]",
        "model.radii=[1,2]",
        "model.stem_fields=[4]",
    ),
    *("model.rays=8",),
)
RUN = (
    *("data.crop=32", "data.context=8", "data.batch_size=4", "data.crops_per_image=8", "optimizer.lr=0.015"),
    *("trainer.max_epochs=2", "trainer.check_val_every_n_epoch=1", "logger=none", "callbacks=no_ema", "threads=1"),
)
INSTANCES = ("experiment=nuclei", "data=mask_folder", *NETWORK, *RUN)
MASKS = ("experiment=nuclei_masks", "data=mask_folder", *NETWORK, *RUN)


def draw_discs(folder: Path, counts: dict[str, int], labels: str = "objects") -> Path:
    """Bright discs on a dark ground, with their label maps, in a folder for each split."""
    rng = np.random.default_rng(0)
    for split, count in counts.items():
        for kind in ("images", "masks"):
            (folder / split / kind).mkdir(parents=True)
        for i in range(count):
            side = int(rng.integers(48, 65))
            rows, columns = np.indices((side, 60))
            mask = np.zeros((side, 60), np.uint8)
            for number, (row, column) in enumerate(((14, 15), (16, 42), (34, 28)), 1):
                inside = (rows - row) ** 2 + (columns - column) ** 2 <= rng.integers(5, 9) ** 2
                mask[inside] = number if labels == "objects" else 5
            picture = (200 * (mask > 0) + rng.integers(10, 40, mask.shape)).astype(np.uint8)
            Image.fromarray(picture).save(folder / split / "images" / f"{i}.png")
            Image.fromarray(mask).save(folder / split / "masks" / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def discs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_discs(tmp_path_factory.mktemp("data") / "discs", {"train": 4, "val": 2, "test": 2})


def run(folder: Path, *overrides: str) -> tuple[float, dict[str, Any]]:
    """The score that a run returns, and its results.json."""
    score = train(composed(folder, *overrides), folder)
    return score, json.loads((folder / "results.json").read_text())


@pytest.fixture(scope="module")
def finished(discs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on objects, tested at its end."""
    folder = tmp_path_factory.mktemp("finished")
    epochs = ("trainer.max_epochs=10", "trainer.check_val_every_n_epoch=10")
    score, content = run(folder, *INSTANCES, *epochs, f"data.path={discs}")
    assert score == content["results"]["val/ap50"]
    return folder


def test_results_say_what_was_found_in_every_pose(finished: Path) -> None:
    content = json.loads((finished / "results.json").read_text())
    results = content["results"]
    names = ("dice", "iou", "ap50", "ap60", "ap70", "ap80", "ap90", "pq", "ap50_by_image")
    assert {"val/ap50", "turned", "prob_thresh", "nms_thresh", *(f"test/{name}" for name in names)} == results.keys()
    assert all(0 <= results[f"test/{name}"] <= 1 for name in names)
    turned = results["turned"]
    assert turned.keys() == {"pixels", "of_pixels", "objects", "of_objects", *names[2:]}
    assert results["test/ap50"] > 0.5
    assert turned["of_objects"] >= 7 * 2 * 4
    assert (turned["pixels"], turned["objects"]) == (0, 0)
    assert [content[key] for key in ("model", "data", "seed")] == ["gcsa_unet_tiny", "mask_folder", 0]
    assert content["flops"] > 1e6
    assert content["parameters"] == content["trainable"]


def test_checkpoint_and_weights_are_one_network(finished: Path) -> None:
    best = finished / "checkpoints/best.ckpt"
    module = SegmentationModule.load_from_checkpoint(best, map_location="cpu", weights_only=True).eval()
    images = torch.rand(2, 3, 32, 40)
    for source in (best, finished / "weights", f"local-dir:{finished / 'weights'}"):
        assert torch.equal(gcsa.load(source).network(images), module(images))
    opened: Any = gcsa.load(finished / "weights")
    assert (opened.pmin, opened.pmax) == (1.0, 99.8)
    assert (opened.network.in_chans, opened.network.rays) == (3, 8)
    results = json.loads((finished / "results.json").read_text())["results"]
    assert {"prob_thresh": opened.prob_thresh, "nms_thresh": opened.nms_thresh}.items() <= results.items()
    config = json.loads((finished / "weights/config.json").read_text())
    assert config["data"] == "mask_folder"
    assert config["results"]["test/ap50"] == results["test/ap50"]


def test_training_goes_on_from_weights(finished: Path, discs: Path, tmp_path: Path) -> None:
    base = (*INSTANCES, "adapter=full", f"adapter.base={finished / 'weights'}", f"data.path={discs}", "test=false")
    slow = ("trainer.max_epochs=1", "optimizer.lr=1e-9")
    score, _ = run(tmp_path / "again", *base, *slow)
    assert score > 0.5
    score, _ = run(tmp_path / "new", *INSTANCES, f"data.path={discs}", "test=false", *slow)
    assert score < 0.1, "negative control: from random weights"
    for other, key in (
        ("model.rays=12", "weights.other_architecture"),
        ("model.num_heads=[2,1]", "adapter.base_option"),
    ):
        with raises(key):
            run(tmp_path / "other", *base, other)


def test_the_result_is_an_average_with_the_base(finished: Path, discs: Path, tmp_path: Path) -> None:
    """Training that spoils the network tells the average, which is exported and validated anew, from the trained weights."""
    base = ("adapter=full", f"adapter.base={finished / 'weights'}", f"data.path={discs}", "test=false")
    spoiling = ("trainer.max_epochs=1", "optimizer.lr=0.1")
    score, content = run(tmp_path, *INSTANCES, *base, *spoiling, "adapter.base_share=0.99")
    assert score == content["results"]["val/ap50"] > 0.5
    best = tmp_path / "checkpoints/best.ckpt"
    stored = torch.load(best, weights_only=True)["callbacks"].values()
    assert next(state["best_model_score"] for state in stored if "best_model_score" in state) < 0.1
    average, trained, before = (
        dict(gcsa.load(source).network.named_parameters())
        for source in (tmp_path / "weights", best, finished / "weights")
    )
    for name, tensor in average.items():
        assert torch.allclose(tensor, 0.99 * before[name] + 0.01 * trained[name], atol=1e-6), name


def test_the_weights_find_what_the_test_found(finished: Path, discs: Path) -> None:
    """From the files: the test's own numbers. The checkpoint was tested with the chosen thresholds."""
    predictor, scores = gcsa.load(finished / "weights"), InstanceScores()
    for picture in sorted((discs / "test/images").iterdir()):
        labels = read_labels(discs / "test/masks" / picture.name)
        scores.update(predictor.predict(picture).labels, labels)
    results = json.loads((finished / "results.json").read_text())["results"]
    for name, value in scores.compute().items():
        assert results[f"test/{name}"] == pytest.approx(float(value), abs=1e-6), name


def test_masks(discs: Path, tmp_path: Path) -> None:
    score, content = run(tmp_path, *MASKS, f"data.path={discs}")
    results = content["results"]
    assert {"val/dice", "test/dice", "test/iou", "turned", "prob_thresh", "nms_thresh"} == results.keys()
    assert score == results["val/dice"] > 0.5
    turned = results["turned"]
    assert turned.keys() == {"pixels", "of_pixels"}
    assert turned["of_pixels"] >= 7 * 2 * 48 * 60
    assert turned["pixels"] == 0
    opened: Any = gcsa.load(tmp_path / "weights").network
    assert (opened.output, opened.out_chans) == ("classes", 2)


def test_the_plain_network_is_trained_and_measured_in_the_same_way(discs: Path, tmp_path: Path) -> None:
    overrides = (
        *RUN,
        "model=smp_unet_resnet18",
        "model.output=classes",
        "data.crops_per_image=1",
        "trainer.max_epochs=1",
    )
    _, content = run(tmp_path, "experiment=nuclei_masks", "data=mask_folder", *overrides, f"data.path={discs}")
    assert content["results"]["turned"].keys() == {"pixels", "of_pixels"}
    assert gcsa.load(tmp_path / "weights").group.name == "c1"


def test_grey_pictures_and_several_classes(tmp_path: Path) -> None:
    folder = draw_discs(tmp_path / "data", {"train": 2, "val": 1, "test": 1}, "classes")
    overrides = ("data.in_chans=1", "model.num_classes=6", "trainer.max_epochs=1", "test=false")
    _, content = run(tmp_path / "run", *MASKS, *overrides, f"data.path={folder}")
    opened: Any = gcsa.load(tmp_path / "run/weights")
    assert (opened.network.in_chans, opened.network.out_chans) == (1, 6)
    assert content["results"].keys() == {"val/dice"}
    assert opened.predict(np.zeros((20, 31, 1), np.uint16)).labels.shape == (20, 31)


def test_thresholds_are_chosen_on_all_validation_images(
    discs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one process of two, also where the fit read the images in others that it started."""
    cfg: Any = OmegaConf.to_container(composed(tmp_path, *INSTANCES, f"data.path={discs}"), resolve=True)
    task, seen = SegmentationTask(), []
    data = task.build_data(cfg)
    module = task.build_module(cfg, data)
    data.trainer = SimpleNamespace(world_size=2, global_rank=0)  # type: ignore[assignment]
    monkeypatch.setattr("gcsa.tasks.segmentation.task.choose_thresholds", lambda _, examples: seen.extend(examples))
    task.export(module, data, tmp_path / "weights")
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (("data.path=null",), "data.path"),
        (("data.crop=30",), "data.crop"),
        (("data.crop=4",), "data.crop"),
        (("data.crop=8",), "data.crop"),
        (("model.output=classes",), "monitor.classes"),
        (("model.output=classes", "monitor.metric=val/pq"), "monitor.classes"),
        (("monitor.metric=val/accuracy",), "monitor.metric"),
        (("adapter=lora", "adapter.base=x.ckpt"), "adapter.segmenter"),
        (("+model.colour=1",), "option.unknown"),
        (("model.rays=30",), "rays"),
        (("model.encoder=resnet18",), "option.unknown"),
        (("model.output=classes", "monitor.metric=val/dice", "model.num_classes=1"), "num_classes"),
        (("checkpoint_activations=true",), "checkpoint_activations"),
        (("+data.turns=true",), "data.options"),
        (("data.percentiles=[50,20]",), "percentiles.range"),
    ],
)
def test_wrong_choices(discs: Path, tmp_path: Path, overrides: tuple[str, ...], key: str) -> None:
    """Before any picture is read, and without a trace."""
    with raises(key) as error:
        train(composed(tmp_path, *INSTANCES, f"data.path={discs}", *overrides), tmp_path)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_labels_beyond_the_classes_are_found_before_the_first_step(tmp_path: Path) -> None:
    folder = draw_discs(tmp_path / "data", {"train": 2, "val": 1, "test": 1}, "classes")
    with raises("mask.label") as error:
        train(composed(tmp_path / "run", *MASKS, "model.num_classes=4", f"data.path={folder}"), tmp_path / "run")
    assert "\n" not in str(error.value)
    assert list((tmp_path / "run").iterdir()) == []


def test_pictures_without_objects_are_no_training(tmp_path: Path) -> None:
    folder = draw_discs(tmp_path / "data", {"train": 2, "val": 1, "test": 1})
    for mask in (folder / "train/masks").iterdir():
        Image.fromarray(0 * read_labels(mask).astype(np.uint8)).save(mask)
    with raises("split.no_objects"):
        train(composed(tmp_path / "run", *INSTANCES, f"data.path={folder}"), tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_null_keeps_the_defaults(discs: Path, tmp_path: Path) -> None:
    """As conf/model/gcsa_unet_small.yaml says: nothing but a name gives the registered network."""
    overrides = (
        "experiment=nuclei",
        "data=mask_folder",
        "model=gcsa_unet_small",
        f"data.path={discs}",
        "model.rays=null",
    )
    cfg: Any = OmegaConf.to_container(composed(tmp_path, *overrides), resolve=True)
    task = SegmentationTask()
    data = task.build_data(cfg)
    network = task.build_module(cfg, data).model
    assert (network.name, network.rays, network.group.name, network.size_divisor) == ("gcsa_unet_small", 32, "d4", 16)
    labels = np.zeros((data.crop, data.crop), np.int32)
    assert data.targets(labels).shape == (33, data.crop, data.crop)
