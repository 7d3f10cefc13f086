"""ONNX graphs without the transposes that only change the layout of a map, and back.

Our maps are (B, H, W, N, C), and convolutions of ONNX take (B, N * C, H, W). In PyTorch the change between them is a view. In ONNX each is a
copy, and keeps onnxruntime from computing convolutions and what stands between them in its own blocked layout.
"""

from __future__ import annotations

from typing import Any

ELEMENTWISE = ("Gelu", "Elu", "Relu", "Identity")
"""Operations of one tensor that take any layout: those between the convolutions of our networks."""


def without_transposes(model: Any) -> Any:
    """The ONNX model without pairs of transposes that cancel: between them stand only reshapes, which end in the shape in which they
    began, and elementwise operations. These then run in the layout in front of the first transpose. The function is the same."""
    from onnx import shape_inference

    while True:
        model = shape_inference.infer_shapes(model)
        if not _cancel(model.graph):
            return model


def _cancel(graph: Any) -> bool:
    """Removes the pairs that can be seen now, which may bring others together; returns whether there were any."""
    shapes = {value.name: _shape(value) for value in graph.value_info}
    readers: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    for output in graph.output:
        readers.setdefault(output.name, []).extend([None, None])  # what is given out stays
    same: dict[str, str] = {}
    removed: list[Any] = []
    for first in graph.node:
        if first.op_type != "Transpose" or any(first is node for node in removed):
            continue
        between, name = [], first.output[0]
        while len(readers.get(name, [])) == 1:
            node = readers[name][0]
            if node.op_type not in ("Reshape", *ELEMENTWISE):
                break
            between.append(node)
            name = node.output[0]
        last = readers[name][0] if len(readers.get(name, [])) == 1 else None
        shape = shapes.get(first.output[0])
        if last is None or last.op_type != "Transpose" or shape is None or shapes.get(name) != shape:
            continue
        order = _permutation(first)
        if [order[axis] for axis in _permutation(last)] != list(range(len(order))):
            continue
        source = first.input[0]
        for node in between:
            if node.op_type != "Reshape":
                node.input[0], source = source, node.output[0]
        same[last.output[0]] = source
        removed += [first, last, *(node for node in between if node.op_type == "Reshape")]
    for node in graph.node:
        for place, name in enumerate(node.input):
            while name in same:
                name = same[name]
            node.input[place] = name
    kept = [node for node in graph.node if not any(node is one for one in removed)]
    read = {name for node in kept for name in node.input}
    weights = [weight for weight in graph.initializer if weight.name in read]
    for field, values in ((graph.node, kept), (graph.initializer, weights), (graph.value_info, ())):
        del field[:]
        field.extend(values)
    return bool(removed)


def _shape(value: Any) -> list[int | str] | None:
    """The sides of a tensor, a name where one is free; None where any is unknown."""
    sides = [side.dim_value or side.dim_param for side in value.type.tensor_type.shape.dim]
    return sides if all(sides) else None


def _permutation(transpose: Any) -> list[int]:
    return next(list(attribute.ints) for attribute in transpose.attribute if attribute.name == "perm")
