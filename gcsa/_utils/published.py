"""What comes with gcsa beside its code: conf/ and weights/ of a checkout, which an installed wheel has in the package."""

from pathlib import Path

PACKAGE = Path(__file__).parents[1]
CONFIG, TENSORS = "config.json", "model.safetensors"
"""The files of a folder of weights."""
ADAPTER_CONFIG = "adapter_config.json"
"""What a folder of an adapter has instead of `CONFIG`."""


def shipped(folder: str) -> Path:
    """Where "conf" or "weights" is: in the package if that was installed from a wheel, else beside it."""
    # The wheel's first: beside an installed package lie the folders of others.
    inside = PACKAGE / "_shipped" / folder
    return inside if inside.is_dir() else PACKAGE.parent / folder


def list_weights() -> list[str]:
    """The names of the trained weights and adapters that come with gcsa, in the order of the alphabet."""
    return sorted(_folders())


def list_models() -> list[str]:
    """Those that are whole models, not adapters of one."""
    return [name for name, folder in sorted(_folders().items()) if (folder / CONFIG).is_file()]


def published(name: str) -> Path | None:
    """The folder of the weights or the adapter called `name`, one of `list_weights()`; None for any other name."""
    return _folders().get(name)


def _folders() -> dict[str, Path]:
    configs = (CONFIG, ADAPTER_CONFIG)
    return {file.parent.name: file.parent for config in configs for file in shipped("weights").glob(f"*/{config}")}
