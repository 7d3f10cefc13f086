"""ONNX files of narrow numbers: weights of 16 bits (bfloat16), or convolutions of 8 (int8).

Neither breaks the symmetry. The copies of a filter for the group elements hold the same numbers in other places. So each
output channel has the scale that its copies have, all are rounded alike, and they stay rotated copies of one another. A
map has one scale, each of its numbers is rounded by itself, and sums of integers are exact. What remains are the norms and
the attention in float32, whose last bit may tip a rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from gcsa._utils.errors import UserError

BATCH = 8
"""Images that int8 is calibrated on at a time."""
SMALLEST = 256
"""Numbers of a weight that is worth narrowing."""
PRODUCTS = ("Conv", "Gemm", "MatMul")


def narrow_weights(graph: Any) -> None:
    """Stores the float32 weights of an ONNX graph as bfloat16; the runtime widens them once, as it opens the file."""
    from onnx import TensorProto, helper, numpy_helper

    casts = []
    for wide in graph.initializer:
        values = numpy_helper.to_array(wide)
        if wide.data_type != TensorProto.FLOAT or values.size < SMALLEST:
            continue
        rounded = torch.from_numpy(values.copy()).bfloat16().view(torch.int16).numpy().astype("<i2")
        name = f"{wide.name}_bf16"
        casts.append(helper.make_node("Cast", [name], [wide.name], to=TensorProto.FLOAT))
        wide.CopyFrom(helper.make_tensor(name, TensorProto.BFLOAT16, values.shape, rounded.tobytes(), raw=True))
    nodes = list(graph.node)
    del graph.node[:]
    graph.node.extend([*casts, *nodes])  # in the order in which they are computed


def quantized(graph: Any) -> list[str]:
    """The nodes of an ONNX graph that are computed in int8: the convolutions, and products with weights. The last of these, the
    classifier, is not, nor is attention: accuracy hangs on them, and they cost little. Raises ValueError where none is left."""
    weights = {weight.name for weight in graph.initializer}
    products = [
        node
        for node in graph.node
        if node.op_type in PRODUCTS and weights.intersection(node.input[:2]) and not feeds_exponential(graph, node)
    ]
    if products and products[-1].op_type != "Conv":
        products.pop()
    if not products:
        raise UserError("it has no convolution and no other product with weights to compute in int8", "export.int8")
    return [node.name for node in products]


def feeds_exponential(graph: Any, node: Any, steps: int = 4) -> bool:
    """Whether an exponential is among the next few nodes, as behind the random features of linear attention."""
    outputs = set(node.output)
    for _ in range(steps):
        users = [user for user in graph.node if outputs.intersection(user.input) and user.op_type not in PRODUCTS]
        if any(user.op_type == "Exp" for user in users):
            return True
        outputs = {output for user in users for output in user.output}
    return False


def quantize(source: Path, target: Path, images: Tensor) -> None:
    """Writes the ONNX file `source` with convolutions in int8 into `target`: weights with one scale for each output channel,
    maps with the one that holds what they are for `images`."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Batches(CalibrationDataReader):
        def __init__(self, name: str, batches: Sequence[Tensor]) -> None:
            self.feeds = iter([{name: batch.numpy()} for batch in batches])

        def get_next(self) -> dict[str, Any] | None:
            return next(self.feeds, None)

    with TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared.onnx"
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        graph = onnx.load(prepared).graph
        quantize_static(
            prepared,
            target,
            Batches(graph.input[0].name, images.split(BATCH)),
            nodes_to_quantize=quantized(graph),
            per_channel=True,
            activation_type=QuantType.QUInt8,  # times int8 weights, which processors multiply fastest
            weight_type=QuantType.QInt8,
            reduce_range=True,  # 7 bits of weights: without VNNI instructions, sums of products of 8 would overflow
        )
