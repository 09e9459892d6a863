"""Reading recipes: YAML files, packaged or the user's, with `--set` changes and `${VARIABLES}`.

Paths in a recipe file are relative to the file; those of `--set`, and those of packaged recipes, to
the folder the command runs in.
"""

from __future__ import annotations

import difflib
import importlib.resources
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.engine.task_steps import check_tasks
from flows.recipes.errors import explain
from flows.recipes.yaml_texts import MAX_NESTING, load_yaml, read_yaml
from schemas.errors import ConfigError, UsageError
from schemas.recipe import Recipe

STORE_VARIABLE = "BERTLOOM_STORE"
_TEMPLATE = "_template"
_VARIABLE = re.compile(r"\$(?:\$|\{(\w+)(?::-([^}]*))?\})")


def default_store() -> str:
    """Where the store is if nobody says: $BERTLOOM_STORE, or `store` in the folder one is in."""
    return os.environ.get(STORE_VARIABLE) or str(Path("store").absolute())


def packaged_recipes() -> list[str]:
    """Names of the recipes that come with bertloom."""
    folder = importlib.resources.files("flows.recipes")
    names = [item.name.removesuffix(".yaml") for item in folder.iterdir()]
    return sorted(
        name for item, name in zip(folder.iterdir(), names, strict=True)
        if item.name.endswith(".yaml") and name != _TEMPLATE
    )  # fmt: skip


def packaged_text(name: str) -> str:
    """The YAML of a packaged recipe."""
    file = importlib.resources.files("flows.recipes") / f"{name}.yaml"
    return file.read_text(encoding="utf-8")


def template_text() -> str:
    """A commented recipe to start from."""
    return packaged_text(_TEMPLATE)


def load_recipe(
    name: str,
    *,
    changes: Sequence[str] = (),
    store: str | None = None,
    runner: str | None = None,
    workers: int | None = None,
    parallel: int | None = None,
) -> Recipe:
    """Read a recipe.

    Args:
        name: path of a YAML file, or name of a packaged recipe.
        changes: `KEY=VALUE` texts; KEY is a dotted path such as
            `build_instances.length-128.seed`, entries of lists by number or, for sources, by name;
            VALUE is YAML.
        store, runner, workers, parallel: in place of what the recipe says; `parallel` is
            `execution.parallel_steps`.

    Raises:
        ConfigError: there is no such recipe, or something in it cannot be used; names each field.
    """
    text, where, folder = _find(name)
    return recipe_from(
        parse_yaml(text, where=where),
        where=where,
        folder=folder,
        changes=changes,
        store=store,
        runner=runner,
        workers=workers,
        parallel=parallel,
    )


def recipe_from(
    data: dict[str, Any],
    *,
    where: str,
    folder: Path,
    changes: Sequence[str] = (),
    store: str | None = None,
    runner: str | None = None,
    workers: int | None = None,
    parallel: int | None = None,
) -> Recipe:
    """A recipe from its raw data, which is changed on the way.

    Args:
        data: as YAML gives it.
        where: what to call it in messages.
        folder: what its paths are relative to.
        changes, store, runner, workers, parallel: as in `load_recipe`.

    Raises:
        ConfigError: something in it cannot be used; names each field.
    """
    for change in changes:
        _change(data, change)
    data = _expand_variables(data, path="", where=where)
    try:
        _resolve_paths(data, folder)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    if store is not None:
        data["store"] = _resolve(store, Path.cwd())
    data.setdefault("store", default_store())
    execution = {"runner": runner, "workers": workers, "parallel_steps": parallel}
    given = {key: value for key, value in execution.items() if value is not None}
    if given:
        said = data.get("execution") or {}
        data["execution"] = {**said, **given} if isinstance(said, dict) else said
    try:
        recipe = Recipe.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{where}: {explain(error, data)}") from error
    check_tasks(recipe)
    return recipe


def _find(name: str) -> tuple[str, str, Path]:
    """A recipe's text, how to call it, and the folder its paths are relative to."""
    file = Path(name)
    if file.is_file():
        return read_yaml(file, where=name), name, file.parent.absolute()
    known = packaged_recipes()
    if name in known:
        return packaged_text(name), f"recipe {name!r}", Path.cwd()
    if file.is_dir():
        raise ConfigError(f"{name}: is a folder: expected a YAML file")
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise ConfigError(
        f"no recipe {name!r}{hint}: expected a YAML file, or one of {', '.join(known)}. "
        "`bertloom init FILE` writes one to edit"
    )


class _Typed(str):
    """A text that stood on the command line, so that a path in it is relative to where one is."""


def _as_typed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_typed(item) for item in value]
    return _Typed(value) if isinstance(value, str) else value


def parse_yaml(text: str, *, where: str) -> dict[str, Any]:
    """A YAML text that holds keys with values.

    Raises:
        ConfigError: it is not YAML, or no mapping, or gives a key twice.
    """
    data = load_yaml(text, where=where)
    if data is None:
        raise ConfigError(f"{where}: is empty: expected keys with values")
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: expected keys with values, found {_kind_of(data)}")
    return data


def _kind_of(value: Any) -> str:
    return "a list" if isinstance(value, list) else f"{value!r:.80}"


def _expand_variables(value: Any, *, path: str, where: str) -> Any:
    """`${NAME}` and `${NAME:-default}` in texts become what the environment says; `$$` is `$`."""
    if isinstance(value, dict):
        return {
            key: _expand_variables(item, path=f"{path}.{key}" if path else key, where=where)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [
            _expand_variables(item, path=f"{path}.{index}", where=where)
            for index, item in enumerate(value)
        ]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        found = os.environ.get(match[1]) or match[2]
        if not found:
            raise ConfigError(
                f"{where}: {path}: the environment variable {match[1]} is not set. Set it, or "
                f"give the value itself: --set {path}=VALUE"
            )
        return found

    # Behind the last brace nothing ends, and looking for it from each `${` would take a square.
    end = value.rfind("}") + 1
    return type(value)(_VARIABLE.sub(replace, value[:end]) + value[end:].replace("$$", "$"))


def _change(data: dict[str, Any], change: str) -> None:
    """Apply one `KEY=VALUE`."""
    key, equals, text = change.partition("=")
    if not equals or not key.strip():
        raise UsageError(
            f"--set {change}: expected KEY=VALUE, e.g. build_instances.length-128.seed=1"
        )
    value = load_yaml(text, where=f"--set {change:.80}")
    parts = key.strip().split(".")
    if len(parts) > MAX_NESTING:
        raise ConfigError(f"--set {change:.80}: names more than {MAX_NESTING} levels")
    here: Any = data
    while True:
        name, parts = _step_into(here, parts, change=change)
        if not parts:
            here[name] = _as_typed(value)
            return
        inner = here[name] if isinstance(here, list) else here.setdefault(name, {})
        if inner is None:
            inner = here[name] = {}
        here = inner


def _step_into(here: Any, parts: list[str], *, change: str) -> tuple[Any, list[str]]:
    """The key or index that the path's next parts name, and the parts after them."""
    if isinstance(here, dict):
        for end in range(len(parts), 0, -1):  # names of instances may have dots in them
            if ".".join(parts[:end]) in here:
                return ".".join(parts[:end]), parts[end:]
        return parts[0], parts[1:]
    if isinstance(here, list):
        for index, item in enumerate(here):
            names = {str(index), str(item.get("name")) if isinstance(item, dict) else str(index)}
            if parts[0] in names:
                return index, parts[1:]
        raise ConfigError(
            f"--set {change}: no entry {parts[0]!r}; name it by its number, 0 to {len(here) - 1}, "
            "or by its name"
        )
    raise ConfigError(f"--set {change}: {parts[0]!r} is below {here!r}, which has no keys")


def _path_places(data: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """(holder, key) of everything in a raw recipe that is a path."""
    yield data, "store"
    vocabulary, documents = data.get("build_vocabulary"), data.get("build_documents")
    if isinstance(vocabulary, dict):
        yield vocabulary, "vocab_file"
    for phase in _entries(data, "pretrain"):
        yield phase, "init_checkpoint"
    for entry in _entries(data, "finetune"):
        yield entry, "init_checkpoint"
    for entry in _entries(data, "build_examples"):
        yield entry, "folder"
        files: Any = entry.get("files")
        for split, paths in list(files.items()) if isinstance(files, dict) else ():
            if isinstance(paths, str):  # the forgiving spelling, as below
                files[split] = paths = [paths]
            if isinstance(paths, list):
                yield from ((paths, index) for index in range(len(paths)))
    sources = documents.get("sources") if isinstance(documents, dict) else None
    for source in sources if isinstance(sources, list) else []:
        paths = source.get("paths") if isinstance(source, dict) else None
        if isinstance(paths, str):  # the forgiving spelling of a list with one entry
            source["paths"] = paths = [paths]
        if isinstance(paths, list):
            yield from ((paths, index) for index in range(len(paths)))


def _entries(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The named entries of a part of a raw recipe that are mappings, as they should be."""
    part = data.get(name)
    return (
        [item for item in part.values() if isinstance(item, dict)] if isinstance(part, dict) else []
    )


def _resolve_paths(data: dict[str, Any], folder: Path) -> None:
    for holder, key in _path_places(data):
        value = holder.get(key) if isinstance(holder, dict) else holder[key]
        if isinstance(value, str) and value:
            holder[key] = _resolve(value, Path.cwd() if isinstance(value, _Typed) else folder)


def _resolve(path: str, folder: Path) -> str:
    if "://" in path or "::" in path:
        return path
    try:
        return os.path.normpath(folder / Path(path).expanduser())
    except RuntimeError as error:
        user = path.partition("/")[0]
        raise ConfigError(
            f"{path}: there is no user {user}: give the folder's whole path"
        ) from error
