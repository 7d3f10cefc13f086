"""TRIDENT, which is in no registry: what its documentation says of `CustomInferenceEncoder` and its data sets."""

import pickle

import torch
from PIL import Image

from benchmarks.integrations.embeddings import StandIn
from gcsa.integrations.trident import encoder
from tests.integrations.pictures import patches, poses


def test_the_same_features_for_every_pose() -> None:
    custom = StandIn("gcsa", *encoder("gcsa_pooled_small.pcam")).eval()
    assert custom.precision is torch.float32  # no autocast
    transforms = pickle.loads(pickle.dumps(custom.eval_transforms))  # for the workers of a DataLoader
    for pixels in patches(2)[:, 10:-9, 10:-9]:
        with torch.inference_mode():
            rows = custom(torch.stack([transforms(Image.fromarray(pose)) for pose in poses(pixels)]))
        assert rows.shape == (8, 96)
        assert ((rows - rows[0]).norm(dim=1) / rows[0].norm()).max() < 1e-5
