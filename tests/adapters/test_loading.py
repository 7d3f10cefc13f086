"""Adapters beside adapters, and models that are left as they were where one does not fit."""

import re
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from peft import PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from torch import nn

import gcsa
from gcsa import adapters
from gcsa._utils.published import published
from gcsa.models.folding import fold
from gcsa.testing import randomize

X = torch.randn(2, 1, 24, 24, generator=torch.Generator().manual_seed(0))


def small(group: str = "c4", **options: object) -> nn.Module:
    torch.manual_seed(0)
    options = {"fields": 4, "num_heads": 2, "depth": 1, "stem_strides": (4, 2), "num_classes": 3, **options}
    return randomize(timm.create_model("gcsa_tiny", group=group, **options)).eval()


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
    with pytest.raises(ValueError, match=f"the adapter in {re.escape(str(tmp_path))} is of another model"):
        adapters.load(model, tmp_path)
    assert [p.requires_grad for p in model.parameters()] == trained
    assert not any(isinstance(module, LoraLayer) for module in model.modules())
    assert torch.equal(model(X), expected)
    fold(model)


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
    by_name, by_folder = (gcsa.load("gcsa_ocr_tiny.print", source).network for source in (name, published(name)))
    x = torch.rand(1, 1, 40, 80)
    for one, other in zip(by_name(x), by_folder(x), strict=True):
        assert torch.equal(one, other)


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
