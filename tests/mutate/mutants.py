"""Small mistakes in Python and C++: another operator, comparison, constant or index."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """A file with one mistake in it."""

    path: Path
    line: int
    change: str
    source: str

    def __str__(self) -> str:
        return f"{self.path.name}:{self.line}: {self.change}"


_OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "sum": "max", "amax": "amin"}
#: What a test of results can't see: the words of errors, types, and how a dataclass is made.
_SKIPPED = (ast.Raise, ast.Import, ast.ImportFrom)
_ASIDE = ("annotation", "returns", "decorator_list")


def python_mutants(path: Path) -> Iterator[Mutant]:
    """Every mistake of one operator, constant, condition or function inside a module's functions.

    Constants outside them are sizes and limits that results do not depend on.
    """
    tree = ast.parse(path.read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    for node in (node for function in functions for node in _code(function)):
        before = ast.unparse(node)
        for undo in _mistakes(node):
            yield Mutant(path, node.lineno, f"{before}  ->  {ast.unparse(node)}", ast.unparse(tree))
            undo()


def _code(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that run."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            if not isinstance(child, ast.AST) or isinstance(child, _SKIPPED) or docstring:
                continue
            if name in _ASIDE or (
                isinstance(child, ast.Call) and ast.unparse(child.func) == "field"
            ):
                continue
            if isinstance(child, ast.expr):
                yield child
            yield from _code(child)


def _mistakes(node: ast.expr):
    """Change a node in place, and yield what changes it back."""
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in _OPERATORS:
        yield _set(node, "op", _OPERATORS[type(node.op)]())
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in _OPERATORS:
        yield _set(node, "ops", [_OPERATORS[type(node.ops[0])](), *node.ops[1:]])
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield _set(node, "value", not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield _set(node, "value", node.value + 1)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield _set(node, "op", ast.UAdd())
    elif isinstance(node, ast.IfExp):
        yield _set(node, "test", ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Name) and node.id in _NAMES:
        yield _set(node, "id", _NAMES[node.id])
    elif isinstance(node, ast.Attribute) and node.attr in _NAMES:
        yield _set(node, "attr", _NAMES[node.attr])


def _set(node: ast.expr, field: str, value):
    before = getattr(node, field)
    setattr(node, field, value)
    return lambda: setattr(node, field, before)


#: Binary operators have spaces around them; so `<` of a template and `*` of a pointer are left alone.
_CPP = [
    (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" / ", " * "), (r" % ", " / "),
    (r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "),
    (r" != ", " == "), (r" && ", " || "), (r" \|\| ", " && "), (r" \+= ", " -= "), (r" -= ", " += "),
    (r" << ", " >> "), (r" >> ", " << "), (r"\bstd::min\b", "std::max"), (r"\bstd::max\b", "std::min"),
    (r"\btrue\b", "false"), (r"\bfalse\b", "true"),
    (r"(?<=[\w\])])\[(\w+)\](?! = {|[;,])", r"[\1 + 1]"),
    (r"(?<![\w.\"])(\d+)(?![\w.\"])", lambda found: str(int(found[1]) + 1)),
]  # fmt: skip


#: What results do not depend on: sizes chosen for speed, hints to the processor, what compiles.
_CPP_ASIDE = re.compile(r"^\s*#|^constexpr|static constexpr|static_assert|prefetch|Prefetch")


def cpp_mutants(path: Path) -> Iterator[Mutant]:
    """Every mistake of one operator, constant or index of a C++ file; not all of them compile."""
    lines = path.read_text().splitlines(keepends=True)
    for number, line in enumerate(lines):
        code = line.partition("//")[0]
        if _CPP_ASIDE.search(code):
            continue
        for pattern, after in _CPP:
            for found in re.finditer(pattern, code):
                new = found.expand(after) if isinstance(after, str) else after(found)
                changed = line[: found.start()] + new + line[found.end() :]
                source = "".join([*lines[:number], changed, *lines[number + 1 :]])
                change = f"{line.strip()}  ->  {changed.strip()}"
                yield Mutant(path, number + 1, change, source)
