"""Several labels and numbers: from a table to a run, weights, predictions, commands and files, and what is refused."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

import gcsa
from gcsa.cli.export import open_model
from gcsa.images.prepare import Prepare
from gcsa.tasks.classification.columns import metrics_of
from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.module import Classifier, build_metrics
from gcsa.tasks.classification.predict import ClassificationPredictor, Multilabel, Regression
from gcsa.tasks.classification.targets import Labels, Numbers, target_of
from tests.cli.conftest import Run, run  # noqa: F401
from tests.errors import raises
from tests.runs import composed, train

COLUMNS = {"multilabel": ["even", "large"], "regression": ["ink", "digit"]}
SHORT = (
    "model=timm",
    "model.name=test_efficientnet",
    "data.image_size=32",
    "data.in_chans=1",
    "data.batch_size=32",
    "trainer.max_epochs=25",
    "trainer.check_val_every_n_epoch=5",
    "callbacks=no_ema",
    "optimizer.lr=0.003",
    "threads=1",
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 handwritten digits; the ink is in thousands, and the digit itself a number, too."""
    folder = tmp_path_factory.mktemp("digits")
    digits = load_digits()
    with (folder / "table.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "even", "large", "ink", "digit", "one_value"])
        for place, (image, digit) in enumerate(zip(digits.images[:200], digits.target[:200], strict=True)):
            Image.fromarray((image * 15).astype(np.uint8)).resize((32, 32)).save(folder / f"{place}.png")
            writer.writerow([f"{place}.png", int(digit % 2 == 0), int(digit > 4), 1000 + image.sum(), digit, 7])
    return folder / "table.csv"


@pytest.fixture(scope="module", params=["multilabel", "regression"])
def trained(request: pytest.FixtureRequest, table: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    columns = ",".join(COLUMNS[request.param])
    options = (f"experiment={request.param}", f"data.path={table}", f"data.label=[{columns}]", *SHORT)
    train(composed(folder, *options), folder)
    return request.param, folder


def test_a_run_says_what_it_measured(trained: tuple[str, Path]) -> None:
    kind, folder = trained
    results = json.loads((folder / "results.json").read_text())["results"]
    wanted = {"multilabel": {"accuracy", "average_precision", "auroc"}, "regression": {"mae", "r2"}}[kind]
    assert {f"test/{name}" for name in wanted} <= results.keys()
    # Better than the mean of the training images, and than always the more frequent label.
    assert results["test/r2" if kind == "regression" else "test/auroc"] > {"multilabel": 0.6, "regression": 0.2}[kind]


def test_predictions_are_in_the_users_terms(trained: tuple[str, Path], table: Path) -> None:
    """From the folder of weights and from the checkpoint, and in exported files, which hold no scale."""
    kind, folder = trained
    predictor: Any = gcsa.load(folder / "weights")
    image = table.parent / "0.png"
    answer = predictor.predict(image)
    assert predictor.class_names == tuple(COLUMNS[kind])
    scores = predictor.network(predictor.preprocess(image)[None])[0]
    if kind == "multilabel":
        assert isinstance(answer, Multilabel)
        assert [*answer.scores.values()] == pytest.approx(scores.sigmoid().tolist(), abs=1e-6)
        assert answer.labels == tuple(name for name, value in answer.scores.items() if value >= 0.5)
    else:
        assert isinstance(answer, Regression)
        mean, std = predictor.target.mean, predictor.target.std
        values = [score * s + m for score, m, s in zip(scores.tolist(), mean, std, strict=True)]
        assert [*answer.values.values()] == pytest.approx(values, rel=1e-5)
        assert 1000 < answer.values["ink"] < 1600
        exported = open_model(str(folder / "weights"))[0](predictor.preprocess(image)[None])[0]
        assert exported.tolist() == pytest.approx(values, rel=1e-4)
    checkpoint = gcsa.load(next((folder / "checkpoints").glob("best*.ckpt")))
    assert checkpoint.predict([image]) == [answer]


def test_the_commands(trained: tuple[str, Path], table: Path, run: Run) -> None:  # noqa: F811
    kind, folder = trained
    code, out, _ = run("classify", folder / "weights", table.parent / "0.png", table.parent / "1.png")
    rows = list(csv.DictReader(out.splitlines()))
    assert (code, len(rows)) == (0, 2)
    assert list(rows[0]) == ["file", *(["labels"] if kind == "multilabel" else []), *COLUMNS[kind]]
    answer: Any = gcsa.load(folder / "weights").predict(table.parent / "0.png")
    named = answer.scores if kind == "multilabel" else answer.values
    assert {name: float(rows[0][name]) for name in COLUMNS[kind]} == pytest.approx(named, rel=1e-4, abs=1e-4)
    columns = ",".join(COLUMNS[kind])
    data = ("data=table", f"data.path={table}", f"data.target={kind}", f"data.label=[{columns}]")
    shape = ("data.image_size=32", "data.in_chans=1", "output_dir=found")
    code, out, err = run("evaluate", f"model={folder / 'weights'}", *data, *shape)
    assert (code, COLUMNS[kind][0] in out) == (0, True), err
    found = json.loads(Path("found/evaluation.json").read_text())["columns"]
    stored = json.loads((folder / "results.json").read_text())["results"]
    if kind == "regression":
        assert np.mean([found[name]["mean absolute error"] for name in COLUMNS[kind]]) == pytest.approx(
            stored["test/mae"], rel=1e-4
        )
    else:
        assert np.mean([found[name]["AUROC"] for name in COLUMNS[kind]]) == pytest.approx(stored["test/auroc"])
    for kind_of_audit, status in (("classifier", 2), ("embedding", 0)):
        two = (table.parent / "0.png", table.parent / "1.png")
        code, _, err = run("audit", folder / "weights", "--images", *two, "--kind", kind_of_audit)
        assert (code, "take --kind embedding" in err) == (status, status == 2), err
    code, _, err = run("evaluate", f"model={folder / 'weights'}", *data, *shape, "copies=2")
    assert (code, "copies and overlay are for classes" in err) == (2, True)
    code, _, err = run("evaluate", f"model={folder / 'weights'}", *data[:2], "data.label=even", *shape)
    assert (code, f"was trained for target={kind}" in err) == (2, True)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"target": "number"}, "data.target"),
        ({"target": "multilabel", "label": ["even"]}, "data.label"),
        ({"target": "class", "label": ["even", "large"]}, "data.label"),
        ({"target": "regression", "label": ["ink", "ink"]}, "data.label"),
        ({"target": "multilabel", "label": ["even", "digit"]}, "table.number"),
        ({"target": "regression", "label": ["image", "ink"]}, "table.number"),
        ({"target": "regression", "label": ["ink", "one_value"]}, "table.constant"),
        ({"target": "regression", "label": ["ink"], "balance": True}, "data.balance"),
        ({"target": "regression", "label": ["weight"]}, "table.column"),
    ],
)
def test_what_a_table_refuses(table: Path, options: dict[str, Any], key: str) -> None:
    with raises(key):
        create_datamodule("table", path=table, image_size=32, in_chans=1, **options)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        (("task.loss=focal",), "loss"),
        (("monitor.metric=val/accuracy", "monitor.mode=max"), "monitor.target"),
        (("task.class_weights=auto",), "class_weights.classes"),
        (("adapter=lora", "adapter.base=gcsa_tiny.rotmnist"), "adapter.target"),
    ],
)
def test_what_a_run_refuses(table: Path, tmp_path: Path, options: tuple[str, ...], key: str) -> None:
    given = ("experiment=regression", f"data.path={table}", "data.label=[ink,digit]", *SHORT, *options)
    with raises(key):
        train(composed(tmp_path, *given), tmp_path)


def test_the_values_of_losses() -> None:
    labels, scores = torch.tensor([[0.0, 1], [1, 1]]), torch.randn(2, 2)
    assert torch.equal(Labels().wanted(labels, 2, 0.5), torch.tensor([[0.25, 0.75], [0.75, 0.75]]))
    scale = Numbers((1000.0, 3.0), (10.0, 0.5))
    torch.testing.assert_close(scale.wanted(scale.answers(scores), 2), scores, atol=1e-4, rtol=1e-4)
    assert target_of({"target": scale.entry()}) == scale


@pytest.mark.parametrize(
    "entry",
    [{"kind": "regression"}, {"kind": "regression", "mean": [1.0], "std": [0.0]}, {"kind": "classes"}, {"mean": [1]}],
)
def test_damaged_entries(entry: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"target|class"):
        target_of({"target": entry})


def test_mixed_images_mix_their_numbers() -> None:
    preprocessing = {"target": {"kind": "regression", "mean": [0.0], "std": [1.0]}}
    optimizer, schedule = {"opt": "adamw", "lr": 0.1}, {"name": "constant", "warmup": 0.0, "final": 0.0}
    module = Classifier(
        {"name": "test_efficientnet"}, optimizer, schedule, 1, 1, {"mixup": 1.0}, preprocessing=preprocessing
    )
    assert module.training_loss((torch.rand(4, 1, 32, 32), torch.rand(4, 1))).isfinite()


def test_a_network_whose_units_cannot_be_exported() -> None:
    network = torch.nn.Linear(1, 1)
    network.num_classes = 1
    predictor = ClassificationPredictor(network, Prepare(8, (0.0,), (1.0,)), ["ink"], Numbers((0.0,), (2.0,)))
    with raises("network.get_classifier"):
        predictor.exported()


def test_labels_that_cannot_be_ranked_are_left_out() -> None:
    """A perfect answer counts as perfect where no image has the last label; torchmetrics counts that label as 0."""
    labels = torch.tensor([[1, 0, 0], [0, 1, 0]])
    for name in ("auroc", "average_precision"):
        metric = build_metrics(3, "multilabel")[name]
        metric.update(labels * 0.8 + 0.1, labels)
        assert metric.compute() == 1
        metric.reset()
        metric.update(0.9 - labels * 0.8, labels)
        assert metric.compute() < 0.6
    by_column = metrics_of(Labels(), 3)["AUROC"]
    by_column.update(labels * 0.8 + 0.1, labels)
    columns = by_column.compute()
    assert columns[:2].tolist() == [1, 1]
    assert columns[2].isnan()


def test_an_epoch_is_not_chosen_by_images_of_one_class(tmp_path: Path) -> None:
    for split, names in {"train": "ab", "val": "a", "test": "ab"}.items():
        for name in names:
            for i in range(4):
                image = Image.new("RGB", (16, 16), (i, 100 * (name == "a"), len(split)))
                image.save(tmp_path / f"{split}_{name}_{i}.png")
    rows = [f"{file.name},{file.stem.split('_')[1]},{file.stem.split('_')[0]}" for file in tmp_path.glob("*.png")]
    (tmp_path / "table.csv").write_text("\n".join(["image,label,split", *rows]))
    options = ("data=table", f"data.path={tmp_path}/table.csv", "data.image_size=16", "monitor.metric=val/auroc")
    with raises("monitor.one_class"):
        train(composed(tmp_path / "run", "model=gcsa_tiny", *options, "trainer.max_epochs=1"), tmp_path / "run")
