"""Digests: of JSON values, of an artifact's files, of code, and the cache keys made from them.

A digest that cannot be computed raises `FingerprintError`: a key is never quietly weaker.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rfc8785

from schemas.errors import FingerprintError

if TYPE_CHECKING:
    from schemas.manifest import FileEntry

KEY_VERSION = 1
FIRST_PARTY = ("schemas", "pipelines", "model", "flows")
"""Packages whose code is fingerprinted, each importing only from those before it."""

UNCOUNTED = (
    "schemas.disclosure",
    "schemas.errors",
    "schemas.stage",
    "pipelines.runners",
    "pipelines.telling",
    "model.telling",
)
"""Modules, or packages of them, that no key counts: they word errors, show progress, draw, and say
what a stage is called. `tests/project/test_layers.py` sees to it that counted code gets nothing from them
that it could compute with."""

_MAX_EXACT_INTEGER = (1 << 53) - 1  # RFC 8785 numbers are IEEE doubles
_ROW_DIGEST_MODULUS = 1 << 128


def canonical_json(value: Any) -> bytes:
    """The value as RFC 8785 canonical JSON: one sequence of bytes for equal values.

    Integers beyond 2**53 - 1, which JSON cannot hold exactly, are written as `{"$integer": "..."}`.

    Raises:
        FingerprintError: it holds something that is no JSON value (NaN, a set, a lone surrogate).
    """
    try:
        return rfc8785.dumps(_exact(value))
    except (rfc8785.CanonicalizationError, UnicodeError) as error:
        raise FingerprintError(
            f"expected plain JSON values (text, numbers, booleans, null, lists, objects): {error}"
        ) from error


def _exact(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, (str, float)):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _MAX_EXACT_INTEGER else {"$integer": str(value)}
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise FingerprintError(f"expected text as keys of an object, found {wrong[0]!r}")
        return {key: _exact(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_exact(item) for item in value]
    raise FingerprintError(f"expected plain JSON values, found {type(value).__name__}: {value!r}")


def fingerprint(value: Any) -> str:
    """`sha256:...` of the value's canonical JSON."""
    return f"sha256:{hashlib.sha256(canonical_json(value)).hexdigest()}"


def content_digest(files: Iterable[FileEntry]) -> str:
    """`sha256:...` of what an artifact's files hold: logical names, sizes and digests, sorted.

    Physical names are not in it, so the same bytes written by another attempt have the same digest;
    nor are files that only record how the work went.

    Raises:
        FingerprintError: two files have one logical name.
    """
    listed = list(files)
    rows = sorted([entry.path, entry.size, entry.sha256] for entry in listed if not entry.is_record)
    times = Counter(entry.path for entry in listed)
    repeated = sorted(name for name, number in times.items() if number > 1)
    if repeated:
        raise FingerprintError(f"files of one artifact share a name: {', '.join(repeated)}")
    return fingerprint(rows)


def logical_digest(files: Iterable[FileEntry]) -> str:
    """`ROWS:DIGEST` of all rows of all tables, whatever their order and the shards they are in.

    The digest is the sum modulo 2**128 of those of the files; "" where no file is a table.
    """
    tables = [entry for entry in files if entry.logical]
    if not tables:
        return ""
    total = sum(int(entry.logical, 16) for entry in tables) % _ROW_DIGEST_MODULUS
    return f"{sum(entry.rows or 0 for entry in tables)}:{total:032x}"


def key_spec(
    stage: str,
    *,
    stage_version: int,
    config: Mapping[str, Any],
    inputs: Mapping[str, Mapping[str, Any]],
    raw_inputs: Iterable[str],
    code: str,
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """Everything that decides a stage's bytes, in the form that its cache key is made of.

    Args:
        stage: its name.
        stage_version: that of its `STAGE`.
        config: the identity part of its configuration (`Config.identity()`).
        inputs: of each input artifact its content digest and its statistics.
        raw_inputs: the identities of the raw files.
        code: digest of its code, or `version` where the stage's version stands for it.
        environment: versions that can change its bytes: of Python (minor) and of libraries.
    """
    return {
        "v": KEY_VERSION,
        "stage": stage,
        "stage_version": stage_version,
        "config": dict(config),
        "inputs": {name: dict(value) for name, value in inputs.items()},
        "raw_inputs": sorted(raw_inputs),
        "code": code,
        "environment": dict(environment),
    }


def cache_key(spec: Mapping[str, Any]) -> str:
    """sha256 of a `key_spec`, 64 hex digits."""
    return hashlib.sha256(canonical_json(spec)).hexdigest()


def code_fingerprint(
    module: str,
    *,
    packages: Sequence[str] = FIRST_PARTY,
    digest_of: Callable[[Path], str] | None = None,
) -> tuple[str, dict[str, str]]:
    """Digest of a module's code and of all first-party code it imports, however far away.

    Comments, docstrings, layout and line numbers do not count, nor do `UNCOUNTED` modules and a
    module's assignment to `STAGE`: what of a stage decides bytes (name, version, configuration,
    inputs, libraries) is in its key by value. The `__init__` of every package on the way does
    count, and with it the package's data (`*.yaml` beside it), byte for byte. Imports made by
    computed names are invisible to it.

    Args:
        module: e.g. `pipelines.build_tokens`.
        packages: the packages that are looked into, each importing only from those before it.
        digest_of: `source_digest` of a file, perhaps from a memory; None to parse it.

    Returns:
        `sha256:...` of the whole, and of each module (or `package/file` of data) by name.

    Raises:
        FingerprintError: a module is missing or cannot be parsed.
    """
    digest = digest_of or _module_digest
    closure = _closure(module, tuple(packages))
    modules = {name: digest(path) for name, path in closure}
    modules |= {
        f"{name}/{data.name}": f"sha256:{hashlib.sha256(data.read_bytes()).hexdigest()}"
        for name, path in closure
        if path.name == "__init__.py"
        for data in sorted(path.parent.glob("*.yaml"))
    }
    return fingerprint(modules), modules


def _closure(module: str, packages: tuple[str, ...]) -> list[tuple[str, Path]]:
    """(name, file) of the modules that `module` imports, itself and parent packages included."""
    import grimp  # start-up: 16 ms, and a Beam worker does not have it

    top = module.partition(".")[0]
    if top not in packages:
        raise FingerprintError(f"{module}: expected a module of {', '.join(packages)}")
    reachable = tuple(name for name in packages if _is_there(name))
    try:
        # Also of packages to the right of the module's own: it imports nothing from those, and so
        # one graph serves all modules.
        graph = _graph(reachable, _stamp(reachable))
        found: set[str] = set()
        pending = {module}
        while pending:
            name = pending.pop()
            if name not in found and not is_uncounted(name):
                found.add(name)
                pending |= graph.find_modules_directly_imported_by(name)
                parent = name.rpartition(".")[0]
                pending |= {parent} if parent else set()
    except (grimp.exceptions.GrimpException, ValueError, SyntaxError) as error:
        raise FingerprintError(f"{module}: its imports cannot be followed: {error}") from error
    return [(name, source_file(name)) for name in sorted(found)]


def is_uncounted(module: str) -> bool:
    """Whether a module is one of `UNCOUNTED`, or in a package of it."""
    return any(module == room or module.startswith(f"{room}.") for room in UNCOUNTED)


@functools.lru_cache(maxsize=4)
def _graph(packages: tuple[str, ...], _stamp: str) -> Any:
    import grimp  # start-up: 16 ms

    return grimp.build_graph(*packages, cache_dir=None)


def _stamp(packages: Iterable[str]) -> str:
    """Changes with every file of the packages that is written, added or taken away."""
    digest = hashlib.sha256()
    for package in packages:
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            for file in sorted(Path(folder).rglob("*.py")):
                stat = file.stat()
                digest.update(f"{file} {stat.st_mtime_ns} {stat.st_size}\n".encode())
    return digest.hexdigest()


def _is_there(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def source_file(module: str) -> Path:
    """The file of a first-party module, which is not imported.

    Raises:
        FingerprintError: there is none.
    """
    top, *inner = module.split(".")
    spec = importlib.util.find_spec(top)  # finding one below it would import it
    folders = list(spec.submodule_search_locations or ()) if spec else []
    for folder in folders:
        path = Path(folder, *inner)
        for file in (path / "__init__.py", path.with_name(f"{path.name}.py")):
            if file.is_file():
                return file
    raise FingerprintError(f"{module}: expected Python source in {folders or 'no folder'}")


def _module_digest(path: Path) -> str:
    stat = path.stat()
    return _parsed_digest(path, stat.st_mtime_ns, stat.st_size)


@functools.cache
def _parsed_digest(path: Path, _mtime_ns: int, _size: int) -> str:
    return source_file_digest(path)


def source_file_digest(path: Path) -> str:
    """`source_digest` of a file.

    Raises:
        FingerprintError: it cannot be read or parsed.
    """
    try:
        digest = source_digest(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise FingerprintError(f"{path}: cannot be read as Python: {error}") from error
    return digest


def source_digest(source: str) -> str:
    """`sha256:...` of a module's syntax tree, without docstrings, comments, positions, `STAGE`.

    As this Python writes trees: that of keys is `flows.engine.syntax.portable_digest`.
    """
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not _declares_a_stage(node)]
    tree = _WithoutDocstrings().visit(tree)
    return f"sha256:{hashlib.sha256(ast.dump(tree).encode()).hexdigest()}"


def _declares_a_stage(node: ast.stmt) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(target, ast.Name) and target.id == "STAGE" for target in targets)


class _WithoutDocstrings(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        # A string that stands alone does nothing: a docstring, also that of an attribute.
        value = node.value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return None
        return self.generic_visit(node)
