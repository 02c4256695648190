"""Small files in the formats of the original projects, all of the same little graph.

Authors 0-2, papers 3-6, conference 7: relations PA (papers receive from authors) and PC.
"""

import pickle

import numpy as np
import scipy.sparse as sp

NUM_NODES = 8
NODE_TYPE = np.array([0, 0, 0, 1, 1, 1, 1, 2])
PA = np.array([[3, 0], [4, 0], [4, 1], [5, 1], [6, 2]])  # row receives, column sends
PC = np.array([[3, 7], [4, 7], [5, 7], [6, 7]])
FEATURES = np.arange(16, dtype=np.float64).reshape(8, 2)
LABELS = [[[0, 1]], [[1, 0]], [[2, 1]]]  # train, val, test: node and class


def matrix(pairs, form="csr"):
    ones = np.ones(len(pairs))
    return sp.coo_matrix((ones, pairs.T), shape=(NUM_NODES, NUM_NODES)).asformat(form)


def write_gtn(folder, *, form="csr", protocol=2, node_types=False):
    folder.mkdir(parents=True, exist_ok=True)
    edges = [matrix(PA, form), matrix(PA[:, ::-1], form), matrix(PC, form)]
    for name, value in (("edges", edges), ("node_features", FEATURES), ("labels", LABELS)):
        (folder / f"{name}.pkl").write_bytes(pickle.dumps(value, protocol))
    if node_types:
        np.save(folder / "node_types.npy", NODE_TYPE)
    return folder


def write_diffmg(folder):
    """Users 0-2, items 3-6, brand 7; users know each other, and PA is read as item-user."""
    folder.mkdir(parents=True, exist_ok=True)
    friends = matrix(np.array([[0, 1], [1, 0]]), "coo")
    adjacency = {"0": friends, "1": matrix(PA[:, ::-1], "coo"), "2": matrix(PC, "coo")}
    (folder / "adjs_offset.pkl").write_bytes(pickle.dumps(adjacency))
    np.save(folder / "node_types.npy", NODE_TYPE)
    for sign, shift in (("pos", 0), ("neg", 1)):
        pairs = {s: np.array([[k, 4 + shift]]) for k, s in enumerate(("train", "val", "test"))}
        np.savez(folder / f"{sign}_pairs_offset.npz", **pairs)
    return folder


def write_herec(folder, ratings):
    """`ratings` (n, 3) of user, item, rating, counted from 1; every item has brand 1."""
    folder.mkdir(parents=True, exist_ok=True)
    items = int(ratings[:, 1].max())
    np.savetxt(folder / "user_item.dat", ratings, fmt="%d", delimiter="\t")
    brands = np.stack([np.arange(1, items + 1), np.ones(items), np.ones(items)], 1)
    np.savetxt(folder / "item_brand.dat", brands, fmt="%d", delimiter="\t")
    np.savetxt(
        folder / "user_user.dat", [[1, 2, 1], [2, 1, 1], [3, 1, 1]], fmt="%d", delimiter="\t"
    )
    (folder / "user_item_old.dat").write_text("no relation\n")
    return folder
