"""Adapters beside adapters, and models that are left as they were where one does not fit."""

import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from peft import PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer

import gcsa
from gcsa import adapters
from gcsa._utils.published import published
from gcsa.models.folding import fold
from gcsa.testing import randomize
from tests.errors import raises

from .test_convolutional_lora import small

X = torch.randn(2, 1, 24, 24, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("targets", "other"),
    [
        (["q"], dict(group="d4")),
        (["q", "mlp"], dict(fields=6)),
        (["stem", "q"], dict(separable=True)),  # some of whose layers are found, and others are not
    ],
    ids=["group", "fields", "layers"],
)
def test_a_refusing_model_stays_as_it_was(targets: list[str], other: dict[str, object], tmp_path: Path) -> None:
    adapted = get_peft_model(
        small(), adapters.lora_config(small(), 2, target_modules=targets, modules_to_save=["head"])
    )
    adapted.save_pretrained(str(tmp_path))
    model = small(**other)  # type: ignore[arg-type]
    model.stem.requires_grad_(False)  # type: ignore[union-attr]
    expected, trained = model(X), [p.requires_grad for p in model.parameters()]
    with raises("adapter.other_model"):
        adapters.load(model, tmp_path)
    assert [p.requires_grad for p in model.parameters()] == trained
    assert not any(isinstance(module, LoraLayer) for module in model.modules())
    assert torch.equal(model(X), expected)
    fold(model)


@pytest.mark.parametrize(
    ("other", "changed", "key"),
    [
        (dict(separable=True), {}, "adapter.other_model"),
        (dict(fields=6), {}, "adapter.other_model"),
        ({}, dict(target_modules=["q", "stem", "norm"]), "adapter.other_model"),  # which PEFT refuses in its middle
        ({}, dict(modules_to_save=["head"]), "adapter.other_model"),  # around the layer that the first one saves
        ({}, {}, "adapter.other_weights"),
    ],
    ids=["layers", "fields", "middle", "nested", "weights"],
)
def test_a_refusing_model_keeps_the_adapters_that_it_has(
    other: dict[str, object], changed: dict[str, list[str]], key: str, tmp_path: Path
) -> None:
    source = small(**other)  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in source.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter) * parameter.std(correction=0))
    get_peft_model(source, adapters.lora_config(source, 2, target_modules=["stem", "q"])).save_pretrained(str(tmp_path))
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | changed))
    model: Any = get_peft_model(small(), adapters.lora_config(small(), 2, target_modules=["q"]))
    model.base_model.model.stem.requires_grad_(True)
    model.eval()

    def state() -> list[Any]:
        parameters = [(name, parameter.requires_grad) for name, parameter in model.named_parameters()]
        return [parameters, [*model.peft_config], [*model.active_adapters], model.modules_to_save]

    expected, before = model(X), state()
    with raises(key):
        adapters.load(model, tmp_path, "second")
    assert state() == before
    assert torch.equal(model(X), expected)
    get_peft_model(small(), adapters.lora_config(small(), 2, target_modules=["stem"])).save_pretrained(str(tmp_path))
    adapters.load(model, tmp_path, "third")


def test_the_model_inside_an_adapted_one_is_refused(tmp_path: Path) -> None:
    adapted = get_peft_model(small(), adapters.lora_config(small(), 2))
    adapted.save_pretrained(str(tmp_path))
    with raises("adapter.inside"):
        adapters.load(adapted.base_model.model, tmp_path)  # type: ignore[arg-type]


def test_a_second_configuration_is_of_the_layers_themselves() -> None:
    model = small()
    wanted = adapters.lora_config(model, 3).target_modules
    adapted = get_peft_model(model, adapters.lora_config(model, 2))
    assert isinstance(adapted, PeftModel)
    for known in (adapted, adapted.base_model.model):
        assert adapters.lora_config(known, 3).target_modules == wanted
    adapted.add_adapter("other", adapters.lora_config(adapted, 3))
    adapted.set_adapter("other")
    assert adapted(X).shape == (2, 3)


def test_one_name_of_modules() -> None:
    model = small()
    assert adapters.lora_config(model, 2, target_modules="mlp") == adapters.lora_config(
        model, 2, target_modules=["mlp"]
    )


def test_an_adapter_by_its_name() -> None:
    name = "gcsa_ocr_tiny.print.de19"
    assert name in gcsa.list_weights()
    by_name, by_folder = gcsa.load(name).network, gcsa.load("gcsa_ocr_tiny.print", published(name)).network
    x = torch.rand(1, 1, 40, 80)
    for one, other in zip(by_name(x), by_folder(x), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_weights_of_another_base_are_refused(dtype: torch.dtype, tmp_path: Path) -> None:
    """Its tensors have the same shapes. The base itself is known in another precision, and beside another adapter."""
    get_peft_model(small(), adapters.lora_config(small(), 2)).save_pretrained(str(tmp_path))
    other = small()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter) * parameter.std(correction=0))
    with raises("adapter.other_weights"):
        adapters.load(other, tmp_path)
    adapters.load(adapters.load(small().to(dtype), tmp_path), tmp_path, "again")


def test_a_published_adapter_on_another_published_base() -> None:
    with raises("adapter.other_weights"):
        gcsa.load("gcsa_ocr_tiny.fr17", "gcsa_ocr_tiny.print.de19")


def test_a_new_classifier_is_trained_whole_and_answers_with_its_own_classes(tmp_path: Path) -> None:
    """Not with the names of the base's classes, also where it has as many."""
    model = timm.create_model("gcsa_tiny.rotmnist", pretrained=True, num_classes=2)
    adapted = get_peft_model(model, adapters.lora_config(model, 2))
    assert adapted.base_model.model.head.fc.modules_to_save["default"].weight.requires_grad
    adapted.eval().save_pretrained(str(tmp_path))
    image = torch.rand(1, 28, 28)
    predictor = gcsa.load("gcsa_tiny.rotmnist", tmp_path)
    assert predictor.class_names == ("0", "1")
    scores = adapted(predictor.preprocess(image)[None]).softmax(-1)[0]
    assert [*predictor.predict(image).scores.values()] == pytest.approx(scores.tolist(), abs=1e-5)
    (tmp_path / "label_names.json").write_text('{"label_names": ["healthy", "sick"]}')
    assert gcsa.load("gcsa_tiny.rotmnist", tmp_path).class_names == ("healthy", "sick")
    (tmp_path / "label_names.json").write_text('{"label_names": "healthy"}')
    with raises("adapter.label_names"):
        gcsa.load("gcsa_tiny.rotmnist", tmp_path)


def test_peft_loads_what_peft_saved(tmp_path: Path) -> None:
    adapted = get_peft_model(randomize(small()), adapters.lora_config(small(), 2)).eval()
    adapted.save_pretrained(str(tmp_path))
    assert torch.equal(PeftModel.from_pretrained(small(), tmp_path)(X), adapters.load(small(), tmp_path)(X))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": "all"},
        {"rank_pattern": {"q": 1}, "alpha_pattern": {"k": 3}},
        {"exclude_modules": ["v"], "modules_to_save": ["head"]},
    ],
    ids=str,
)
def test_what_was_trained_and_saved_is_loaded(options: dict[str, Any], tmp_path: Path) -> None:
    """With the running statistics of the stem, which training moves."""
    adapted = get_peft_model(small(stem_norm="batch"), adapters.lora_config(small(stem_norm="batch"), 2, **options))
    optimizer = torch.optim.SGD([p for p in adapted.parameters() if p.requires_grad], 0.1)
    adapted.train()(3 * X + 1).square().sum().backward()
    optimizer.step()
    adapted.eval().save_pretrained(str(tmp_path))
    base = small(stem_norm="batch")
    before, loaded = base(X), adapters.load(base, tmp_path)
    assert torch.allclose(loaded(X), adapted(X), atol=1e-6)
    assert torch.allclose(loaded.merge_and_unload()(X), adapted(X), atol=1e-4)
    assert not torch.allclose(before, adapted(X), atol=1e-3)
