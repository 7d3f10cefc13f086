"""Segmentation: numbered objects or classes of pixels, whose label maps rotate with the image (design section 8)."""

from gcsa.tasks.segmentation.network import Segmenter
from gcsa.tasks.segmentation.predict import Segmentation, SegmentationPredictor

__all__ = ["Segmentation", "SegmentationPredictor", "Segmenter"]
