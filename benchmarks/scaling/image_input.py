"""Images a second that one core reads for training at ImageNet's size, by data path: `python -m benchmarks.scaling.image_input`.

Photographs of scikit-image, cut to ImageNet's usual 500 x 375 pixels and stored as JPEG of quality 90, as files and as one
tar shard (WebDataset's format). Each path ends in uint8 (3, 224, 224): `gcsa` is `data=image_folder`, which crops the centre
and is exact under rotations; the others cut, resize and flip at random, as DeiT does. Paths alternate; medians.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from skimage import data
from torch import Tensor
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms import v2

from benchmarks.common import alternate, arguments, save
from gcsa.images.prepare import Prepare
from gcsa.tasks.classification.data.image_folder import IMAGENET_MEAN, IMAGENET_STD, ImageFiles

SIZE, SIDE, COUNT = 224, (500, 375), 64


def photographs(count: int) -> list[bytes]:
    """JPEG files: windows of public photographs, no two alike."""
    rng = np.random.default_rng(0)
    sources = [Image.fromarray(photograph()) for photograph in (data.astronaut, data.coffee, data.chelsea, data.rocket)]
    files = []
    for i in range(count):
        source = sources[i % len(sources)]
        scale = rng.uniform(0.7, 1) * min(source.width / SIDE[0], source.height / SIDE[1])
        width, height = SIDE[0] * scale, SIDE[1] * scale
        left, top = rng.uniform(0, source.width - width), rng.uniform(0, source.height - height)
        window = source.resize(SIDE, Image.Resampling.BICUBIC, (left, top, left + width, top + height))
        buffer = io.BytesIO()
        window.save(buffer, "JPEG", quality=90)
        files.append(buffer.getvalue())
    return files


def with_pillow(content: bytes) -> Tensor:
    image = Image.open(io.BytesIO(content))
    image.draft("RGB", (SIZE, SIZE))
    return v2.functional.pil_to_tensor(AUGMENT(image.convert("RGB")))


def with_torchvision(content: bytes) -> Tensor:
    return AUGMENT(decode_jpeg(torch.frombuffer(bytearray(content), dtype=torch.uint8), ImageReadMode.RGB))


AUGMENT = v2.Compose([v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip()])


def from_files(files: list[Path], decode: Callable[[bytes], Tensor]) -> int:
    return len([decode(file.read_bytes()) for file in files])


def from_shard(shard: Path, decode: Callable[[bytes], Tensor]) -> int:
    with tarfile.open(shard) as members:
        contents = (members.extractfile(member) for member in members)
        return len([decode(content.read()) for content in contents if content])


def main() -> None:
    parsed = arguments(__doc__)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        contents, files = photographs(COUNT), []
        for i, content in enumerate(contents):
            files.append(Path(folder) / f"{i}.jpg")
            files[-1].write_bytes(content)
        shard = Path(folder) / "shard.tar"
        with tarfile.open(shard, "w") as members:
            for file in files:
                members.add(file, file.name)
        prepare = Prepare(SIZE, IMAGENET_MEAN, IMAGENET_STD)
        paths: dict[str, Callable[[], object]] = {
            "data=image_folder, centre": lambda: ImageFiles(files, prepare).read_all(),
            "files, Pillow, random crop": lambda: from_files(files, with_pillow),
            "files, torchvision, random crop": lambda: from_files(files, with_torchvision),
            "tar shard, torchvision, random crop": lambda: from_shard(shard, with_torchvision),
        }
        times = alternate(paths, parsed.repeats)
    rates = {name: COUNT / time["median_ms"] * 1e3 for name, time in times.items()}
    save("image_input", {"bytes_an_image": sum(map(len, contents)) / COUNT, "images_per_second_and_core": rates})


if __name__ == "__main__":
    main()
