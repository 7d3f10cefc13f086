"""What weights may say, and what they are refused for: nothing that is read chooses code, an address, a path or a size."""

import json
import shutil
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

import gcsa
from gcsa import adapters, weights as checkpoints
from gcsa.cli import export, transcribe
from gcsa.models.create import create_model
from gcsa.tasks.classification.evaluate import model_and_data
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.segmentation import SegmentationPredictor
from gcsa.training.adapt import load_base
from tests.errors import raises

TINY: dict[str, Any] = dict(depth=1, fields=4, group="c4")
FOREIGN: list[dict[str, Any]] = [
    {"pretrained": True, "pretrained_cfg": {"url": "http://localhost:9/evil.py"}, "cache_dir": "here"},
    {"pretrained": True},
    {"pretrained_cfg": {"file": "/etc/passwd"}},
    {"pretrained_cfg_overlay": {"file": "/etc/passwd"}},
    {"checkpoint_path": "/etc/passwd"},
    {"features_only": True},
    {"cache_dir": "here"},
    {"scriptable": True},
    {"device": "cuda"},
    {"dtype": "float16"},
    {"__class__": "os.system"},
]
"""Options that a file asked for, which are none of a network; the first wrote a foreign file into the Python installation,
which then ran it."""
EXPLOITS: list[dict[str, Any]] = [
    *FOREIGN,
    {"group": "c100000"},
    {"fields": 10**9},
    {"depth": 10**6},
    {"depth": "3"},
    {"kernel_size": 99},
    {"num_heads": 1.5},
    {"depth": True},
    {"drop_path_rate": 2},
    {"drop_rate": float("nan")},
    {"img_size": [28, 28, 28]},
]
"""With values that no network has."""


@pytest.fixture(autouse=True)
def no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        pytest.fail("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the fixtures below are copies of."""
    folder = tmp_path_factory.mktemp("written")
    model = create_model("gcsa_tiny", num_classes=3, in_chans=1, **TINY)
    checkpoints.save_classifier(model, folder / "classifier", input_size=(1, 28, 28), mean=(0.5,), std=(0.25,))
    CTCRecognizer("ab c", hidden=8, **TINY).save_pretrained(folder / "recognizer")
    sizes: dict[str, Any] = dict(fields=[2], depths=[1], num_heads=[1], radii=[1], stem_fields=[2], rays=4)
    SegmentationPredictor.create("gcsa_unet_tiny", **sizes).save_pretrained(folder / "segmenter")
    return folder


@pytest.fixture
def classifier(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written / "classifier", tmp_path / "weights")


@pytest.fixture
def recognizer(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written / "recognizer", tmp_path / "recognizer")


@pytest.fixture
def segmenter(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written / "segmenter", tmp_path / "segmenter")


def changed(folder: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def as_checkpoint(folder: Path, change: dict[str, Any]) -> Path:
    """The weights of `folder` as train.py's .ckpt, with other options of the model."""
    weights = checkpoints.read(folder)
    options = {k: v for k, v in weights.options.items() if k not in ("num_classes", "in_chans")}
    hyper: dict[str, Any] = {"task": weights.task, "model": {"name": weights.architecture, **options, **change}}
    if weights.task == "classification":
        hyper |= {"num_classes": 3, "in_chans": 1, "preprocessing": weights.preprocessing}
    if "characters" in weights.entries:
        hyper["characters"] = weights.entries["characters"]
    path = folder.parent / "evil.ckpt"
    tensors = {f"model.{name}": tensor for name, tensor in weights.tensors.items()}
    torch.save({"state_dict": tensors, "hyper_parameters": hyper}, path)
    return path


READERS: dict[str, Callable[[Path], Any]] = {
    "load": gcsa.load,
    "evaluate": lambda source: model_and_data(named(source), {"name": "digits"}),
    "export": lambda source: export.open_model(str(source)),
    "adapter.base": lambda source: load_base(create_model("gcsa_tiny", **TINY), named(source), {}),
}


def named(source: Path) -> str:
    return str(source) if source.suffix == ".ckpt" else f"local-dir:{source}"


@pytest.mark.parametrize("kind", ["folder", "ckpt"])
@pytest.mark.parametrize(
    ("exploit", "reader"),
    [
        *((exploit, "load") for exploit in EXPLOITS),
        *((EXPLOITS[0], reader) for reader in READERS if reader != "load"),
    ],
    ids=str,
)
def test_classifiers_that_ask_for_more(exploit: dict[str, Any], kind: str, reader: str, classifier: Path) -> None:
    if kind == "ckpt":
        source = as_checkpoint(classifier, exploit)
    else:
        source = changed(classifier, lambda config: config["model_args"].update(exploit))
    before = sorted(classifier.parent.rglob("*"))
    with pytest.raises(ValueError, match=f"{next(iter(exploit))}[ =]|is damaged|was made with") as error:
        READERS[reader](source)
    assert "\n" not in str(error.value)
    assert sorted(classifier.parent.rglob("*")) == before


@pytest.mark.parametrize("kind", ["folder", "ckpt"])
@pytest.mark.parametrize(
    "exploit", [*FOREIGN[:2], {"fields": 10**9}, {"height": 10**9}, {"upsample": "2"}, {"hidden": -1}], ids=str
)
def test_recognisers_that_ask_for_more(
    exploit: dict[str, Any], kind: str, recognizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "ckpt":
        source = as_checkpoint(recognizer, exploit)
    else:
        source = changed(recognizer, lambda config: config["model_args"].update(exploit))
    before = sorted(recognizer.parent.rglob("*"))
    for command in (
        lambda: transcribe.main([str(source), "line.png"]),
        lambda: export.main([str(source), "--format", "folded", "--output", str(recognizer.parent / "out")]),
    ):
        with pytest.raises(SystemExit, match="2"):
            command()
        printed = capsys.readouterr().err
        assert printed.startswith("error: ")
        assert printed.count("\n") == 1
    with pytest.raises(ValueError, match=next(iter(exploit)) + "|is damaged"):
        gcsa.load(source)
    assert sorted(recognizer.parent.rglob("*")) == before


@pytest.mark.parametrize(
    "exploit", [*FOREIGN[:2], {"fields": 10**9}, {"rays": 10**9}, {"encoder": "hf-hub:a/b"}, {"pmin": "1"}], ids=str
)
def test_segmenters_that_ask_for_more(exploit: dict[str, Any], segmenter: Path) -> None:
    for source in (
        as_checkpoint(segmenter, exploit),
        changed(segmenter, lambda config: config["model_args"].update(exploit)),
    ):
        with pytest.raises(ValueError, match=f"{next(iter(exploit))}[ =]|is damaged") as error:
            gcsa.load(source)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("encoder", "words"),
    [
        ("hf-hub:someone/something", "architecture"),
        ("local-dir:/tmp", "architecture"),
        ("../../evil", "architecture"),
        ("resnet18\n", "architecture"),
        ("gcsa_unet_tiny", "unknown"),
        (7, "architecture"),
        (None, "architecture"),
        (["crnn"], "architecture"),
    ],
)
def test_architectures_are_of_a_closed_list(encoder: Any, words: str, classifier: Path, recognizer: Path) -> None:
    for folder in (classifier, recognizer):
        with pytest.raises(ValueError, match=words):
            gcsa.load(changed(folder, lambda config: config.update(architecture=encoder)))


def test_a_large_group_costs_nothing_until_the_tensors_fit_it(
    classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3.7 GB and more than a minute, were its kernels computed first."""
    changed(classifier, lambda config: config["model_args"].update(group="d64", kernel_size=15))
    for name in ("planar_tables", "steering_matrices", "fingerprint", "fingerprint_of"):
        monkeypatch.setattr(f"gcsa.layers.conv.{name}", pytest.fail)
    with raises("weights.other_architecture"):
        gcsa.load(classifier)


def test_an_encoder_of_timm_fetches_nothing(recognizer: Path) -> None:
    changed(recognizer, lambda config: config.update(architecture="resnet18", model_args={"height": 64, "hidden": 8}))
    with raises("weights.other_architecture"):
        gcsa.load(recognizer)


OOD_SCORE: dict[str, Any] = {"mean": [0.5, 1.0], "axes": [[1.0, 0.0]], "variances": [2.0], "rest": 0.5, "limit": 3.0}


def test_what_is_known_of_training_images(classifier: Path) -> None:
    folder = changed(classifier, lambda config: config.update(ood_score=OOD_SCORE))
    assert checkpoints.read(folder).entries["ood_score"] == OOD_SCORE


@pytest.mark.parametrize(
    "wrong",
    [
        {"mean": [0.5]},
        {"mean": ["a", 1.0]},
        {"axes": [[1.0, 0.0], [0.0, 1.0]]},
        {"axes": [[1e9, 0.0]]},
        {"axes": 1},
        {"mean": [10**400, 1.0]},
        {"variances": [0.0]},
        {"variances": []},
        {"rest": -1},
        {"limit": None},
        {"path": "/etc/passwd"},
    ],
    ids=str,
)
def test_it_is_checked(wrong: dict[str, Any], classifier: Path) -> None:
    folder = changed(classifier, lambda config: config.update(ood_score={**OOD_SCORE, **wrong}))
    with raises("weights.entry") as error:
        gcsa.load(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "cfg",
    [
        {"mean": ["a"]},
        {"std": [0.0]},
        {"mean": "0.5"},
        {"input_size": [1, 28]},
        {"input_size": [1, 28, 10**9]},
        {"std": [1e400]},
        {"mean": [10**400]},
        {"label_names": [1]},
        {"label_names": ["a"] * 10},
        {"label_names": ["é", "e\u0301"]},  # in two forms of Unicode
    ],
    ids=str,
)
def test_normalisation_is_checked(cfg: dict[str, Any], classifier: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["pretrained_cfg"].update({key: value for key, value in cfg.items() if key != "label_names"})
        config.update({key: value for key, value in cfg.items() if key == "label_names"})

    with pytest.raises(ValueError, match=r"cannot be read|is damaged"):
        checkpoints.read(changed(classifier, change))


def test_a_large_input_is_refused(classifier: Path) -> None:
    for size, fits in (
        ([1, 4096, 4096], True),
        ([1, 40, 8192], True),
        ([1, 4096, 4100], False),
        ([1, 8192, 8192], False),
    ):
        changed(classifier, lambda config, size=size: config["pretrained_cfg"].update(input_size=size))
        if fits:
            assert checkpoints.read(classifier).preprocessing["input_size"] == tuple(size)
        else:
            with raises("weights.input_size"):
                checkpoints.read(classifier)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"a": NaN}',
        b"\xff\xfe",
        b'{"a": 1' + b"0" * 5000 + b"}",
        b" " * (1 << 21),
    ],
    ids=["empty", "cut", "list", "null", "deep", "nan", "not utf-8", "long number", "too long"],
)
def test_what_is_no_config(content: bytes, classifier: Path) -> None:
    (classifier / "config.json").write_bytes(content)
    with raises("weights.damaged_json") as error:
        checkpoints.read(classifier)
    assert len(str(error.value)) < 500


def edited(classifier: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> Path:
    tensors = load_file(classifier / "model.safetensors")
    change(tensors)
    save_file(tensors, classifier / "model.safetensors")
    return classifier


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_are_finite(value: float, classifier: Path, recognizer: Path) -> None:
    edited(classifier, lambda tensors: tensors["head.fc.bias"].fill_(value))
    with raises("weights.not_finite"):
        gcsa.load(classifier)
    edited(recognizer, lambda tensors: tensors["head.classifier.bias"].fill_(value))
    with raises("weights.not_finite"):
        gcsa.load(recognizer)
    model = create_model("gcsa_tiny", **TINY)
    model.head.fc.bias.data.fill_(value)
    with raises("weights.not_finite"):
        checkpoints.save_classifier(model, classifier.parent / "new")
    assert not (classifier.parent / "new").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.update({"extra": torch.ones(1)}), "its extra is [1], the model's is missing"),
        (lambda t: t.pop("head.fc.bias"), "its head.fc.bias is missing, the model's is [3]"),
        (lambda t: t.update({"head.fc.bias": torch.ones(4)}), "its head.fc.bias is [4]"),
        (lambda t: t.update({"head.fc.bias": torch.ones(3, dtype=torch.int32)}), "holds head.fc.bias as torch.int32"),
        (lambda t: t.update({"head.fc.bias": torch.ones(3, dtype=torch.bool)}), "holds head.fc.bias as torch.bool"),
    ],
)
def test_tensors_are_those_of_the_model(change: Callable[[Any], Any], words: str, classifier: Path) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        gcsa.load(edited(classifier, change))
    assert words in str(error.value)


def test_another_kernel_basis(classifier: Path) -> None:
    edited(classifier, lambda tensors: tensors["stem.convs.0._extra_state"].add_(1))
    with raises("weights.shapes"):
        gcsa.load(classifier)


def test_nothing_is_allocated_for_a_file_that_lies(classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these options is within its range; together they would ask for terabytes."""
    huge = dict(fields=16384, depth=8, group="c16", head_fields=16384)
    changed(classifier, lambda config: config["model_args"].update(huge))
    seen: list[str] = []
    original = timm.create_model

    def create(*args: Any, **kwargs: Any) -> Any:
        model = original(*args, **kwargs)
        seen.extend(p.device.type for p in model.parameters())
        return model

    monkeypatch.setattr(timm, "create_model", create)
    with raises("weights.other_architecture"):
        gcsa.load(classifier)
    assert set(seen) == {"meta"}


def test_checkpoints_are_not_packed(classifier: Path) -> None:
    path = as_checkpoint(classifier, {})
    checkpoints.read(path)
    packed = path.with_name("packed.ckpt")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
    with raises("checkpoint.damaged"):
        checkpoints.read(packed)


def test_views_of_few_numbers_are_refused(classifier: Path) -> None:
    """A tensor of a million numbers that the file holds one of."""
    path = as_checkpoint(classifier, {})
    stored = torch.load(path, weights_only=True)
    stored["state_dict"]["model.head.fc.bias"] = torch.ones(1).expand(1_000_000)
    torch.save(stored, path)
    with raises("weights.too_short"):
        checkpoints.read(path)


class Evil:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("evil-was-here"),))


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": {}, "hyper_parameters": Evil()}, tmp_path / "evil.ckpt")
    with raises("checkpoint.damaged"):
        checkpoints.read(tmp_path / "evil.ckpt")
    assert not (tmp_path / "evil-was-here").exists()


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    import peft

    model = create_model("gcsa_tiny", num_classes=3, in_chans=1, **TINY)
    peft.get_peft_model(model, adapters.lora_config(model, 2)).save_pretrained(str(tmp_path / "adapter"))
    return tmp_path / "adapter"


@pytest.mark.parametrize(
    "change",
    [
        {"r": 10**9},
        {"r": 3},
        {"r": "2"},
        {"lora_alpha": float("inf")},
        {"lora_alpha": None},
        {"target_modules": "(a+)+$"},
        {"target_modules": [".*"]},
        {"target_modules": []},
        {"target_modules": ["q"] * 100_000},
        {"modules_to_save": "head"},
        {"peft_type": "PREFIX_TUNING"},
        {"peft_type": ["LORA"]},
        {"bias": "all"},
        {"rank_pattern": {"q": 10**9}},
        {"layer_replication": [[0, 10**9]]},
        {"use_dora": True},
        {"lora_dropout": 1},
    ],
    ids=lambda change: str(change)[:40],
)
def test_adapters_that_ask_for_more(change: dict[str, Any], adapter: Path) -> None:
    config = adapter / "adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **change}))
    model = create_model("gcsa_tiny", num_classes=3, in_chans=1, **TINY)
    with pytest.raises(ValueError, match="adapter") as error:
        adapters.load(model, adapter)
    assert "\n" not in str(error.value)


def test_adapters_without_nan(adapter: Path) -> None:
    tensors = load_file(adapter / "adapter_model.safetensors")
    next(tensor for tensor in tensors.values() if tensor.is_floating_point()).fill_(float("nan"))
    save_file(tensors, adapter / "adapter_model.safetensors")
    with raises("weights.not_finite"):
        checkpoints.read_adapter(adapter)


def test_what_was_written_is_read(classifier: Path, recognizer: Path) -> None:
    weights = checkpoints.read(classifier)
    assert weights.preprocessing == {"input_size": (1, 28, 28), "mean": (0.5,), "std": (0.25,)}
    model = gcsa.load(f"local-dir:{classifier}").network
    images = torch.randn(2, 1, 28, 28)
    again = timm.create_model(f"local-dir:{classifier}", pretrained=True).eval()
    assert torch.equal(model(images), again(images))
    (classifier.parent / "run").mkdir()
    shutil.copytree(classifier, classifier.parent / "run/weights")
    assert torch.equal(model(images), gcsa.load(classifier.parent / "run").network(images)), "of a run's folder"
    assert model.pretrained_cfg["mean"] == (0.5,)
    checkpoints.annotate(classifier, results={"test/accuracy": 0.5}, data="digits")
    assert checkpoints.read(classifier).about == {"data": "digits", "results": {"test/accuracy": 0.5}}
    lines = torch.rand(2, 1, 40, 80)
    first, second = gcsa.load(recognizer).network, gcsa.load(as_checkpoint(recognizer, {})).network
    assert torch.equal(first(lines), second(lines))
    with raises("weights.task"):
        gcsa.load(recognizer, task="classification")
    with raises("weights.task"):
        gcsa.load(classifier, task="recognition")
