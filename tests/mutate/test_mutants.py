"""The mistakes are those that they say, one at a time, and nothing else changes."""

import ast

from tests.mutate.mutants import cpp_mutants, python_mutants

PYTHON = '''
LIMIT = 4

def f(x: int = 1, *, names: list[str]) -> bool:
    """Of 3 things."""
    if x < LIMIT:
        raise ValueError("less than 5" * 2)
    return not names and x + 1 == max(names)
'''
CPP = """#include <a[1]>
constexpr int kTile = 4;
int f(Pack<A, 2> x[3], int n) {  // n < 5
  for (int i = 0; i < n; ++i) y[i] += x[i] * 2;
}
"""


def test_mistakes_in_python(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(PYTHON)
    whole = ast.unparse(ast.parse(PYTHON))
    mutants = list(python_mutants(path))
    assert {mutant.change for mutant in mutants} == {
        "1  ->  2",
        "x < LIMIT  ->  x <= LIMIT",
        "not names and x + 1 == max(names)  ->  not names or x + 1 == max(names)",
        "x + 1 == max(names)  ->  x + 1 != max(names)",
        "x + 1  ->  x - 1",
        "max  ->  min",
    }
    for mutant in mutants:
        changed = [pair for pair in zip(whole.split("\n"), mutant.source.split("\n"), strict=True)
                   if pair[0] != pair[1]]  # fmt: skip
        assert len(changed) == 1


def test_mistakes_in_cpp(tmp_path):
    path = tmp_path / "file.h"
    path.write_text(CPP)
    changes = {mutant.source.splitlines()[3].strip() for mutant in cpp_mutants(path)}
    assert changes == {
        line.strip()
        for line in """
        for (int i = 1; i < n; ++i) y[i] += x[i] * 2;
        for (int i = 0; i <= n; ++i) y[i] += x[i] * 2;
        for (int i = 0; i < n; ++i) y[i + 1] += x[i] * 2;
        for (int i = 0; i < n; ++i) y[i] -= x[i] * 2;
        for (int i = 0; i < n; ++i) y[i] += x[i + 1] * 2;
        for (int i = 0; i < n; ++i) y[i] += x[i] + 2;
        for (int i = 0; i < n; ++i) y[i] += x[i] * 3;
        for (int i = 0; i < n; ++i) y[i] += x[i] * 2;
        """.strip().splitlines()
    }
