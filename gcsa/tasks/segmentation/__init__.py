"""Dense prediction: U-Nets whose masks, heatmaps and objects turn with the image (design section 8).

`Segmenter` is a network with the normalisation of its images and its thresholds; `UNet` is the bare network.
"""

from gcsa.models.unet import UNet
from gcsa.tasks.segmentation.segmenter import Segmenter

__all__ = ["Segmenter", "UNet"]
