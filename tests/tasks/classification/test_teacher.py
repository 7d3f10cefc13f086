"""A teacher's answers: computed once, refused where they are of others, and learned by an exact student."""

import json
from pathlib import Path
from typing import Any

import h5py
import pytest
import timm
import torch
from PIL import Image
from torch import Tensor

import gcsa
from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.module import Classifier
from gcsa.tasks.classification.teacher import Member, Teacher, TeacherOptions, fingerprint, score_loss
from gcsa.testing import assert_invariant
from gcsa.weights import save_classifier
from tests.errors import raises
from tests.runs import composed, train

DIGITS = tuple("0123456789")
CONSTANT = {"name": "constant", "warmup": 0.0, "final": 0.0}
SHORT = (
    *("model.depth=1", "model.fields=4", "model.group=c4", "data.limit_train=64", "data.batch_size=32"),
    *("trainer.max_epochs=1", "trainer.limit_val_batches=1", "logger=none", "test=false", "threads=1"),
)


def weights(folder: Path, names: tuple[str, ...] = DIGITS, seed: int = 0) -> Path:
    """Of a small classifier without a group."""
    torch.manual_seed(seed)
    model = timm.create_model("gcsa_tiny", num_classes=len(names), in_chans=1, group="c1", depth=1, fields=4)
    return save_classifier(model, folder, input_size=(1, 28, 28), mean=(0.2,), std=(0.3,), label_names=names)


def pictures(count: int = 70, seed: int = 0) -> list[Any]:
    torch.manual_seed(seed)
    return list(torch.randint(0, 256, (count, 1, 28, 28), dtype=torch.uint8))


def teacher(source: Any, file: Path, names: tuple[str, ...] | None = DIGITS, **options: Any) -> Teacher:
    return Teacher(TeacherOptions(source=str(source), **options), names, file)


def test_answers_are_the_mean_over_poses_and_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, file = weights(tmp_path / "weights"), tmp_path / "answers.safetensors"
    shown = pictures()
    found = teacher(source, file).answers(shown, "train")
    network, prepare = gcsa.load(source).network, gcsa.load(source).preprocess
    with torch.inference_mode():
        images = torch.stack([prepare(picture) for picture in shown])
        poses = [images.rot90(k, (2, 3)) for k in range(4)]
        expected = torch.stack([network(x) for pose in poses for x in (pose, pose.flip(3))]).mean(0)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    with monkeypatch.context() as patch:
        patch.setattr(Member, "__call__", lambda *_: pytest.fail("the teacher answered again"))
        assert torch.equal(teacher(source, file).answers(shown, "train"), found)


def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, file, shown = weights(tmp_path / "weights"), tmp_path / "answers.safetensors", pictures()
    whole = teacher(source, tmp_path / "other.safetensors").answers(shown, "train")
    monkeypatch.setattr("gcsa.tasks.classification.teacher.SECONDS", -1)
    call, seen = Member.__call__, []

    def counted(member: Member, images: list[Any]) -> Tensor:
        if len(seen) == 64:
            raise KeyboardInterrupt
        seen.extend(images)
        return call(member, images)

    monkeypatch.setattr(Member, "__call__", counted)
    with pytest.raises(KeyboardInterrupt):
        teacher(source, file).answers(shown, "train")
    seen.clear()
    assert torch.equal(teacher(source, file).answers(shown, "train"), whole)
    assert len(seen) == 6


def test_answers_of_others_are_refused(tmp_path: Path) -> None:
    source, file = weights(tmp_path / "weights"), tmp_path / "answers.safetensors"
    teacher(source, file).answers(pictures(8), "train")
    with raises("answers.of_others"):
        teacher(source, file).answers(pictures(8, seed=1), "train")
    with raises("answers.of_others"):
        teacher(weights(tmp_path / "another", seed=1), file).answers(pictures(8), "train")
    with raises("answers.of_others"):
        teacher(source, file, symmetry="none").answers(pictures(8), "train")
    (tmp_path / "answers.train.safetensors").write_bytes(b"no tensors")
    with raises("answers.damaged"):
        teacher(source, file).answers(pictures(8), "train")


def test_scores_are_in_the_order_of_the_students_classes(tmp_path: Path) -> None:
    source, shown = weights(tmp_path / "weights"), pictures(8)
    order = DIGITS[::-1]
    rows = teacher(source, tmp_path / "a.safetensors").answers(shown, "train")
    assert torch.equal(teacher(source, tmp_path / "b.safetensors", order).answers(shown, "train"), rows.flip(1))
    with raises("teacher.classes"):
        teacher(source, tmp_path / "c.safetensors", (*DIGITS[:9], "nine"))


def test_several_teachers_answer_by_their_mean_probability(tmp_path: Path) -> None:
    sources = [str(weights(tmp_path / str(seed), seed=seed)) for seed in (0, 1)]
    shown = pictures(8)
    alone = [teacher(source, tmp_path / f"{k}.safetensors").answers(shown, "train") for k, source in enumerate(sources)]
    both = Teacher(TeacherOptions(source=sources), DIGITS, tmp_path / "both.safetensors").answers(shown, "train")
    expected = torch.stack([rows.softmax(1) for rows in alone]).mean(0)
    torch.testing.assert_close(both.softmax(1), expected, atol=1e-6, rtol=1e-5)


def test_the_contents_of_images_count(tmp_path: Path) -> None:
    shown = pictures(4)
    assert fingerprint(shown) == fingerprint([picture.clone() for picture in shown])
    assert fingerprint(shown) != fingerprint(shown[::-1])
    Image.new("L", (28, 28), 7).save(tmp_path / "a.png")
    Image.new("L", (28, 28), 8).save(tmp_path / "b.png")
    assert fingerprint([tmp_path / "a.png"]) != fingerprint([tmp_path / "b.png"])


def test_the_loss_is_the_cross_entropy_against_the_answers() -> None:
    torch.manual_seed(0)
    scores, answers = torch.randn(5, 3, requires_grad=True), torch.randn(5, 3)
    expected = torch.nn.functional.cross_entropy(scores, answers.softmax(1), reduction="none")
    torch.testing.assert_close(score_loss(scores, answers, 1.0), expected)
    hard = score_loss(scores, answers, 0.01)
    own = torch.nn.functional.cross_entropy(scores / 0.01, answers.argmax(1), reduction="none") * 0.01**2
    torch.testing.assert_close(hard, own, atol=1e-4, rtol=1e-3)


def test_labels_have_their_share(tmp_path: Path) -> None:
    """And images without a label have none."""
    torch.manual_seed(0)
    images, labels, answers = torch.randn(6, 1, 28, 28), torch.tensor([1, 0, -1, 1, -1, 0]), torch.randn(6, 2)
    losses = {}
    for share in (0.0, 0.5, 1.0):
        torch.manual_seed(0)
        options = {"teacher": {"source": "x", "label_share": share}, "label_smoothing": 0.0}
        module = Classifier({"name": "gcsa_tiny"}, {"opt": "adamw", "lr": 0.1}, CONSTANT, 2, 1, options, 2).eval()
        losses[share] = module.training_loss((images, torch.cat([labels[:, None].float(), answers], 1)))
    scores = module(images)
    taught = score_loss(scores, answers, 1.0)
    own = torch.nn.functional.cross_entropy(scores, labels.clamp(min=0), reduction="none")
    for share, loss in losses.items():
        mixed = torch.where(labels >= 0, torch.lerp(taught, own, share), taught)
        torch.testing.assert_close(loss, mixed.mean())


def test_a_student_of_scores_is_exact(tmp_path: Path) -> None:
    """With one tenth of the labels and the rest without; the teacher has no group, and is averaged."""
    source = weights(tmp_path / "teacher")
    options = (
        "model=gcsa_tiny",
        f"task.teacher.source={source}",
        "data.unlabelled=rest",
        "task.teacher.label_share=0.5",
    )
    cfg = composed(tmp_path / "run", *options, *SHORT)
    train(cfg, tmp_path / "run")
    predictor = gcsa.load(tmp_path / "run/weights")
    assert predictor.class_names == DIGITS
    assert_invariant(predictor.network, torch.rand(2, 1, 28, 28, dtype=torch.float64), "c4")
    stored = (tmp_path / "run/teacher.train.safetensors").stat().st_size
    assert stored > 10 * 4 * 1000, "all training images are answered, not those with labels alone"


@pytest.mark.parametrize("labelled", [False, True])
def test_a_student_of_features_is_an_encoder(labelled: bool, tmp_path: Path) -> None:
    """Also where its images have labels, of which it learns nothing."""
    folder, other = tmp_path / "images/deep", tmp_path / f"images/{'high' if labelled else 'deep'}"
    for number, picture in enumerate(pictures(40)):
        (place := (folder, other)[number % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture[0].numpy()).save(place / f"{number}.png")
    source = weights(tmp_path / "teacher")
    options = (
        *(
            "model=gcsa_tiny",
            f"data={'image_folder' if labelled else 'unlabelled'}",
            f"data.path={tmp_path}/images",
            "data.image_size=28",
            "data.in_chans=1",
        ),
        *(f"task.teacher.source={source}", "task.teacher.of=features", "monitor.metric=val/loss", "monitor.mode=min"),
        *(option for option in SHORT if "limit_train" not in option),
    )
    train(composed(tmp_path / "run", *options), tmp_path / "run")
    predictor = gcsa.load(tmp_path / "run/weights")
    assert predictor.class_names == ()
    features = predictor.features([folder / "0.png", folder / "2.png"])
    assert features.shape == (2, predictor.network.head_hidden_size)
    assert_invariant(predictor.embedding, torch.rand(2, 1, 28, 28, dtype=torch.float64), "c4")
    with raises("network.encoder"):
        predictor.predict(folder / "0.png")
    assert json.loads((tmp_path / "run/results.json").read_text())["results"].keys() == {"val/loss"}


def test_stored_answers(tmp_path: Path) -> None:
    files = [tmp_path / f"x/{name}.png" for name in ("b", "a")]
    (tmp_path / "answers.csv").write_text(
        "file,label,confidence,no,yes\nx/a.png,yes,0.9,0.1,0.9\n/else/x/b.png,no,1,1,0\n"
    )
    found = teacher(tmp_path / "answers.csv", tmp_path / "f", ("yes", "no"))
    with raises("answers.missing"):
        found.answers(files, "train")
    (tmp_path / "answers.csv").write_text("file,no,yes\nx/a.png,0.1,0.9\nx/b.png,1,0\n")
    rows = teacher(tmp_path / "answers.csv", tmp_path / "f", ("yes", "no")).answers(files, "train").exp()
    torch.testing.assert_close(rows, torch.tensor([[0.0, 1.0], [0.9, 0.1]]), atol=1e-6, rtol=0)
    (tmp_path / "answers.csv").write_text("file,no,yes\nx/e\u0301.png,0.1,0.9\n")
    accented = teacher(tmp_path / "answers.csv", tmp_path / "g", ("yes", "no")).answers([tmp_path / "x/é.png"], "train")
    torch.testing.assert_close(accented.exp(), torch.tensor([[0.9, 0.1]]), atol=1e-6, rtol=0)
    with raises("table.column"):
        teacher(tmp_path / "answers.csv", tmp_path / "f", ("yes", "maybe")).answers(files, "train")
    with raises("teacher.no_files"):
        teacher(tmp_path / "answers.csv", tmp_path / "f", ("yes", "no")).answers(pictures(2), "train")


def test_a_stored_table_names_the_classes_of_images_without_labels(tmp_path: Path) -> None:
    """As `gcsa classify` writes it."""
    folder = tmp_path / "images"
    folder.mkdir()
    rows = ["file,label,confidence,ood_score,no,yes"]
    for number, picture in enumerate(pictures(40)):
        Image.fromarray(picture[0].numpy()).save(folder / f"{number}.png")
        rows.append(f"images/{number}.png,yes,0.75,0.5,0.25,0.75")
    (tmp_path / "answers.csv").write_text("\n".join(rows))
    options = (
        *("model=gcsa_tiny", "data=unlabelled", f"data.path={folder}", "data.image_size=28", "data.in_chans=1"),
        *(f"task.teacher.source={tmp_path}/answers.csv", "monitor.metric=val/loss", "monitor.mode=min"),
        *(option for option in SHORT if "limit_train" not in option),
    )
    train(composed(tmp_path / "run", *options), tmp_path / "run")
    assert gcsa.load(tmp_path / "run/weights").class_names == ("no", "yes")


def classes_of_three(images: Tensor) -> Tensor:
    """A network of somebody else, which names no classes."""
    return images.mean((2, 3))


def test_networks_of_others_are_counted_before_any_work(tmp_path: Path) -> None:
    source = f"{__name__}:classes_of_three"
    assert teacher(source, tmp_path / "f", ("a", "b", "c")).width == 3
    with raises("answers.classes"):
        teacher(source, tmp_path / "f", ("a", "b"))


@pytest.mark.parametrize("kind", ["files", "coords"])
def test_stored_features(kind: str, tmp_path: Path) -> None:
    """Of images, and of the patches of a slide, as foundation models of pathology store them."""
    with h5py.File(tmp_path / "features.h5", "w") as opened:
        opened["features"] = [[1.0, 2.0], [3.0, 4.0]]
        if kind == "files":
            opened.create_dataset("files", data=["a.png", "slide_64_128.png"], dtype=h5py.string_dtype())
        else:
            opened["coords"] = [[0, 0], [64, 128]]
    found = teacher(tmp_path / "features.h5", tmp_path / "f", None, of="features")
    assert found.width == 2
    assert found.answers([tmp_path / "slide_64_128.png"], "train").tolist() == [[3.0, 4.0]]


@pytest.mark.parametrize(
    ("options", "key"),
    [
        (("task.teacher.source=gcsa_tiny.rotmnist", "data.unlabelled=EMPTY"), "data.unlabelled"),
        (("data.unlabelled=EMPTY",), "data.unlabelled_teacher"),
        (("task.teacher.source=gcsa_tiny.rotmnist", "data.unlabelled=rest"), "data.unlabelled_rest"),
        (("task.teacher.source=RUN/weights",), "teacher.own_weights"),
        (("task.teacher.source=gcsa_pooled_small.pcam",), "teacher.classes"),
        (("task.teacher.source=gcsa_unet_tiny.nuclei",), "teacher.no_classes"),
        (("task.teacher.source=gcsa_tiny.rotmnist", "task.teacher.of=features"), "monitor.no_classes"),
        (("task.teacher.source=gcsa_tiny.rotmnist", "task.mixup=0.2"), "mixup.teacher"),
        (("task.teacher.source=gcsa_tiny.rotmnist", "task.teacher.temperature=0"), "temperature"),
        (("task.teacher.source=gcsa_tiny.rotmnist", "task.class_weights=auto"), "class_weights.teacher"),
    ],
)
def test_what_a_run_refuses(
    options: tuple[str, ...], key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Teacher, "answers", lambda *_: pytest.fail("the teacher answered"))
    (tmp_path / "empty").mkdir()
    given = [text.replace("EMPTY", str(tmp_path / "empty")).replace("RUN", str(tmp_path / "run")) for text in options]
    with raises(key):
        train(composed(tmp_path / "run", "model=gcsa_tiny", "test=false", "logger=none", *given), tmp_path / "run")


def test_rest_is_what_the_limit_leaves_out(tmp_path: Path) -> None:
    data = create_datamodule("digits", limit_train=100, unlabelled="rest")
    data.setup("fit")
    labels = data.images("train").labels
    assert (int((labels >= 0).sum()), bool((data.images("val").labels >= 0).all())) == (100, True)
    assert len(labels) == len(create_whole())


def create_whole() -> Tensor:
    data = create_datamodule("digits")
    data.setup("fit")
    return data.images("train").labels
