"""How a mutant is tried: it is imported or compiled, and a child process runs the tests of it."""

import contextlib
import importlib.machinery
import os
import random
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from subprocess import CalledProcessError

import hypothesis
import opt_einsum  # noqa: F401  imported once, before the children
import pytest
import torch

from tests.csrc import building
from tests.mutate.mutants import Mutant, cpp_mutants, python_mutants

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120  # of processor time in a stage: a mistake that makes a loop endless is caught too
Job = tuple[str, Path, list[str]]  # see `building.compile_job`

hypothesis.settings.register_profile("mutants", database=None, deadline=None)


class Queries:
    """Mistakes in what answers the queries of a tensor network."""

    modules = (
        "queries", "query_plans", "conditional", "structure", "index", "tables", "execute",
        "semiring", "sampling", "top_k", "tensor", "interchange", "resize",
    )  # fmt: skip

    def mutants(self) -> Iterator[Mutant]:
        for name in self.modules:
            yield from python_mutants(ROOT / f"tensus_tn/network/{name}.py")

    def outcome(self, mutant: Mutant | None) -> str:
        folder = ROOT / "tests/network"
        tests = sorted(set(folder.glob("test_*.py")) - {folder / "test_compile.py"})
        if mutant is None:
            return run_alone(lambda: pytest_code(tests, "not slow"))
        nearest = [folder / f"test_{mutant.path.stem}.py", folder / "test_queries.py"]
        stages = (
            random_queries,
            lambda: pytest_code(nearest, "not slow"),
            lambda: pytest_code(tests, "not slow"),
        )
        outcomes = (run_alone(stage, lambda: import_mutant(mutant)) for stage in stages)
        return "caught" if "caught" in outcomes else "survived"


class Kernels:
    """Mistakes in the kernels for CPUs, compiled for one instruction set, without optimisation."""

    isa = "plain"  # the one that is always there; all of them have one source
    flags = ("-O0",)
    headers = (
        "vector", "work", "inner_loops", "weights", "gather_mix", "mix_gather", "edge_gradient",
    )  # fmt: skip

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mutants-"))
        building.CSRC = shutil.copytree(building.CSRC, self.folder / "csrc")
        self.whole = [building.compile_job(job, self.folder) for job in self.jobs()]

    def mutants(self) -> Iterator[Mutant]:
        for name in self.headers:
            yield from cpp_mutants(ROOT / f"csrc/cpu/{name}.h")

    def jobs(self) -> list[Job]:
        """The program of tests/csrc/test_kernels.cpp; the kernels come last."""
        sources = [building.CSRC / name for name in
                   ("passes.cpp", "cpu/arena.cpp", "cpu/select.cpp", "cpu/needed.cpp")]  # fmt: skip
        sources.append(building.HERE / "test_kernels.cpp")
        flags = list(self.flags)
        kernels = building.kernel_jobs({self.isa: flags})
        return [*((source.stem, source, flags) for source in sources), *kernels]

    def outcome(self, mutant: Mutant | None) -> str:
        """`survived`, `caught` or `does not compile`."""
        if mutant is None:
            return self.tested()
        file = building.CSRC / "cpu" / mutant.path.name
        file.write_text(mutant.source)
        try:
            building.compile_job(self.jobs()[-1], self.folder)
            return self.tested()
        except CalledProcessError:
            return "does not compile"
        finally:
            shutil.copy(mutant.path, file)

    def tested(self) -> str:
        program = self.folder / "test_kernels"
        building.link(program, self.whole, ["-lpthread"])
        # Memory that is not set yet, or free again, is not zero: what reads it gives other numbers.
        environment = {**os.environ, "MALLOC_PERTURB_": "170"}
        run = subprocess.run([program], env=environment, capture_output=True, preexec_fn=limit_time)
        return "caught" if run.returncode else "survived"


def import_mutant(mutant: Mutant) -> None:
    """From now on, the import of its module gives the mutant."""
    get_data = importlib.machinery.SourceFileLoader.get_data

    def mutated(loader: importlib.machinery.SourceFileLoader, path: str) -> bytes:
        if Path(path).stem.partition(".")[0] == mutant.path.stem and path.endswith(".pyc"):
            raise OSError("the compiled file is of the module without the mistake")
        return mutant.source.encode() if Path(path) == mutant.path else get_data(loader, path)

    importlib.machinery.SourceFileLoader.get_data = mutated  # type: ignore[method-assign]
    importlib.machinery.SourceFileLoader.set_data = lambda *args, **kwargs: None  # type: ignore


def limit_time() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


def run_alone(test: Callable[[], int], prepare: Callable[[], object] = lambda: None) -> str:
    """Run a test in a child process, silently; it gives 0 where it passes."""
    child = os.fork()
    if child == 0:
        limit_time()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        torch.set_num_threads(1)
        code = 1
        with contextlib.suppress(BaseException):
            prepare()
            code = test()
        os._exit(code)
    return "survived" if os.waitpid(child, 0)[1] == 0 else "caught"


def random_queries() -> int:
    """The quickest: some cases of the fuzz suite."""
    from tests.fuzz import queries

    for seed in range(25):
        queries.check(random.Random(seed))
    return 0


def pytest_code(tests: Sequence[Path], marks: str = "") -> int:
    """Run test files, up to the first that fails."""
    options = ["-x", "-q", "-p", "no:cacheprovider", f"--rootdir={ROOT}", "-m", marks]
    return int(pytest.main([*options, "--hypothesis-profile=mutants", *map(str, tests)]))


TRIALS = {"queries": Queries, "kernels": Kernels}
