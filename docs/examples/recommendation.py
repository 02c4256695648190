"""Recommendation in two towers: which items will a user like?

Users have hidden tastes, items have brands, and a brand suits one taste. A pair that is to be predicted
may never have been seen, but user -> item -> brand -> item says what it is like. Either tower learns
its own meta-graph over these relations; a score is the dot product of both ends, and a bias of each.
"""

from __future__ import annotations

import torch

from tensus_tn.data import Dataset, NodePairs, Relation
from tensus_tn.tasks import PAIRS, Config, best_meta_graphs, build_model, fit, make_task

COUNTS = {"user": 300, "item": 400, "brand": 20}


def shop(seed: int = 0) -> Dataset:
    """A graph of purchases; nine in ten are of a brand that suits the user."""
    g = torch.Generator().manual_seed(seed)
    items, brands = COUNTS["user"], COUNTS["user"] + COUNTS["item"]
    taste = torch.randint(5, (COUNTS["user"],), generator=g)
    brand = torch.randint(COUNTS["brand"], (COUNTS["item"],), generator=g)

    def pairs(n: int, suits: bool) -> torch.Tensor:
        tried = torch.stack(
            [torch.randint(COUNTS[kind], (40 * n,), generator=g) for kind in ("user", "item")]
        )
        noise = torch.rand(40 * n, generator=g) < 0.03
        chosen = (brand[tried[1]] % 5 == taste[tried[0]]) ^ noise
        return tried[:, chosen == suits][:, :n].t() + torch.tensor([0, items])

    bought, made = (
        pairs(2000, True).t(),
        torch.stack([torch.arange(COUNTS["item"]) + items, brand + brands]),
    )
    relations = {
        "UI": Relation("item", "user", bought.flip(0)),
        "IU": Relation("user", "item", bought),
        "IB": Relation("brand", "item", made.flip(0)),
        "BI": Relation("item", "brand", made),
    }
    sizes = {"train": 2000, "val": 300, "test": 300}
    target = NodePairs(
        "user",
        "item",
        *({split: pairs(n, suits) for split, n in sizes.items()} for suits in (True, False)),
    )
    return Dataset("shop", COUNTS, relations, target)


def main(epochs: int = 80) -> float:
    task = make_task(shop())
    config = Config(**{**PAIRS, "epochs": epochs, "hidden": 32, "steps": 3})
    torch.manual_seed(0)
    model = build_model(config, task.spec)
    result = fit(model, task, config)
    print(f"AUC on pairs that were not seen: {result.test['auc']:.3f}")
    for tower, meta_graphs in zip(("user", "item"), best_meta_graphs(model, 1), strict=True):
        print(f"\n{tower}s, most probable meta-graph\n{meta_graphs[0]}")
    return result.test["auc"]


if __name__ == "__main__":
    main()
