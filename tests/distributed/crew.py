"""Real processes for the tests: started once, brought together anew for each task by gloo."""

import multiprocessing
import os
import tempfile
import traceback
from datetime import timedelta
from pathlib import Path

TIMEOUT = timedelta(seconds=120)  # on a busy machine


def _serve(rank, pipe):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    while (task := pipe.recv()) is not None:
        size, store, timeout, function, arguments = task
        try:
            dist.init_process_group(
                "gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=timeout
            )
            dist.barrier()  # all are connected before the first may fail
            pipe.send((True, function(*arguments)))
        except BaseException as error:  # the test is told
            pipe.send((False, f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


class Crew:
    """Processes that run a function of a module together, as ranks of one group."""

    def __init__(self):
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["tensus_tn.distributed", "tests.distributed.tasks"])
        self.folder = tempfile.TemporaryDirectory()
        self.members = []
        self.tasks = 0

    def _hire(self, size):
        while len(self.members) < size:
            ours, theirs = self.context.Pipe()
            process = self.context.Process(
                target=_serve, args=(len(self.members), theirs), daemon=True
            )
            process.start()
            self.members.append((process, ours))

    def run(self, size, function, *arguments):
        """What each of `size` processes returned, by rank; a failure of any is raised here."""
        results = self.outcomes(size, function, *arguments)
        for rank, (good, result) in enumerate(results):
            assert good, f"process {rank}: {result}"
        return [result for _, result in results]

    def outcomes(self, size, function, *arguments):
        """As `run`, but (True, result) or (False, the error as text) of each."""
        self._hire(size)
        self.tasks += 1
        store = Path(self.folder.name) / f"store-{os.getpid()}-{self.tasks}"
        for _, pipe in self.members[:size]:
            pipe.send((size, store, TIMEOUT, function, arguments))
        return [pipe.recv() for _, pipe in self.members[:size]]

    def close(self):
        for _, pipe in self.members:
            pipe.send(None)
        for process, _ in self.members:
            process.join(10)
        self.folder.cleanup()
