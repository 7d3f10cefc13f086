"""The side of kraken in `gcsa transcribe`: reads {"files", "classes", "batch", "threads", "repeats"} from stdin, writes
JSON as the last line of stdout. Needs kraken 7 and nothing of gcsa."""

import json
import statistics
import sys
import time
from importlib.metadata import version

import torch
from kraken.configs import RecognitionInferenceConfig, VGSLRecognitionTrainingConfig
from kraken.containers import BBoxLine, Segmentation
from kraken.lib.codec import PytorchCodec
from kraken.lib.vgsl import TorchVGSLModel
from PIL import Image


def page(files: list[str]) -> tuple[Image.Image, Segmentation]:
    """All lines under one another on one page, because kraken makes batches of the lines of a page only."""
    images = [Image.open(file).convert("L") for file in files]
    whole = Image.new("L", (max(image.width for image in images), sum(image.height for image in images)), 255)
    lines, top = [], 0
    for i, image in enumerate(images):
        whole.paste(image, (0, top))
        lines.append(BBoxLine(id=str(i), bbox=(0, top, image.width, top + image.height)))
        top += image.height
    return whole, Segmentation("bbox", "lines", "horizontal-lr", False, lines)


def main() -> None:
    request = json.load(sys.stdin)
    torch.set_num_threads(request["threads"])
    torch.manual_seed(0)
    spec = VGSLRecognitionTrainingConfig().spec
    model = TorchVGSLModel(vgsl=f"{spec[:-1]} O1c{request['classes']}]", model_type=["recognition"], seg_type="bbox")
    model.add_codec(PytorchCodec([chr(0x4E00 + i) for i in range(request["classes"] - 1)]))
    model.prepare_for_inference(
        RecognitionInferenceConfig(batch_size=request["batch"], num_line_workers=0, accelerator="cpu")
    )
    times = []
    for i in range(1 + request["repeats"]):
        start = time.perf_counter()
        read = list(model.predict(*page(request["files"])))
        if i > 0:
            times.append((time.perf_counter() - start) * 1e3)
    assert len(read) == len(request["files"])
    print(
        json.dumps(
            {
                "version": version("kraken"),
                "torch": torch.__version__,
                "spec": model.spec,
                "parameters": sum(p.numel() for p in model.parameters()),
                "median_ms": statistics.median(times),
                "min_ms": min(times),
                "max_ms": max(times),
                "lines_per_second": len(read) / statistics.median(times) * 1e3,
            }
        )
    )


if __name__ == "__main__":
    main()
