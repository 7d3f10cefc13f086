"""lightly-train: `lightly_train.pretrain(model=LightlyModel(model), ...)` trains ours without labels.

With our model's name, lightly-train averages over positions, and the channels of a rotated image are permuted. With the
model itself, it refuses the class. Its methods need a map and a row of equally many features, so this map is the head
applied to each position: scalar fields, which move with the image.
"""

from __future__ import annotations

from typing import TypedDict

from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa.layers.layout import from_nchw
from gcsa.layers.pooling import InvariantHead
from gcsa.models.backbone import Backbone


class Features(TypedDict, total=False):
    """A ForwardFeaturesOutput of lightly-train: a map (B, D, h, w) and a row (B, D)."""

    features: Tensor
    cls_token: Tensor


class LightlyModel(nn.Module):
    """A model of ours as lightly-train's `ModelWrapper`; it saves the model that `get_model` returns.

    Raises ValueError for a model that is not a `Backbone` of gcsa, or without a pooling.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        if not isinstance(model, Backbone):
            raise UserError(
                f"{type(model).__name__} is no classifier of gcsa: lightly-train takes other models itself",
                "network.not_gcsa",
            )
        if model.head.global_pool == "":
            raise UserError(
                'the model has global_pool="" and no row of features: make it with "avg" or "max"',
                "network.global_pool",
            )
        self._model = model

    def feature_dim(self) -> int:
        return self._model.head_hidden_size

    def forward_features(self, x: Tensor) -> Features:
        """Images (B, C, H, W) to a map (B, D, h, w) of scalar fields and, as "cls_token", to invariant features (B, D)."""
        maps, head = self._model.forward_features(x), self._model.head
        assert isinstance(head, InvariantHead)
        fields = head.expand(from_nchw(maps, head.order))
        pooled = fields.amax(3) if head.global_pool == "max" else fields.mean(3)
        return {"features": head.norm(pooled).permute(0, 3, 1, 2), "cls_token": head(maps, pre_logits=True)}

    def forward_pool(self, x: Features) -> dict[str, Tensor]:
        """The result of `forward_features` to features (B, D, 1, 1)."""
        return {"pooled_features": x["cls_token"][..., None, None]}

    def get_model(self) -> Backbone:
        return self._model
