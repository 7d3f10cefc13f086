"""A whole run: what it writes, and that timm and Lightning open it again."""

import json
import logging
from pathlib import Path

import pytest
import pytorch_lightning as pl
import timm
import torch
from lightning_utilities.core import rank_zero
from PIL import Image
from torchmetrics import MetricCollection

from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.module import Classifier, build_metrics
from gcsa.training import run
from gcsa.weights import save_classifier
from tests.runs import TINY, composed, train


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of the smallest gcsa model, tested at its end."""
    folder = tmp_path_factory.mktemp("finished")
    model = ("model=gcsa_tiny", "model.group=c4", "model.fields=4", "model.num_heads=1", "model.depth=1")
    cfg = composed(folder, *TINY[3:], *model, "trainer.max_epochs=2", "test=true", "logger=default")
    score = train(cfg, folder)
    assert score == json.loads((folder / "results.json").read_text())["results"]["val/accuracy"]
    return folder


def test_results_say_what_was_run(finished: Path) -> None:
    results = json.loads((finished / "results.json").read_text())
    assert [results[key] for key in ("model", "data", "seed")] == ["gcsa_tiny", "digits", 0]
    assert results["best_step"] == 4 * results["best_epoch"]
    assert {"val/accuracy", "test/accuracy", "test/calibration_error", "invariance_error"} <= results["results"].keys()
    assert results["results"]["invariance_error"] < 1e-5
    assert results["machine"]["cores"] > 0
    assert (finished / "csv/version_0/metrics.csv").is_file()


def test_weights_are_as_open_as_other_files(finished: Path) -> None:
    (finished / "other").touch()
    modes = {path.stat().st_mode for path in [finished / "other", *(finished / "weights").iterdir()]}
    assert len(modes) == 1


def test_checkpoint_loads_with_weights_only(finished: Path) -> None:
    for name in ("best", "last"):
        stored = torch.load(finished / f"checkpoints/{name}.ckpt", weights_only=True)
        assert stored["hyper_parameters"]["model"]["group"] == "c4"


@pytest.mark.filterwarnings("ignore:.*LeafSpec")  # Lightning's own, which train.py hides too
@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
def test_lightning_and_timm_open_the_same_model(finished: Path) -> None:
    best = finished / "checkpoints/best.ckpt"
    classifier = Classifier.load_from_checkpoint(best, map_location="cpu", weights_only=True).eval()
    exported = timm.create_model(f"local-dir:{finished / 'weights'}", pretrained=True).eval()
    images = torch.rand(2, 1, 28, 28)
    assert torch.equal(exported(images), classifier(images))
    assert exported.pretrained_cfg["input_size"] == (1, 28, 28)
    assert tuple(exported.pretrained_cfg["mean"]) == create_datamodule("digits").mean

    tester = pl.Trainer(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    (scores,) = tester.test(classifier, create_datamodule("digits"), ckpt_path=best, weights_only=True, verbose=False)
    results = json.loads((finished / "results.json").read_text())["results"]
    assert scores["test/accuracy"] == results["test/accuracy"]


@pytest.mark.parametrize(
    "overrides",
    [
        ["trainer.precision=bf16-mixed", "optimizer/schedule=one_cycle", "trainer.enable_progress_bar=false"],
        ["callbacks=early_stopping", "monitor.metric=val/loss", "monitor.mode=min"],
        ["callbacks=no_ema", "optimizer=sgd", "trainer.accumulate_grad_batches=2"],
    ],
)
def test_other_choices_train(tmp_path: Path, overrides: list[str]) -> None:
    cfg = composed(tmp_path, *TINY, "trainer.max_epochs=1", "data.limit_train=64", *overrides)
    assert train(cfg, tmp_path) > 0
    assert (tmp_path / "weights/model.safetensors").is_file()


def test_training_on_the_validation_split_keeps_the_last_epoch(tmp_path: Path) -> None:
    """Though it learns nothing, so that no epoch is better, and also of a run that is resumed for longer; it reports nothing
    that was measured on images it was trained on."""
    still = ("data.limit_train=64", "data.train_on_val=true", "optimizer.lr=1e-12", "+trainer.val_check_interval=1")
    for epochs, resume in ((2, "ckpt_path=null"), (3, "ckpt_path=last")):
        assert train(composed(tmp_path, *TINY, *still, f"trainer.max_epochs={epochs}", resume), tmp_path) == epochs - 1
        content = json.loads((tmp_path / "results.json").read_text())
        assert (content["best_epoch"], content["best_step"]) == (epochs, 2 * epochs)
        assert content["results"] == {}


def test_lightning_is_quiet_by_either_name_but_for_its_profiler() -> None:
    """Of the two packages of Lightning, the one imported last speaks for both."""
    pytest.importorskip("lightning.pytorch")
    run.quiet_lightning()
    assert rank_zero.log.name.startswith(("lightning.", "pytorch_lightning."))
    for speaker in (rank_zero.log, logging.getLogger("pytorch_lightning.utilities.rank_zero")):
        assert not speaker.isEnabledFor(logging.INFO)
    assert logging.getLogger("pytorch_lightning.profilers.profiler").isEnabledFor(logging.INFO)


def test_scores() -> None:
    probabilities = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3]])
    values = MetricCollection(build_metrics(2))(probabilities, torch.tensor([0, 1, 0, 1]))
    assert values["accuracy"] == 0.75
    assert values["auroc"] == 0.75  # of the four pairs of a 0 and a 1, one is ordered wrongly
    assert 0 < values["calibration_error"] < 1
    assert "auroc" not in build_metrics(3)


def test_export_replaces_whole_or_not_at_all(tmp_path: Path) -> None:
    model = timm.create_model("test_efficientnet", num_classes=3, in_chans=2)
    folder = save_classifier(model, tmp_path / "weights", input_size=(2, 32, 32), mean=(0.5,) * 2, std=(0.5,) * 2)
    before = sorted(path.name for path in folder.iterdir())
    assert before == ["config.json", "model.safetensors"]
    model._model_args["unserialisable"] = object()
    with pytest.raises(ValueError, match="unserialisable"):
        save_classifier(model, folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["weights"]
    assert timm.create_model(f"local-dir:{folder}", pretrained=True).num_classes == 3


@pytest.mark.parametrize("name", ["gcsa_tiny", "linformer_tiny", "alexnet_small", "test_efficientnet"])
def test_weights_of_either_number_of_channels(name: str, tmp_path: Path) -> None:
    size = dict(img_size=32) if name.endswith("former_tiny") else {}
    for in_chans in (1, 3):
        model = timm.create_model(name, num_classes=3, in_chans=in_chans, **size)
        folder = save_classifier(model, tmp_path / "weights", input_size=(in_chans, 32, 32))
        assert timm.create_model(f"local-dir:{folder}", pretrained=True).pretrained_cfg["input_size"][0] == in_chans


def test_the_imagenet_preset_runs(tmp_path: Path) -> None:
    """Two steps of two images on one CPU, and one block a stage."""
    for split in ("train", "val", "test"):
        for name, shade in (("cat", 80), ("dog", 160)):
            folder = tmp_path / "images" / split / name
            folder.mkdir(parents=True)
            for i in range(2):
                Image.new("RGB", (50, 40), (shade, 40 * i, 0)).save(folder / f"{i}.png")
    small = ["data.image_size=64", "data.batch_size=2", "data.num_workers=0", *TINY[-4:], "trainer.max_epochs=1"]
    cpu = ["trainer.accelerator=cpu", "trainer.devices=1", "trainer.strategy=auto", "trainer.precision=32-true"]
    preset = ["experiment=imagenet_pyramid_small", "model.depths=[1,1,1,1]", f"data.path={tmp_path / 'images'}"]
    train(composed(tmp_path, *preset, *small, *cpu), tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["model"], results["best_step"]) == ("gcsa_pyramid_small", 2)


def test_the_test_is_as_short_as_asked(tmp_path: Path) -> None:
    short = ("trainer.max_epochs=1", "trainer.limit_train_batches=1", "callbacks=no_ema", "data.batch_size=16")
    train(composed(tmp_path, *TINY, *short, "+trainer.limit_test_batches=1", "test=true"), tmp_path)
    accuracy = json.loads((tmp_path / "results.json").read_text())["results"]["test/accuracy"]
    assert (16 * accuracy).is_integer()
