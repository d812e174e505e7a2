# SPDX-License-Identifier: BSD-3-Clause
"""ResNet-50 v1.5 in plain PyTorch: 25.6 million parameters. v1.5 halves the picture in the 3×3 convolution."""

from torch import nn

BLOCKS = (3, 4, 6, 3)


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions, and a way around them."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            *_convolve(inputs, width, 1),
            nn.ReLU(inplace=True),
            *_convolve(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *_convolve(width, outputs, 1),
        )
        nn.init.zeros_(self.body[-1].weight)  # each block begins as its way around
        direct = inputs == outputs and stride == 1
        self.around = nn.Identity() if direct else nn.Sequential(*_convolve(inputs, outputs, 1, stride))
        self.last = nn.ReLU(inplace=True)

    def forward(self, picture):
        """The sum of both ways."""
        return self.last(self.body(picture) + self.around(picture))


def _convolve(inputs, outputs, kernel, stride=1):
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_in")
    return convolution, nn.BatchNorm2d(outputs)


def make_resnet50(classes=1000):
    """The whole network."""
    parts = [*_convolve(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, blocks in enumerate(BLOCKS):
        width = 64 << stage
        for block in range(blocks):
            parts.append(Bottleneck(inputs, width, 2 if stage and not block else 1))
            inputs = 4 * width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
