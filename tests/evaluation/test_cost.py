from itertools import count

import timm
import torch
from torch import nn

from gcsa.evaluation.cost import count_flops, images_per_second, measure_cost

from .toys import Steerable


def test_flops_of_a_convolution():
    conv = nn.Conv2d(3, 8, 5, stride=2, padding=2)
    assert count_flops(conv, torch.randn(3, 16, 16)) == 2 * 3 * 8 * 5 * 5 * 8 * 8


def test_flops_of_attention_are_counted():
    class Attention(nn.Module):
        def forward(self, x):
            x = x.flatten(2)
            return nn.functional.scaled_dot_product_attention(x, x, x)

    assert count_flops(Attention(), torch.randn(3, 4, 4)) == 2 * 2 * 3 * 3 * 16


def test_flops_leave_out_what_a_batch_pays_once():
    assert count_flops(Steerable("c4"), torch.randn(1, 12, 12)) == 2 * 12 * 12 * 25 * (1 * 16 + 16 * 12)


def test_flops_of_modules_that_return_a_view_of_a_parameter_are_counted():
    class Weight(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(16, 5))

        def forward(self):
            return self.weight.view(16, 5)

    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = Weight()

        def forward(self, x):
            return x.flatten(1) @ self.weight()

    model = Product()
    assert count_flops(model, torch.randn(1, 4, 4)) == 2 * 16 * 5
    assert model.weight.weight.requires_grad


def test_cost_of_a_timm_model():
    model = timm.create_model("resnet10t", num_classes=10, in_chans=1)
    cost = measure_cost(model, torch.randn(4, 1, 28, 28))
    assert cost.parameters == sum(p.numel() for p in model.parameters())
    assert (cost.batch, cost.device) == (4, f"{torch.get_num_threads()} CPU thread(s)")
    assert cost.images_per_second > 1
    assert cost.flops > 1e6


def test_speed_counts_images_and_not_batches(monkeypatch):
    clock = count(step=0.5)  # seconds: each forward pass seems to take half a second
    monkeypatch.setattr("gcsa.evaluation.cost.time.perf_counter", lambda: next(clock))
    assert images_per_second(nn.Identity(), torch.zeros(1, 1, 2, 2)) == 2
    assert images_per_second(nn.Identity(), torch.zeros(10, 1, 2, 2)) == 20
