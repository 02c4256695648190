"""Fit a distribution over 64 binary variables by expectation-maximisation, and sample from it.

The variables are the pixels of handwritten digits. Three networks over the same path: independent
pixels (rank 1), a rank for every node (neighbours in the order of reading are correlated), and one
rank shared by all (CP: a mixture of kinds of digits). Which is right for the data is seen on digits
that were held out.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits

from tensus_tn import Dag, DagTensor, fit_em


def main(figure: str = "") -> dict[str, float]:
    pixels = torch.from_numpy(load_digits().data > 7).long()
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    train, test = pixels[order[:1400]], pixels[order[1400:]]
    generator = torch.Generator().manual_seed(0)
    scores, samples = {}, {"data": test[:10]}
    for name, rank, ties in (
        ("rank 1", 1, "node"),
        ("chain", 4, "node"),
        ("mixture", 20, "global"),
    ):
        start = DagTensor(Dag.path(64), choices=2, rank=rank, ties=ties, generator=generator)
        fitted, report = fit_em(train, start, max_sweeps=20, tol=1e-3)
        # A pixel that was never set in training gets no probability: one in a million, say.
        scores[name] = fitted.log_prob(test).clamp_min(-1e3).mean().item()
        samples[name] = fitted.sample(10, generator=generator)
        print(
            f"{name:8} {fitted.num_parameters:5} parameters, held out {scores[name]:7.2f}; {report}"
        )
    if figure:
        draw(samples, figure)
    return scores


def draw(samples: dict[str, torch.Tensor], path: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    for row, (name, several) in zip(
        figure.subplots(len(samples), 10), samples.items(), strict=True
    ):
        for ax, pixels in zip(row, several, strict=True):
            ax.imshow(pixels.reshape(8, 8), cmap="Greys", vmin=0, vmax=1)
            ax.set(xticks=[], yticks=[])
        row[0].set_ylabel(name, rotation=0, ha="right", va="center")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", default="digits.png")
    main(parser.parse_args().figure)
