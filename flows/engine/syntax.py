"""The digest of a source file of ours, the same on every Python that runs us.

`schemas.fingerprint.source_digest` tells syntax trees by `ast.dump`, which each Python writes in
its own way: 3.12 has lists of type parameters, 3.12.1 empty strings in formats, 3.13 leaves out
what is empty. Keys are made with this one, which writes trees as 3.11 does: another Python is no
other code. (It is not over there because that module is in the key of `evaluate`, whose artifacts
would have to be built again.)
"""

from __future__ import annotations

import ast
import hashlib
import sys
from pathlib import Path

from schemas.errors import FingerprintError


def portable_file_digest(path: Path) -> str:
    """`portable_digest` of a file.

    Raises:
        FingerprintError: it cannot be read or parsed.
    """
    try:
        return portable_digest(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise FingerprintError(f"{path}: cannot be read as Python: {error}") from error


def portable_digest(source: str) -> str:
    """What `schemas.fingerprint.source_digest` of a module's source is on Python 3.11."""
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not _declares_a_stage(node)]
    tree = _WithoutStrings().visit(tree)
    return f"sha256:{hashlib.sha256(_dumped(tree).encode()).hexdigest()}"


def _dumped(tree: ast.AST) -> str:
    for node in ast.walk(tree):
        if getattr(node, "type_params", None) == []:  # code that 3.11 can read has none
            delattr(node, "type_params")
        if isinstance(node, ast.JoinedStr):  # 3.12.1 ends `{a:>{b}}` with an empty string
            node.values = [part for part in node.values if not _is_empty(part)]
    if sys.version_info >= (3, 13):
        return ast.dump(tree, show_empty=True)
    return ast.dump(tree)


def _is_empty(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == ""


def _declares_a_stage(node: ast.stmt) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(target, ast.Name) and target.id == "STAGE" for target in targets)


class _WithoutStrings(ast.NodeTransformer):
    """Without strings that stand alone, which do nothing: docstrings, also those of attributes."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        value = node.value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return None
        return self.generic_visit(node)
