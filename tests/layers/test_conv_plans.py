"""The plan of a convolution follows from its shapes and its device."""

import pytest

from gcsa.layers.conv_plans import ConvShapes, Plan, choose_plan

WIDE = dict(order=4, kernel_size=8, num_functions=24, in_features=384, out_features=384)
POINTWISE = dict(WIDE, kernel_size=1, num_functions=1, pointwise=True)
SIBLINGS = dict(order=8, kernel_size=3, num_functions=6, in_features=128, out_features=128)
ALONE, SHARED = Plan("expansion", True), Plan("direct", True)


@pytest.mark.parametrize(
    ("shapes", "device", "plan"),
    [
        (WIDE, "cpu", ALONE),
        (WIDE, "cuda", Plan()),
        (WIDE, "meta", Plan()),
        (dict(WIDE, mixes=False), "cpu", Plan()),
        (dict(WIDE, out_features=96), "cpu", Plan()),
        (dict(WIDE, kernel_size=3, num_functions=6), "cpu", Plan()),
        (dict(WIDE, order=1), "cpu", Plan()),
        (dict(WIDE, order=2), "cpu", Plan()),
        (dict(WIDE, order=3), "cpu", Plan()),
        (SIBLINGS, "cpu", Plan()),
        (dict(SIBLINGS, num_siblings=3), "cpu", SHARED),
        (dict(SIBLINGS, num_siblings=3), "cuda", Plan()),
        (POINTWISE, "cpu", Plan("irreps")),
        (POINTWISE, "cuda", Plan("irreps")),
        (dict(POINTWISE, in_features=380), "cpu", Plan()),
        (dict(POINTWISE, order=8, in_features=192), "cpu", Plan("irreps")),
        (dict(POINTWISE, order=2), "cpu", Plan()),
        (dict(POINTWISE, pointwise=False), "cpu", Plan()),
        (dict(POINTWISE, mixes=False), "cpu", Plan()),
    ],
)
def test_plan(shapes: dict[str, int], device: str, plan: Plan) -> None:
    assert choose_plan(ConvShapes(**shapes), device) == plan
