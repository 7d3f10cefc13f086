"""What the predictors of all tasks share: they answer by the network as it is now, in eval mode, folded or not."""

from pathlib import Path
from typing import Any

import pytest
import torch

import gcsa

IMAGES = Path(__file__).parents[1] / "stored"


def classified(predictor: Any) -> Any:
    return torch.tensor(list(predictor.predict(IMAGES / "tissue.png").scores.values()))


def segmented(predictor: Any) -> Any:
    return torch.from_numpy(predictor.predict(IMAGES / "nuclei.png").labels)


def read(predictor: Any) -> Any:
    reading = predictor.predict(IMAGES / "fr17_1.png")
    return torch.tensor([reading.confidence, reading.orientation, *map(ord, reading.text)])


@pytest.mark.parametrize(
    ("name", "answer"),
    [("gcsa_pooled_small.pcam", classified), ("gcsa_unet_tiny.nuclei", segmented), ("gcsa_ocr_tiny.fr17", read)],
)
def test_answers_are_of_the_network_as_it_is(name: str, answer: Any) -> None:
    predictor: Any = gcsa.load(name)
    before = answer(predictor)
    predictor.network.train()  # as in fine-tuning; a batch norm would now take the statistics of the image
    assert torch.equal(answer(predictor), before)
    assert predictor.network.training, "the mode is left as it was"
    with torch.no_grad():
        for parameter in predictor.network.parameters():
            parameter.mul_(0.5)
    after = answer(predictor)
    assert after.shape != before.shape or not torch.equal(after, before)
    folded = answer(predictor.fold())
    assert folded.shape == after.shape
    assert torch.allclose(folded.double(), after.double(), atol=1e-4)
