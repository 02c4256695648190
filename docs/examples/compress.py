"""Compress a photograph: a network over a DAG beside a tensor train and CP of the same size.

The image (32 x 32 pixels, three colours) becomes a tensor of order five: rows and columns are each
split into a coarse and a fine index. In the DAG below, one rank joins both indices of the rows and
the colour, the other both indices of the columns and the colour.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_sample_image

from tensus_tn import Dag, decompose

#: coarse row, fine row, colour, coarse column, fine column
BRIDGE = Dag([(0, 1), (1, 3), (1, 2), (0, 2), (2, 3)])


def photograph() -> torch.Tensor:
    """A flower, (8, 4, 3, 8, 4)."""
    image = torch.from_numpy(load_sample_image("flower.jpg")[100:356, 200:456].copy()).float() / 255
    small = image.reshape(32, 8, 32, 8, 3).mean(dim=(1, 3))
    return small.reshape(8, 4, 8, 4, 3).permute(0, 1, 4, 2, 3)


def as_image(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.permute(0, 1, 3, 4, 2).reshape(32, 32, 3).clamp(0, 1)


def main(figure: str = "") -> dict[str, float]:
    image = photograph()
    tries = {
        "tensor train": (Dag.path(5), 5, "node"),
        "CP": (Dag.path(5), 15, "global"),
        "DAG": (BRIDGE, 8, "node"),
    }
    images, errors = {"original": as_image(image)}, {}
    for name, (dag, rank, ties) in tries.items():
        network, report = decompose(image, dag, rank, ties=ties, restarts=1, max_sweeps=15)
        images[f"{name}, {network.num_parameters} numbers"] = as_image(network.to_dense().detach())
        errors[name] = report.error
        print(
            f"{name:13} rank {rank}  {network.num_parameters:4} of {image.numel()} numbers  {report}"
        )
    if figure:
        draw(images, figure)
    return errors


def draw(images: dict[str, torch.Tensor], path: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.7), layout="constrained")
    for ax, (name, image) in zip(figure.subplots(1, len(images)), images.items(), strict=True):
        ax.imshow(image.numpy())
        ax.set_title(name, fontsize=10)
        ax.axis("off")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", default="compress.png")
    main(parser.parse_args().figure)
