"""Where the known data sets come from, their node types and relations, and the check of a file."""

from __future__ import annotations

import difflib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

_GTN = "https://github.com/seongjunyun/Graph_Transformer_Networks"
_DIFFMG = "https://github.com/AutoML-Research/DiffMG"
_HEREC = "https://github.com/librahu/HIN-Datasets-for-Recommendation-and-Network-Embedding"


@dataclass(frozen=True)
class Source:
    """A known data set: its file and checksum, and what its original files leave unsaid.

    `ratings`: the relation that is to be predicted. `seeds`: of DiffMG's draws of positive and of
    negative pairs.
    """

    file: str
    sha256: str
    origin: str
    node_counts: dict[str, int]
    relations: dict[
        str, tuple[str, str]
    ]  # name: (receiving type, sending type), as matrices have it
    ratings: str = ""
    seeds: tuple[int, int] = (0, 0)


KNOWN = {
    "dblp": Source(
        "gtn_dblp.npz",
        "8cc8d4fc998736854ef40e859927eac9e00ed28648c196f05a72300b558a80ff",
        f"GTN's DBLP, {_GTN}",
        {"author": 4057, "paper": 14328, "conference": 20},
        {
            "PA": ("paper", "author"),
            "AP": ("author", "paper"),
            "PC": ("paper", "conference"),
            "CP": ("conference", "paper"),
        },
    ),
    "acm": Source(
        "gtn_acm.npz",
        "09fd14ab5512316e27a8aab95d9432f77b3cea070784c27c1f0005a90f6e3147",
        f"GTN's ACM, {_GTN}",
        {"paper": 3025, "author": 5912, "subject": 57},
        {
            "PA": ("paper", "author"),
            "AP": ("author", "paper"),
            "PS": ("paper", "subject"),
            "SP": ("subject", "paper"),
        },
    ),
    "imdb": Source(
        "gtn_imdb.npz",
        "dc5dc91bc3acae17cf6b29638c0c4a6d544faa1cc25c9293febc06caee9247e6",
        f"GTN's IMDB, {_GTN}",
        {"movie": 4661, "director": 2270, "actor": 5841},
        {
            "MD": ("movie", "director"),
            "DM": ("director", "movie"),
            "MA": ("movie", "actor"),
            "AM": ("actor", "movie"),
        },
    ),
    "amazon": Source(
        "rec_amazon.npz",
        "2ba7b665879d1e9d5dc0954d81b448439ddf0e6955c6f6eed6a7a588c1ae4396",
        f"HERec's Amazon, {_HEREC}, with the pairs of DiffMG, {_DIFFMG}",
        {"user": 6170, "item": 2753, "brand": 334, "category": 22, "view": 3857},
        {
            "UI": ("user", "item"),
            "IB": ("item", "brand"),
            "IC": ("item", "category"),
            "IV": ("item", "view"),
        },
        ratings="UI",
        seeds=(3, 4),
    ),
    "yelp": Source(
        "rec_yelp.npz",
        "ba7d326b64732c5dda39b35908508517181cc1e379262245129cb04e31ceb887",
        f"HERec's Yelp, {_HEREC}, with the pairs of DiffMG, {_DIFFMG}",
        {"user": 16239, "business": 14284, "compliment": 11, "category": 511, "city": 47},
        {
            "UU": ("user", "user"),
            "UB": ("user", "business"),
            "UCo": ("user", "compliment"),
            "BCa": ("business", "category"),
            "BC": ("business", "city"),
        },
        ratings="UB",
        seeds=(1, 2),
    ),
    "douban": Source(
        "rec_douban_partial.npz",
        "7318fa49ad86b5531b2230f7895454f369d632ec74be2e35b394b596d8be0b1e",
        f"HERec's Douban Movie, {_HEREC} (incomplete: its AUC can't be compared with others)",
        {"user": 13367, "movie": 12677, "group": 2753, "actor": 6311, "director": 2449, "type": 38},
        {
            "UU": ("user", "user"),
            "UM": ("user", "movie"),
            "UG": ("user", "group"),
            "MA": ("movie", "actor"),
            "MD": ("movie", "director"),
            "MT": ("movie", "type"),
        },
        ratings="UM",
        seeds=(5, 6),
    ),
}


def known_file(path: Path) -> Source | None:
    """The known data set whose file this is, by its name."""
    return next((source for source in KNOWN.values() if source.file == path.name), None)


def data_folder() -> Path:
    """`$TENSUS_DATA`, or `data` in the working directory."""
    return Path(os.environ.get("TENSUS_DATA", "data"))


def find(path: str | os.PathLike[str]) -> Path:
    """The path, if it exists; otherwise an error that says what is missing and where it is found."""
    path = Path(path)
    if path.exists():
        return path
    known = known_file(path)
    if known is None:
        names = [*KNOWN, "planted"]
        # Names are also those of presets, so another spelling is not taken for one, but suggested.
        close = difflib.get_close_matches(path.name.lower(), names, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise FileNotFoundError(f"there is no {path}; known data sets: {', '.join(names)}{hint}")
    raise FileNotFoundError(
        f"there is no {path}. The file comes from {known.origin}. Put it there, or set TENSUS_DATA "
        "to the folder that has it, or give the folder of the original files in its place."
    )


def verify(path: Path) -> None:
    """Compare the checksum of a known file; others are taken as they are."""
    known = known_file(path)
    if known is None:
        return
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != known.sha256:
        raise ValueError(
            f"{path} is damaged or another version: its SHA-256 is {found}, expected "
            f"{known.sha256}. It comes from {known.origin}."
        )


def has_pairs(source: str | os.PathLike[str]) -> bool:
    """Whether a source, as `load` takes it, is of pairs to be predicted, by its name and files alone.

    Example:
        >>> has_pairs("amazon"), has_pairs("dblp")
        (True, False)
    """
    path = Path(source)
    known = KNOWN.get(str(source)) or known_file(path)
    if known is not None:
        return bool(known.ratings)
    if not path.is_dir() or any((path / name).exists() for name in ("edges.pkl", "node.dat")):
        return False
    return (path / "adjs_offset.pkl").exists() or any(path.glob("*.dat"))
