"""Dense prediction: U-Nets whose masks, heatmaps and objects turn with the image (design section 8).

`Segmenter` is a network with what reading its outputs takes, `load_segmenter` opens one, and `UNet` is the network alone.
"""

from gcsa.dense.segmenter import Segmenter, load_segmenter
from gcsa.dense.unet import UNet

__all__ = ["Segmenter", "UNet", "load_segmenter"]
