"""Segmentation: numbered objects or classes of pixels, whose label maps rotate with the image (design section 8)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gcsa.tasks.segmentation.network import Segmenter
    from gcsa.tasks.segmentation.predict import Segmentation, SegmentationPredictor

__all__ = ["Segmentation", "SegmentationPredictor", "Segmenter"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'network' if name == 'Segmenter' else 'predict'}"), name)
