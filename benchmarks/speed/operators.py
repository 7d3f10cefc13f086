"""Where a training step of a small network goes, by operator: `python -m benchmarks.speed.operators --threads 1`.

Forward and backward in float32, by PyTorch's profiler. The rate of convolutions counts their multiplications and additions, forward and
backward, and stands beside the rate of a large matrix product on the same machine.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.common import CPU, arguments, machine_rates, save, timing
from benchmarks.speed.bfloat16 import networks

NAMES = (
    "gcsa_tiny",
    "gcsa_pooled_small",
    "gcsa_hybrid_small",
    "gcsa_unet_tiny.nuclei",
    "gcsa_ocr_tiny.french",
    "resnet18",
)
KINDS = {
    "convolutions": ("mkldnn_convolution", "convolution_backward", "thnn_conv2d", "_conv_depthwise2d"),
    "matrix products, LSTM": ("mm", "addmm", "bmm", "baddbmm", "mkldnn_rnn_layer", "mkldnn_rnn_layer_backward"),
    "attention": (
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
    ),
    "GELU": ("gelu", "gelu_backward"),
    "norms": (
        "native_batch_norm",
        "native_batch_norm_backward",
        "native_layer_norm",
        "native_layer_norm_backward",
    ),
}
"""Operators of aten by kind; all others are copies and arithmetic by element."""


def step(model: nn.Module, x: Tensor) -> None:
    model.zero_grad()
    model(x).square().mean().backward()


def measure(model: nn.Module, x: Tensor, repeats: int, matmul_gflops: float) -> dict[str, Any]:
    """Milliseconds of a step, the share of each kind, and what share of `matmul_gflops` the convolutions reach."""
    model.train()
    with FlopCounterMode(display=False) as counter:
        step(model, x)
    counts = counter.get_flop_counts()["Global"]
    flops = sum(count for operator, count in counts.items() if "convolution" in str(operator))
    with timing(), profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(repeats):
            step(model, x)
    times = {event.key.removeprefix("aten::"): event.self_cpu_time_total / repeats for event in profiler.key_averages()}
    total = sum(times.values())
    kinds = {kind: sum(times.get(name, 0) for name in names) for kind, names in KINDS.items()}
    return {
        "milliseconds": total / 1e3,
        "shares": {kind: time / total for kind, time in kinds.items()},
        "convolutions of the matrix-product rate": flops / kinds["convolutions"] / 1e3 / matmul_gflops,
    }


def main() -> None:
    args = arguments(__doc__)
    rates = machine_rates()
    cases = networks(NAMES)
    rows = {
        name: {"batch": len(x), "size": [*x.shape[1:]], **measure(model, x, args.repeats, rates["matmul_gflops"])}
        for name, (model, x) in cases.items()
    }
    save("operators", {"rates": rates, "networks": rows}, CPU)


if __name__ == "__main__":
    main()
