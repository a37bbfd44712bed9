"""ResNet-(6n+2) for small images with a width multiplier: He, Zhang, Ren, Sun (2016), section 4.2."""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["CifarResNet", "ResidualBlock", "insertion_points"]

STAGE_CHANNELS = (16, 32, 64)
GROUPS = 4
MIN_SIDE = 4

Norm = Literal["group", "batch"]


class ResidualBlock(nn.Module):
    r"""Two 3 x 3 convolutions on a residual branch, post-activation.

    .. math:: z' = \mathrm{relu}(\mathrm{shortcut}(z) + n_2(W_2 * \mathrm{relu}(n_1(W_1 * z))))

    The shortcut is option A of He et al.: every ``stride``-th position, new channels filled with zeros, no parameters.
    Shapes: ``z (B, C_in, H, W)`` to ``(B, C_out, ceil(H / stride), ceil(W / stride))``.
    """

    def __init__(self, in_channels: int, out_channels: int, *, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = _norm(norm, out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.norm2 = _norm(norm, out_channels)
        self.stride = stride
        self.new_channels = out_channels - in_channels

    def forward(self, z: Tensor) -> Tensor:
        """Return the block's output."""
        branch = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(z)))))
        if self.stride > 1:
            z = z[:, :, :: self.stride, :: self.stride]
        if self.new_channels:
            z = F.pad(z, (0, 0, 0, 0, 0, self.new_channels))
        return F.relu(branch + z)


class CifarResNet(nn.Module):
    """Residual network with three stages of n blocks, 16, 32 and 64 channels times ``width``.

    Shapes: ``x (B, channels, H, W)`` with H, W >= 4 to logits ``(B, classes)``. Blocks are named ``layer1.0`` to
    ``layer3.{n-1}``. ``norm="group"`` uses 4 groups (their greatest common divisor with the number of channels), so
    that the samples of a batch stay independent in training; ``norm="batch"`` is the paper's.

    All weights come from ``generator``, on its device: He normal (fan-in) convolutions, uniform
    +-1/sqrt(fan-in) for the last layer, norms at identity. The global random state is neither read nor changed.

    Args:
        depth: 6n + 2; counts the convolutions and the last layer.
        width: Multiplier of the channels; products are rounded.
        classes: Number of logits.
        channels: Channels of the image.
        norm: ``"group"`` or ``"batch"``.
        generator: Source of the initial weights.

    Raises:
        ValueError: For a depth that is not 6n + 2, a width that leaves no channel, or an unknown norm.
    """

    def __init__(
        self,
        depth: int = 20,
        width: float = 1.0,
        classes: int = 10,
        channels: int = 3,
        norm: Norm = "group",
        *,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        if blocks < 1 or depth != 6 * blocks + 2:
            raise ValueError(f"CifarResNet: depth must be 6n + 2 with n >= 1 (8, 14, 20, ...), got {depth}.")
        if not (math.isfinite(width) and round(STAGE_CHANNELS[0] * width) >= 1):
            raise ValueError(
                f"CifarResNet: width must leave a channel of {STAGE_CHANNELS[0]}, got {width}; take at least 1/16."
            )
        if norm not in ("group", "batch"):
            raise ValueError(f"CifarResNet: norm must be 'group' or 'batch', got {norm!r}.")
        if classes < 1 or channels < 1:
            raise ValueError(f"CifarResNet: classes and channels must be positive, got {classes} and {channels}.")
        self.channels = channels
        stem, *_ = widths = [round(c * width) for c in STAGE_CHANNELS]
        # Constructors of torch.nn draw from the global generator; on the meta device there is nothing to draw.
        with torch.device("meta"):
            self.conv1 = nn.Conv2d(channels, stem, 3, padding=1, bias=False)
            self.norm1 = _norm(norm, stem)
            self.layer1 = _stage(stem, widths[0], blocks, stride=1, norm=norm)
            self.layer2 = _stage(widths[0], widths[1], blocks, stride=2, norm=norm)
            self.layer3 = _stage(widths[1], widths[2], blocks, stride=2, norm=norm)
            self.fc = nn.Linear(widths[2], classes)
        self.to_empty(device=generator.device)
        self._initialise(generator)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch of images."""
        if x.ndim != 4 or x.shape[1] != self.channels or min(x.shape[2:]) < MIN_SIDE:
            raise ValueError(
                f"CifarResNet: images must be (B, {self.channels}, H, W) with H, W >= {MIN_SIDE}, got {tuple(x.shape)}."
            )
        z = F.relu(self.norm1(self.conv1(x)))
        z = self.layer3(self.layer2(self.layer1(z)))
        return self.fc(z.mean(dim=(2, 3)))

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=generator)
            elif isinstance(module, nn.GroupNorm | nn.BatchNorm2d):
                module.reset_parameters()
        bound = self.fc.in_features**-0.5
        self.fc.weight.uniform_(-bound, bound, generator=generator)
        self.fc.bias.uniform_(-bound, bound, generator=generator)


def insertion_points(model: nn.Module) -> list[str]:
    """Return the names of the residual blocks, first to last: after each one a residual block can be inserted."""
    return [name for name, module in model.named_modules() if isinstance(module, ResidualBlock)]


def _stage(in_channels: int, out_channels: int, blocks: int, *, stride: int, norm: Norm) -> nn.Sequential:
    first = ResidualBlock(in_channels, out_channels, stride=stride, norm=norm)
    rest = [ResidualBlock(out_channels, out_channels, stride=1, norm=norm) for _ in range(blocks - 1)]
    return nn.Sequential(first, *rest)


def _norm(norm: Norm, channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels) if norm == "batch" else nn.GroupNorm(math.gcd(channels, GROUPS), channels)
