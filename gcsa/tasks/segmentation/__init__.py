"""Dense prediction: U-Nets whose masks, heatmaps and objects turn with the image (design section 8).

`Segmenter` is a network with what reading its outputs takes, `load_segmenter` opens one, and `UNet` is the network alone.
"""

from gcsa.models.unet import UNet
from gcsa.tasks.segmentation.segmenter import Segmenter, load_segmenter

__all__ = ["Segmenter", "UNet", "load_segmenter"]
