"""Fine-tuning by convolutional LoRA: a base trained on digits, then runs of `adapter=lora` on top of it."""

import json
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import timm
import torch
from safetensors.torch import load_file

import gcsa
from gcsa import adapters
from gcsa.evaluation.audit import invariance_error
from gcsa.tasks.classification.module import Classifier
from gcsa.testing import relative_error
from gcsa.training.adapt import adapt, average_with_base, averageable, count_parameters, save_and_merge
from gcsa.training.optimizer import make_optimizer
from gcsa.weights import read_adapter
from tests.errors import raises
from tests.runs import TINY, composed, killed_at, train

SMALL = (
    *(
        "model=gcsa_tiny",
        "model.group=c4",
        "model.fields=4",
        "model.num_heads=1",
        "model.depth=1",
        "model.head_fields=8",
    ),
    *TINY[3:],
    "trainer.max_epochs=1",
)
IMAGES = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))


def small(folder: Path, base: str | Path, *overrides: str) -> None:
    train(composed(folder, *SMALL, "adapter=lora", "adapter.rank=2", f"adapter.base={base}", *overrides), folder)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run without an adapter."""
    folder = tmp_path_factory.mktemp("base")
    train(composed(folder, *SMALL), folder)
    return folder


@pytest.fixture(scope="module")
def finished(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with an adapter on that base, tested at its end."""
    folder = tmp_path_factory.mktemp("finished")
    small(folder, base / "checkpoints/best.ckpt", "test=true", "optimizer.lr=0.02")
    return folder


def weights(folder: Path) -> torch.nn.Module:
    return timm.create_model(f"local-dir:{folder / 'weights'}", pretrained=True).eval()


def test_adapter_merged_model_and_checkpoint_are_one_model(base: Path, finished: Path) -> None:
    best = finished / "checkpoints/best.ckpt"
    assert "base" not in torch.load(best, weights_only=True)["hyper_parameters"]["adapter"]
    expected = Classifier.load_from_checkpoint(best, map_location="cpu", weights_only=True).eval()(IMAGES)
    assert relative_error(weights(base)(IMAGES), expected) > 0.01
    assert relative_error(weights(finished)(IMAGES), expected) < 1e-5
    assert read_adapter(finished / "adapter").label_names == gcsa.load(finished / "weights").class_names
    loaded = adapters.load(weights(base), finished / "adapter")
    assert relative_error(loaded(IMAGES), expected) < 1e-5
    with loaded.disable_adapter():
        assert torch.equal(loaded(IMAGES), weights(base)(IMAGES))
    assert {path.name for path in (finished / "adapter").iterdir()} >= {
        "adapter_config.json",
        "adapter_model.safetensors",
    }


def test_only_deltas_and_the_classifier_are_trained(base: Path, finished: Path) -> None:
    before = load_file(base / "weights/model.safetensors")
    changed = {
        name
        for name, tensor in load_file(finished / "weights/model.safetensors").items()
        if not torch.equal(tensor, before[name])
    }
    assert changed == {
        *(f"stages.0.attn.{name}.weight" for name in ("q", "k", "v", "out")),
        "head.fc.weight",
        "head.fc.bias",
    }


def test_results_say_what_was_trained(base: Path, finished: Path) -> None:
    with_adapter, without = (json.loads((folder / "results.json").read_text()) for folder in (finished, base))
    loaded = adapters.load(weights(base), finished / "adapter", is_trainable=True)
    assert with_adapter["trainable"] == loaded.get_nb_trainable_parameters()[0]
    assert with_adapter["parameters"] == without["parameters"] == without["trainable"] > with_adapter["trainable"]
    assert with_adapter["flops"] == without["flops"]
    assert with_adapter["results"]["invariance_error"] < 1e-5
    assert invariance_error(loaded.eval(), IMAGES) < 1e-5


def test_resumes_bit_for_bit(base: Path, finished: Path, tmp_path: Path) -> None:
    options = (base / "checkpoints/best.ckpt", "optimizer.lr=0.02", "checkpoint_every_n_steps=2")
    with killed_at(3):
        small(tmp_path, *options)
    small(tmp_path, *options, "ckpt_path=last")
    first, second = (torch.load(f / "checkpoints/last.ckpt", weights_only=True) for f in (finished, tmp_path))
    assert first["global_step"] == second["global_step"] == 4
    for key in ("state_dict", "current_model_state"):
        assert first[key].keys() == second[key].keys()
        assert all(torch.equal(tensor, second[key][name]) for name, tensor in first[key].items()), key


def classifier(num_classes: int = 10, **model: Any) -> Classifier:
    options = dict(name="gcsa_tiny", group="c4", fields=4, num_heads=1, depth=1, head_fields=8)
    return Classifier(
        {key: value for key, value in {**options, **model}.items() if value is not None},
        optimizer={"opt": "adamw", "lr": 0.1},
        schedule=dict(name="constant", warmup=0.0, final=0.0),
        num_classes=num_classes,
        in_chans=1,
    )


def options(source: str | Path, **others: Any) -> dict[str, Any]:
    default = dict(rank=2, alpha=None, rslora=False, dropout=0.0, target_modules=["q", "v"], train_head=False)
    return {"base": str(source), **default, **others}


def saved(module: Classifier, path: Path) -> Path:
    torch.save({"state_dict": module.state_dict(), "hyper_parameters": dict(module.hparams)}, path)
    return path


def trained_names(module: Classifier) -> set[str]:
    return {name for name, parameter in module.model.named_parameters() if parameter.requires_grad}


def test_the_classifier_is_left_alone_where_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, module = classifier(), classifier()
    adapt(module, options(saved(base, tmp_path / "base.ckpt")))
    assert not any("head" in name for name in trained_names(module))
    assert torch.equal(module(IMAGES), base(IMAGES))
    trainable, total = count_parameters(module.model)
    assert total == sum(p.numel() for p in base.model.parameters())
    assert (
        capsys.readouterr().out
        == f"trainable {trainable:,} of {total:,} parameters ({100 * trainable / total:.1f} %)\n"
    )
    optimized = {
        id(p)
        for group in make_optimizer(module.model, module.hparams["optimizer"]).param_groups
        for p in group["params"]
    }
    assert optimized == {id(p) for p in module.model.parameters() if p.requires_grad}


def test_a_classifier_of_other_classes_is_fresh_and_trained(tmp_path: Path) -> None:
    base, module = classifier(), classifier(num_classes=3)
    fresh = module.model.head.fc.weight.detach().clone()
    adapt(module, options(saved(base, tmp_path / "base.ckpt")))
    assert module.hparams["adapter"]["train_head"]
    assert torch.equal(module.model.head.fc.weight, fresh)
    assert {name for name in trained_names(module) if "lora" not in name} == {
        f"base_model.model.head.fc.modules_to_save.default.{name}" for name in ("weight", "bias")
    }
    assert torch.equal(module.model.forward_features(IMAGES), base.model.forward_features(IMAGES))
    again = Classifier.load_from_checkpoint(lightning_checkpoint(module, tmp_path), weights_only=True)
    assert torch.equal(again(IMAGES), module(IMAGES))


def lightning_checkpoint(module: Classifier, folder: Path) -> Path:
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer = pl.Trainer(accelerator="cpu", default_root_dir=folder, **quiet)
    trainer.strategy.connect(module)
    trainer.save_checkpoint(folder / "whole.ckpt")
    return folder / "whole.ckpt"


def test_statistics_are_averaged_and_counts_are_not() -> None:
    first, second = (timm.create_model("test_efficientnet", num_classes=2) for _ in range(2))
    first.bn1.running_var.fill_(3)
    second.bn1.num_batches_tracked.fill_(7)
    base = {name: tensor.detach().clone() for name, tensor in averageable(first).items()}
    average_with_base(second, base, 0.5)
    assert torch.equal(second.bn1.running_var, torch.full_like(second.bn1.running_var, 2))
    assert (int(second.bn1.num_batches_tracked), int(first.bn1.num_batches_tracked)) == (7, 0)


def test_an_average_with_other_classes_is_refused(base: Path) -> None:
    source = base / "checkpoints/best.ckpt"
    with raises("adapter.base_share"):
        adapt(classifier(num_classes=3), {"base": str(source), "base_share": 0.5})
    with raises("adapter.base_share", value=1):
        adapt(classifier(), {"base": str(source), "base_share": 1})
    adapt(classifier(num_classes=3), {"base": str(source), "base_share": 0})


def test_running_statistics_belong_to_the_adapter(tmp_path: Path) -> None:
    """Batch norm changes without a gradient: the base keeps its own statistics, and the adapter brings others."""
    make = lambda: classifier(
        name="test_efficientnet", group=None, fields=None, num_heads=None, depth=None, head_fields=None
    )
    base, module = make(), make()
    adapt(module, options(saved(base, tmp_path / "base.ckpt"), target_modules=["conv_pw"]))
    module.train()(5 * IMAGES + 2)
    expected = module.eval()(IMAGES)
    save_and_merge(module, tmp_path / "adapter")
    assert torch.allclose(module(IMAGES), expected, atol=1e-5)
    loaded = adapters.load(base.model.eval(), tmp_path / "adapter")
    assert relative_error(loaded(IMAGES), expected) < 1e-5
    with loaded.disable_adapter():
        assert relative_error(loaded(IMAGES), expected) > 0.01


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (dict(base="nowhere.ckpt"), r"there is no checkpoint nowhere\.ckpt"),
        (
            dict(base="local-dir:nowhere"),
            r"there is no nowhere/config\.json: name a folder of weights.*gcsa_tiny\.rotmnist, gcsa_unet_tiny\.nuclei$",
        ),
        (dict(rank=0), r"adapter\.rank=0"),
        (dict(rank=5), r"rank 5 is larger than the 4 fields of stages\.0\.attn\.q: use 4 or less"),
        (dict(alpha=0), r"adapter\.alpha=0"),
        (dict(dropout=1), r"adapter\.dropout=1"),
        (dict(target_modules="q"), r"adapter\.target_modules=q"),
        (
            dict(target_modules=["q", "head"], train_head=True),
            r"adapter\.target_modules names head\.fc, which is trained whole",
        ),
    ],
)
def test_wrong_options(base: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        adapt(classifier(), {**options(base / "checkpoints/best.ckpt"), **changed})


def test_models_other_than_the_base(base: Path) -> None:
    """Of another shape, and of the same shapes but another function."""
    wrong_shape = "weights.other_architecture"
    for model, key in (
        (dict(fields=6), wrong_shape),
        (dict(padding_mode="circular"), "adapter.base_option"),
    ):
        with raises(key):
            adapt(classifier(**model), options(base / "checkpoints/best.ckpt"))


def test_refused_before_data_is_read(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gcsa.tasks.classification.data.digits.Digits._read", lambda *_: pytest.fail("data was read"))
    with raises("adapter.target_modules") as error:
        small(tmp_path, base / "checkpoints/best.ckpt", "adapter.target_modules=[query]")
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_bases_that_are_damaged_or_adapted(base: Path, finished: Path, tmp_path: Path) -> None:
    whole, path = (base / "checkpoints/best.ckpt").read_bytes(), tmp_path / "base.ckpt"
    for content in (whole[: len(whole) // 2], b""):
        path.write_bytes(content)
        with raises("checkpoint.damaged"):
            adapt(classifier(), options(path))
    with raises("checkpoint.adapter"):
        adapt(classifier(), options(finished / "checkpoints/best.ckpt"))
    module = classifier()
    adapt(module, options(f"local-dir:{finished / 'weights'}"))
    assert torch.equal(module.eval()(IMAGES), weights(finished)(IMAGES))
    with raises("weights.other_architecture"):
        adapt(classifier(name="gcsa_linear_tiny"), options(f"local-dir:{finished / 'weights'}"))
    with raises("adapter.base_option"):
        adapt(classifier(global_pool="avg"), options(f"local-dir:{finished / 'weights'}"))
    (finished / "weights/config.json").write_text("{")
    with raises("weights.damaged_json"):
        adapt(classifier(), options(f"local-dir:{finished / 'weights'}"))


def test_without_peft(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gcsa._utils.importing.find_spec", lambda name: None)
    with raises("peft.missing"):
        adapt(classifier(), options("base.ckpt"))
