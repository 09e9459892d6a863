"""Mutation check: change one expression or statement of the product, and see whether a test fails.

    python tests/project/mutants.py --count 60 --seed 1 model pipelines flows

Each mutant is tried in a copy of the repository: the tests of its module, those that import it,
those of its folder, then of its package, until one fails that passes without the change. The
program prints each mutant, and at the end how many were killed. It takes some minutes per survivor,
so no test runs it.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import difflib
import functools
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
_TIMEOUT_SECONDS = 600
_MARKERS = "not slow and not engines and not failures"
_PASSED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
"""With `-x`, pytest-xdist ends with INTERRUPTED after a failure, not with TESTS_FAILED."""

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift,
}  # fmt: skip


class Mutant(NamedTuple):
    """A change of one module."""

    path: Path
    """Path of the module in the repository."""

    position: int
    """Number of the change among those that are possible in the module."""


def main() -> int:
    """Try mutants, and return 1 if more survive than are allowed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path, help="packages or modules to change")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-survivors", type=int, default=10)
    options = parser.parse_args()
    mutants = choose(options.paths, count=options.count, seed=options.seed)
    print(f"{len(mutants)} mutants, seed {options.seed}", flush=True)
    survivors = []
    with tempfile.TemporaryDirectory(prefix="bertloom-mutants-") as folder:
        copy_repository(Path(folder))
        for number, mutant in enumerate(mutants, 1):
            killer = try_mutant(mutant, Path(folder))
            state = f"killed by {killer}" if killer else "SURVIVED"
            print(f"{number}. {mutant.path}: {state}\n{describe(mutant)}", flush=True)
            survivors += [] if killer else [mutant]
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} killed")
    return int(len(survivors) > options.max_survivors)


def choose(paths: list[Path], *, count: int, seed: int) -> list[Mutant]:
    """Return mutants of the modules below some paths; every possible change is equally likely."""
    modules = sorted(
        module for path in paths for module in ([path] if path.suffix else path.rglob("*.py"))
    )
    every = [
        Mutant(module, position)
        for module in modules
        for position in range(sum(1 for _ in changes(parse(module))))
    ]
    return random.Random(seed).sample(every, min(count, len(every)))


def parse(module: Path) -> ast.Module:
    """Return the syntax tree of a module of the repository."""
    return ast.parse((ROOT / module).read_text(encoding="utf-8"))


def changes(tree: ast.Module) -> Iterator[None]:
    """Make each possible change of a tree, one after the other, and undo it."""
    for node in _nodes(tree):
        for field, old, new in _replacements(node):
            setattr(node, field, new)
            yield
            setattr(node, field, old)


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of functions and class bodies, without annotations and docstrings."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_text(child):
                yield child
                yield from _nodes(child)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _replacements(node: ast.AST) -> Iterator[tuple[str, object, object]]:
    """Yield changes of a node: a field, its value, and its changed value."""
    if isinstance(node, ast.Compare) and (other := _COMPARISONS.get(type(node.ops[0]))):
        yield "ops", node.ops, [other(), *node.ops[1:]]
    elif isinstance(node, ast.BinOp | ast.AugAssign) and (new := _OPERATORS.get(type(node.op))):
        yield "op", node.op, new()
    elif isinstance(node, ast.BoolOp):
        yield "op", node.op, ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "value", node.value, not node.value
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield "value", node.value, node.value + 1
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        yield "test", node.test, ast.UnaryOp(ast.Not(), node.test)
    if isinstance(body := getattr(node, "body", None), list):
        for index, statement in enumerate(body):
            is_action = isinstance(statement, ast.Expr | ast.AugAssign | ast.Raise | ast.Delete)
            if is_action and not _is_text(statement):
                yield "body", body, [*body[:index], ast.Pass(), *body[index + 1 :]]


def changed_text(mutant: Mutant) -> str:
    """Return the source of a mutant."""
    tree = parse(mutant.path)
    for position, _ in enumerate(changes(tree)):
        if position == mutant.position:
            return ast.unparse(ast.fix_missing_locations(copy.deepcopy(tree)))
    raise ValueError(f"{mutant}: no such change")


def describe(mutant: Mutant) -> str:
    """Return the changed lines of a mutant."""
    before = ast.unparse(parse(mutant.path)).splitlines()
    difference = difflib.unified_diff(before, changed_text(mutant).splitlines(), n=1, lineterm="")
    return "\n".join(f"    {line}" for line in list(difference)[3:])


def copy_repository(folder: Path) -> None:
    """Copy the tracked files of the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def try_mutant(mutant: Mutant, folder: Path) -> str:
    """Return the first tests that fail on a mutant and not without it; "" if none does."""
    for level in levels_of_tests(mutant.path):
        with changed(mutant, folder):
            is_failing = fails(level, folder)
        if is_failing and not fails_anyway(level, folder):
            return level[0]
    return ""


@contextlib.contextmanager
def changed(mutant: Mutant, folder: Path) -> Iterator[None]:
    """Put a mutant in place of its module, until the end of the block."""
    module = folder / mutant.path
    original = module.read_text(encoding="utf-8")
    module.write_text(changed_text(mutant), encoding="utf-8")
    try:
        yield
    finally:
        module.write_text(original, encoding="utf-8")


def levels_of_tests(module: Path) -> Iterator[tuple[str, ...]]:
    """Yield the tests of a module, those that import it, of its folder, and of its package."""
    name = ".".join(module.with_suffix("").parts)
    imports = re.compile(rf"^(from|import) {re.escape(name)}\b", re.MULTILINE)
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    own = [path for path in tests if path.stem.startswith(f"test_{module.stem}")]
    others = [path for path in tests if imports.search(path.read_text(encoding="utf-8"))]
    for paths in (own, [path for path in others if path not in own]):
        if paths:
            yield tuple(str(path.relative_to(ROOT)) for path in paths)
    for folder in list(module.parents)[:-1]:
        if (ROOT / "tests" / folder).is_dir():
            yield (str("tests" / folder),)


def fails(tests: tuple[str, ...], folder: Path) -> bool:
    """Return whether one of some tests fails. Tests that do not end count as failing."""
    command = [
        sys.executable, "-m", "pytest", "-q", "-x", "-n", "2", "-p", "no:cacheprovider",
        "-m", _MARKERS, *tests,
    ]  # fmt: skip
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode not in _PASSED


@functools.cache
def fails_anyway(tests: tuple[str, ...], folder: Path) -> bool:
    """Return whether one of some tests fails on the code as it is."""
    return fails(tests, folder)


if __name__ == "__main__":
    sys.exit(main())
