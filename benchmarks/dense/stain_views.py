"""The nuclei of the 2018 Data Science Bowl, and each training image of stained tissue once more as the amount of its haematoxylin:

    python -m benchmarks.dense.stain_views FOLDER
    python train.py experiment=nuclei data=mask_folder data.path=FOLDER adapter=full adapter.base=gcsa_unet_tiny.nuclei \\
        data.augment.stain=0.1 optimizer.lr=0.001 trainer.max_epochs=20 trainer.check_val_every_n_epoch=5

The second command made `gcsa_unet_tiny.nuclei` from the weights of that name at commit 9379979 (docs/adr/0048). Validation and test images stay as they are.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from PIL import Image

from gcsa.images.stain import StainImage, may_be_stained
from gcsa.tasks.segmentation.data.datamodule import Nuclei


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    nuclei = Nuclei()
    for split, pairs in nuclei.pairs.items():
        images, masks = folder / split / "images", folder / split / "masks"
        images.mkdir(parents=True)
        masks.mkdir()
        for pair in pairs:
            shutil.copy(pair.image, images)
            shutil.copy(pair.mask, masks)
            image = nuclei.example(pair).image
            if split == "train" and may_be_stained(image):
                amounts = StainImage(image).window(0, 0, *image.shape)[..., 0]
                Image.fromarray(amounts).save(images / f"{pair.image.stem}_h.png")
                shutil.copy(pair.mask, masks / f"{pair.mask.stem}_h{pair.mask.suffix}")


if __name__ == "__main__":
    main()
