import pytest
import torch
from gcsa.tasks.classification.sample import draw_sample, first_images, pick

from gcsa.tasks.classification.data import create_datamodule


def test_a_limited_sample_is_balanced_repeatable_and_in_batches():
    data = create_datamodule("digits", batch_size=64)
    sample = draw_sample(data, "val", 100)
    sizes, labels = zip(*((len(images), labels) for images, labels in sample), strict=True)
    assert sizes == (64, 36)
    assert torch.bincount(torch.cat(labels)).tolist() == pytest.approx([10] * 10, abs=1)
    assert torch.equal(first_images(sample, 5), first_images(draw_sample(data, "val", 100), 5))
    assert torch.equal(pick(sample, [3, 0]), first_images(sample, 4)[[3, 0]])


def test_only_the_asked_split_is_read(monkeypatch):
    data = create_datamodule("digits")
    monkeypatch.setattr(data, "read_test", lambda: pytest.fail("the test split was read"))
    assert len(draw_sample(data, "val")) == 180
    with pytest.raises(ValueError, match="unknown split 'validation': choose one of test, val, train"):
        draw_sample(data, "validation")
    with pytest.raises(ValueError, match="1 or more, not 0"):
        draw_sample(data, "val", 0)
