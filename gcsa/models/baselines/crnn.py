"""The usual recogniser of text lines: convolutions and a recurrent network. `crnn.french` are weights of it."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor, nn

from gcsa._utils.options import Options, Range


@dataclass(frozen=True, kw_only=True)
class CRNNOptions(Options):
    """Options of `CRNN`."""

    channels: Annotated[Annotated[int, Range(1, 1024)], "of the first convolution"] = 20


class CRNN(nn.Module):
    """Convolutions and a bidirectional LSTM, the architecture of most line recognisers (Shi et al. 2017, An end-to-end
    trainable neural network for image-based sequence recognition), as an encoder whose maps have one row.

    Images (B, 1, height, W) give features (B, 2 * hidden, 1, W / 4).
    """

    def __init__(self, height: int = 40, channels: int = CRNNOptions.channels, hidden: int = 72) -> None:
        super().__init__()
        widths = (1, channels, 2 * channels, 4 * channels)
        pools = ((2, 2), (2, 2), (2, 1))
        steps = [
            nn.Sequential(
                nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(pool)
            )
            for before, after, pool in zip(widths[:-1], widths[1:], pools, strict=True)
        ]
        self.convolutions = nn.Sequential(*steps)
        self.recurrent = nn.LSTM(widths[-1] * (height // 8), hidden, num_layers=2, bidirectional=True, batch_first=True)
        self.num_features = 2 * hidden
        self.size_divisor = 8

    def forward_features(self, x: Tensor) -> Tensor:
        """(B, 1, height, W) to (B, 2 * hidden, 1, W / 4)."""
        x = self.convolutions(x).permute(0, 3, 1, 2).flatten(2)
        return self.recurrent(x)[0].transpose(1, 2).unsqueeze(2)
