"""Before they work together, processes compare what they are about to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b

import torch

from tensus_tn._version import __version__
from tensus_tn.distributed.processes import PeerError, Processes

_MISTAKE = "mistake"


class DisagreementError(ValueError):
    """Processes that are about to work together have different versions or settings, or one can't."""


def handshake(processes: Processes, settings: Mapping[str, object]) -> None:
    """Refuse to go on where processes have different versions or settings; all call this together.

    Args:
        processes: Who takes part.
        settings: Names and values, compared by what `repr` says of them.

    Example:
        >>> handshake(Processes.of(None), {"rank": 2})
    """
    mine = {"tensus_tn": __version__, "torch": torch.__version__.partition("+")[0]}
    mine.update({name: repr(value) for name, value in settings.items()})
    everyone = processes.gather(mine)
    mistakes = {rank: said[_MISTAKE] for rank, said in enumerate(everyone) if _MISTAKE in said}
    if mistakes:
        said = "; ".join(f"process {rank} has {mistake}" for rank, mistake in mistakes.items())
        raise DisagreementError(f"a mistake in the arguments: {said}")
    for name in dict.fromkeys(name for said in everyone for name in said):
        values = [said.get(name, "nothing") for said in everyone]
        if len(set(values)) > 1:
            said = ", ".join(f"process {rank} has {v}" for rank, v in enumerate(values))
            raise DisagreementError(f"the processes have different {name}: {said}")


def quick_check(processes: Processes, settings: Mapping[str, object]) -> None:
    """The same before every propagation: eight bytes, and words only where they differ."""
    if processes.size == 1:
        return
    digest = blake2b(repr(list(settings.items())).encode(), digest_size=7).digest()
    mine = int.from_bytes(digest, "little")
    lowest, highest = processes.extremes(mine)
    if lowest != highest:
        handshake(processes, settings)


@contextmanager
def telling(
    processes: Processes, meet: Callable[[Processes, Mapping[str, object]], None] = handshake
) -> Iterator[None]:
    """For checks of what a process was given, before all of them `meet`: others learn of a mistake.

    They do so where they meet, and do not wait for a process that will not come.

    Args:
        processes: Who takes part.
        meet: `handshake` or `quick_check`, whatever comes next on all.

    Example:
        >>> processes = Processes.of(None)
        >>> with telling(processes):
        ...     pass  # checks that may raise an error on some of the processes
        >>> handshake(processes, {"rank": 2})
    """
    try:
        yield
    except (DisagreementError, PeerError):  # all know of it
        raise
    except Exception as error:
        if processes.size > 1:
            meet(processes, {_MISTAKE: error})
        raise


@contextmanager
def together(processes: Processes) -> Iterator[None]:
    """For checks that all make at the same time: they meet at the end, and learn of each mistake.

    Example:
        >>> with together(Processes.of(None)):
        ...     pass  # checks that may raise an error on some of the processes
    """
    with telling(processes):
        yield
    handshake(processes, {})
