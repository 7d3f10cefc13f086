"""gcsa evaluate of classifiers: on the command line, in its parts, and with values that cannot work."""

import io
import json
from dataclasses import asdict

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from rich.console import Console

import gcsa
from gcsa.evaluation.rotations import ANGLES, Curve
from gcsa.tasks.classification import evaluate as evaluation
from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.evaluate import draw_sample, measure, model_and_data, summarize, table
from gcsa.testing import randomize
from gcsa.weights import save_classifier
from tests.errors import raises

FIGURES = {"rotation", "shifts", "calibration", "attention", "mistakes"}
DIGITS = {"name": "digits"}
EARLIER = Curve(ANGLES, (0.5,) * 48, (0.0,) * 48, 4)


def test_end_to_end(trained, run, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    options = ("threads=1", "limit=50", "curve_images=4", f"output_dir={tmp_path}/out", "label=mine")
    code, output, errors = run("evaluate", f"model={trained}/best.ckpt", "data=digits", "data.batch_size=32", *options)
    assert code == 0, errors
    assert "mine on digits, test split" in output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"evaluation.json", *(f"{figure}.png" for figure in FIGURES)}
    results = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert (results["trained"], results["scores"]["images"]) == (True, 50)
    wrong = 50 - round(50 * results["scores"]["accuracy"])
    assert len(results["mistakes"]) == min(wrong, 12) > 0
    assert len(results["rotation"]["accuracy"]) == 48
    assert results["rotation"]["logit_change"][12] < 1e-5 < results["rotation"]["logit_change"][3]
    assert max(results["invariance"].values()) < 1e-5
    assert results["config"]["data"]["batch_size"] == 32
    assert {"cpu", "torch"} <= set(results["machine"])


def test_a_plain_network_beside_an_earlier_evaluation(run, tmp_path):
    earlier = {"label": "mine", "rotation": asdict(EARLIER)}
    (tmp_path / "evaluation.json").write_text(json.dumps(earlier))
    options = ("limit=20", "curve_images=2", f"overlay=[{tmp_path}]", f"output_dir={tmp_path}/out")
    code, output, errors = run("evaluate", "model=resnet10t", *options)
    assert code == 0, errors
    assert "untrained: random" in output
    assert "attention maps: not available" in output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"evaluation.json", *(f"{figure}.png" for figure in FIGURES - {"attention"})}
    assert not json.loads((tmp_path / "out" / "evaluation.json").read_text())["trained"]

    code, _, errors = run("evaluate", "model=resnet10t", "label=mine", *options[:-1], f"output_dir={tmp_path}/twice")
    assert (code, (tmp_path / "twice").exists()) == (2, False)
    assert "two curves of one figure are called mine" in errors


def test_a_checkpoint_and_its_folder_of_weights_are_one_model(trained):
    images = torch.randn(2, 1, 28, 28)
    sources = (f"{trained}/best.ckpt", f"local-dir:{trained}/weights", f"{trained}/weights")
    loaded = [model_and_data(source, DIGITS) for source in sources]
    with torch.no_grad():
        logits = [model(images) for model, _, _ in loaded]
    assert all(torch.equal(logits[0], other) for other in logits)
    assert [(data.mean, is_trained) for _, data, is_trained in loaded] == [((0.157,), True)] * 3


@pytest.mark.parametrize("name", ["gcsa_tiny", "resnet10t", "vit_tiny_patch16_224"])
def test_a_name_gives_random_weights_for_the_data(name):
    model, data, is_trained = model_and_data(name, DIGITS)
    assert not is_trained
    assert model(torch.randn(2, 1, 28, 28)).shape == (2, 10)
    assert data.mean == create_datamodule("digits").mean


@pytest.mark.parametrize(
    ("source", "data", "message"),
    [
        ("gcsa_tiny.nothing", "digits", r"unknown model gcsa_tiny\.nothing.*gcsa_tiny\.rotmnist"),
        ("resnet9000", "digits", "unknown model resnet9000.*gcsa_tiny.*resnet"),
        ("nowhere/best.ckpt", "digits", "nowhere/best.ckpt"),
        ("local-dir:nowhere", "digits", "nowhere/config.json"),
        ("gcsa_base", "digits", "28 x 28 breaks the exact equivariance.*resize 28 to 16 or 32"),
        ("vgg11", "digits", "vgg11 does not take the 1 x 28 x 28 images of data=digits"),
        ("gcsa_ocr_tiny.fr17", "digits", r"gcsa_ocr_tiny\.fr17 holds weights for recognition"),
        ("gcsa_tiny.rotmnist", "cifar10", r"is for 1 channels, but data=cifar10 has 3"),
        ("gcsa_pooled_small.pcam", "cifar10", r"96 x 96 and data=cifar10 has 32 x 32"),
    ],
)
def test_models_that_are_not_there_or_do_not_fit(source, data, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        model_and_data(source, {"name": data})


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"group": "c8"}, "weights.other_architecture"),
        ({"name": "resnet10t", "fields": None, "depth": None, "group": None}, "weights.other_architecture"),
        ({"name": "no_such"}, "model.unknown"),
        ({"colour": "red"}, "option.unknown"),
    ],
)
def test_checkpoints_of_another_architecture(trained, tmp_path, change, key):
    stored = torch.load(trained / "best.ckpt")
    stored["hyper_parameters"]["model"] |= change
    torch.save(stored, tmp_path / "other.ckpt")
    with raises(key):
        model_and_data(str(tmp_path / "other.ckpt"), DIGITS)


def write_patches(folder, names=("normal", "tumour"), size=(96, 96)):
    """A test split only, as users have it who evaluate the weights of others."""
    generator = np.random.default_rng(0)
    for name in names:
        (folder / "test" / name).mkdir(parents=True)
        for i in range(3):
            levels = generator.integers(0, 255, (*size, 3)).astype(np.uint8)
            Image.fromarray(levels).save(folder / "test" / name / f"{i}.png")
    return folder


@pytest.mark.parametrize("pad", [None, "black"])
def test_images_are_prepared_as_the_weights_say(pad, tmp_path):
    """The same numbers as in `predict`, also for images that are no squares."""

    model = timm.create_model("gcsa_tiny", group="c4", depth=1, fields=4, num_classes=2, in_chans=3)
    about = dict(input_size=(3, 28, 28), mean=(0.4,) * 3, std=(0.5,) * 3, label_names=("normal", "tumour"), pad=pad)
    folder = save_classifier(model, tmp_path / "weights", **about)
    options = {"name": "image_folder", "path": write_patches(tmp_path, size=(41, 30)), "image_size": 28, "pad": "white"}
    loaded, data, _ = model_and_data(str(folder), options)
    assert (data.mean, data.pad) == ((0.4,) * 3, pad)
    data.setup("test")
    images, _ = next(iter(data.test_dataloader()))
    predictor = gcsa.load(folder)
    files = [tmp_path / "test" / name / f"{i}.png" for name in ("normal", "tumour") for i in range(3)]
    assert torch.equal(images, torch.stack([predictor.preprocess(file) for file in files]))
    with torch.no_grad():
        expected = [row.tolist() for row in loaded(images).softmax(1)]
    assert [list(result.scores.values()) for result in predictor.predict(files)] == [
        pytest.approx(row, abs=1e-5) for row in expected
    ]
    with raises("data.test_only"):
        data.setup("fit")


def test_sizes_are_those_of_the_weights_and_other_classes_are_refused(tmp_path):
    weights, options = "gcsa_pooled_small.pcam", {"name": "image_folder", "image_size": 96}
    _, data, _ = model_and_data(
        weights, options | {"path": write_patches(tmp_path / "a"), "image_size": 224, "in_chans": 1}
    )
    assert (data.image_size, data.in_chans) == (96, 3), "those of the weights"
    with raises("data.class_names"):
        model_and_data(weights, options | {"path": write_patches(tmp_path / "b", ("good", "ill"))})


def test_a_limited_sample_is_balanced_repeatable_and_reads_one_split(monkeypatch):
    data = create_datamodule("digits", batch_size=64)
    monkeypatch.setattr(data, "read_test", lambda: pytest.fail("the test split was read"))
    sample = draw_sample(data, "val", 100)
    sizes, labels = zip(*((len(images), labels) for images, labels in sample), strict=True)
    assert sizes == (64, 36)
    assert torch.bincount(torch.cat(labels)).tolist() == pytest.approx([10] * 10, abs=1)
    assert torch.equal(sample.first(5), draw_sample(data, "val", 100).first(5))
    assert torch.equal(sample.pick([3, 0]), sample.first(4)[[3, 0]])
    assert len(draw_sample(data, "val")) == 180
    for arguments, key in (
        (("validation",), "split"),
        (("val", 0), "limit"),
    ):
        with raises(key):
            draw_sample(data, *arguments)


def text(report, model, is_trained=True):
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table(report, model, "title", is_trained))
    return console.export_text()


def test_summary_reads_validation_images_only(tmp_path, monkeypatch):
    data = create_datamodule("digits")
    monkeypatch.setattr(data, "read_test", lambda: pytest.fail("the test split was read"))
    model = timm.create_model("gcsa_tiny", group="c4", num_classes=10, in_chans=1, depth=1, fields=4)
    summary = summarize(model, data, tmp_path, seconds=1)
    assert 0 < summary["invariance_error"] < 1e-5
    assert summary["figure"] == tmp_path / "rotation.png"
    assert summary["figure"].stat().st_size > 10_000
    plain = timm.create_model("resnet10t", num_classes=10, in_chans=1)
    assert summarize(plain, data, tmp_path, 0)["invariance_error"] > 1e-3


def test_report_of_a_plain_network():
    model = timm.create_model("resnet10t", num_classes=10, in_chans=1)
    report = measure(model, create_datamodule("digits"), "val", limit=40, curve_images=8, copies=2)
    assert (report.scores.images, report.rotation.images, report.shift_x.images) == (40, 8, 8)
    assert report.rotation.logit_change[0] == 0
    assert max(report.rotation.logit_change) > 1e-3
    printed = text(report, model, is_trained=False)
    words = ("untrained", "quarter rotations", "as scalar fields", "4,927,186", "accuracy, 40 images [95 %]")
    assert [word for word in (*words, "of the mean over 2 rotated copies") if word not in printed] == []
    assert "untrained" not in text(report, model)


def test_report_of_scalar_fields_names_the_group():
    small = dict(fields=4, scalar_fields=8, depth=1, stem_strides=(2, 2), stem_fields=(4,), stem_separable=False)
    model = timm.create_model("gcsa_pooled_small", num_classes=10, in_chans=1, **small)
    report = measure(model, create_datamodule("digits"), "val", limit=8, curve_images=8)
    printed = text(report, model)
    assert [word for word in ("exact elements of d4", "as scalar fields") if word not in printed] == []
    assert report.averaged is None
    assert "rotated copies" not in printed


@pytest.mark.parametrize(("group", "computed"), [("c4", [0, 45]), ("c1", list(range(0, 360, 45)))])
def test_one_of_equal_copies_is_computed(group, computed, monkeypatch):
    seen = []
    predicted = evaluation.predict
    monkeypatch.setattr(evaluation, "predict", lambda model, sample: seen.append(model) or predicted(model, sample))
    model = randomize(timm.create_model("gcsa_tiny", group=group, num_classes=10, in_chans=1, fields=4, depth=1))
    report = measure(model, create_datamodule("digits"), "val", limit=10, curve_images=2, copies=8)
    assert (seen[1].angles, report.copies) == (computed, 8)
