"""Digits for the demo: examples, and a plain network trained on upright ones to stand beside ours."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from gcsa.tasks.classification.data.digits import upright_digits

HELD_OUT = 359
"""Scans that the plain network does not see, as many as the test split of `data=digits` has."""
STEPS, BATCH = 300, 64


def plain_network() -> tuple[nn.Module, float]:
    """A convolutional network of two layers, trained here on upright scans, and its share of right answers on the
    `HELD_OUT` last ones, upright as well. Always the same on one machine."""
    images, labels = upright_digits()
    images = images.sub(0.5).div(0.5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(1, 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 7 * 7, 10),
        )
        optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
        for _ in range(STEPS):
            rows = torch.randint(len(images) - HELD_OUT, (BATCH,))
            loss = F.cross_entropy(network(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    network.eval()
    with torch.no_grad():
        right = network(images[-HELD_OUT:]).argmax(1) == labels[-HELD_OUT:]
    return network, right.float().mean().item()
