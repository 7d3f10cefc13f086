"""What the equivariant models are compared with. timm knows those of papers by name; their modules are imported when one is asked for."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from timm.models import generate_default_cfgs, register_model

from gcsa.models.registry import default_cfg

_TOKENS = dict(first_conv="patch_embed", classifier="head")
_GREY = {**default_cfg((1, 28, 28), 2, num_classes=10), **_TOKENS}
_FIXED = {**_GREY, "fixed_input_size": True}
_CNN = dict(default_cfg((3, 32, 32), 16, num_classes=10), first_conv="features.0", classifier="fc")
_GSA = default_cfg((1, 28, 28), 4, num_classes=10, first_conv="stem.attn.qkv")
_MODELS = {
    "performer_tiny": ("performer", _GREY),
    "performer_horn": ("performer", {**default_cfg((3, 32, 32), 1, num_classes=10), **_TOKENS}),
    "linformer_tiny": ("efficient", _FIXED),
    "routing_transformer_tiny": ("efficient", _FIXED),
    "alexnet_small": ("plain_cnn", _CNN),
    "vgg16_small": ("plain_cnn", _CNN),
    "gsa_tiny": ("gsa", _GSA),
    "gsa_small": ("gsa", default_cfg((3, 96, 96), 8, num_classes=2, first_conv="stem.attn.qkv")),
    "z2sa_tiny": ("gsa", _GSA),
}
"""The module of each, and timm's description of it."""
default_cfgs = generate_default_cfgs({name: cfg for name, (_, cfg) in _MODELS.items()})


def import_baseline(name: str) -> None:
    """Imports the module of the model `name`, which declares its options, if it is one of these."""
    if name in _MODELS:
        import_module(f"{__name__}.{_MODELS[name][0]}")


def _entry_point(name: str, module: str) -> Callable[..., Any]:
    def create(pretrained: bool = False, **kwargs: Any) -> Any:
        return getattr(import_module(f"{__name__}.{module}"), name)(pretrained, **kwargs)

    create.__name__, create.__doc__ = name, f"The baseline `{__name__}.{module}.{name}`."
    return register_model(create)


globals().update({name: _entry_point(name, module) for name, (module, _) in _MODELS.items()})
