"""Reading recipes: YAML files, packaged or the user's, with `--set` changes and `${VARIABLES}`.

Paths in a recipe file are relative to the file; those of `--set`, and those of packaged recipes, to
the folder the command runs in. `extends: NAME` takes all top-level keys from another recipe, a
packaged one or, where it ends in .yaml, a file relative to this one, that it does not give itself.
"""

from __future__ import annotations

import difflib
import importlib.resources
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.recipes.changes import Placed, placed, set_by_text
from flows.recipes.errors import faults_of
from flows.recipes.places import RecipeError, Written
from flows.recipes.sweeps import swept_recipe
from flows.recipes.yaml_texts import load_yaml, read_yaml
from schemas.errors import ConfigError
from schemas.recipe import Recipe

STORE_VARIABLE = "BERTLOOM_STORE"
_TEMPLATE = "_template"
ENDINGS = (".yaml", ".yml")
_VARIABLE = re.compile(r"\$(?:\$|\{(\w+)(?::-([^}]*))?\})")

_LISTS_OF_PATHS = (
    ("build_examples", "*", "files", "*"),
    ("build_documents", "sources", "*", "paths"),
)
"""Fields that hold several paths; a single one may stand there without brackets."""

_PATHS = (
    ("store",),
    ("build_vocabulary", "vocab_file"),
    ("pretrain", "*", "init_checkpoint"),
    ("finetune", "*", "init_checkpoint"),
    ("build_examples", "*", "folder"),
    ("build_examples", "*", "evidence"),
    *((*field, "*") for field in _LISTS_OF_PATHS),
)
"""Fields that hold a path; `*` stands for a name or a number."""


def default_store() -> str:
    """Where the store is if nobody says: $BERTLOOM_STORE, or `store` in the folder one is in."""
    return os.environ.get(STORE_VARIABLE) or str(Path("store").absolute())


def packaged_recipes() -> list[str]:
    """Names of the recipes that come with bertloom."""
    files = [item.name for item in importlib.resources.files("flows.recipes").iterdir()]
    names = [name.removesuffix(".yaml") for name in files if name.endswith(".yaml")]
    return sorted(name for name in names if name != _TEMPLATE)


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
    detach: bool | None = None,
) -> Recipe:
    """Read a recipe.

    Args:
        name: path of a YAML file, or name of a packaged recipe.
        changes: `KEY=VALUE` texts; KEY is a dotted path such as
            `build_instances.length-128.seed`, entries of lists by number or, for sources, by name;
            VALUE is YAML.
        store, runner, workers, parallel, detach: in place of what the recipe says; `parallel` is
            `execution.parallel_steps`.

    Raises:
        ConfigError: there is no such recipe, or something in it cannot be used; names each field.
    """
    written = Written()
    data, where, folder = _find(name, written)
    execution = {
        "runner": runner,
        "workers": workers,
        "parallel_steps": parallel,
        "detach": detach,
    }
    return recipe_from(
        data,
        where=where,
        folder=folder,
        changes=changes,
        store=store,
        execution=execution,
        written=written,
    )


def recipe_from(
    data: dict[str, Any],
    *,
    where: str,
    folder: Path,
    changes: Sequence[str] = (),
    store: str | None = None,
    execution: Mapping[str, Any] | None = None,
    written: Written | None = None,
) -> Recipe:
    """A recipe from its raw data, which `changes` change in place.

    Args:
        data: as YAML gives it.
        where: what to call it in messages.
        folder: what its paths are relative to.
        changes, store: as in `load_recipe`.
        execution: in place of the recipe's own fields of `execution`; None leaves one as it is.
        written: the file that the data are of, for errors to name its lines; None for none.

    Raises:
        ConfigError: something in it cannot be used; names each field.
    """
    written = written or Written()
    data = _extended(data, where=where, folder=folder, written=written)
    for change in changes:
        written.add_change(set_by_text(data, change), f"--set {change:.200}")

    def read(raw: dict[str, Any]) -> Recipe:
        unset: list[str] = []
        filled = _filled_in(raw, (), folder=folder, faults=unset)
        if unset:
            raise RecipeError(unset)
        if store is not None:
            filled["store"] = _resolve(store, Path.cwd())
        filled.setdefault("store", default_store())
        given = {key: value for key, value in (execution or {}).items() if value is not None}
        own = filled.get("execution") or {}
        if given and isinstance(own, dict):
            filled["execution"] = {**own, **given}
        try:
            return Recipe.model_validate(filled)
        except ValidationError as error:
            raise RecipeError(faults_of(error, filled)) from error

    try:
        recipe = swept_recipe(data, read=read)
        check_tasks(recipe)
    except ConfigError as error:
        faults = error.faults if isinstance(error, RecipeError) else [str(error)]
        raise written.error(faults, where=where) from error
    return recipe


def _extended(
    data: dict[str, Any], *, where: str, folder: Path, written: Written
) -> dict[str, Any]:
    """Raw data with the top-level keys that a recipe has which they extend, and they have not.

    Raises:
        ConfigError: there is no such recipe, or they lead in a circle.
    """
    met = [where]
    while (name := data.pop("extends", None)) is not None:
        if not isinstance(name, str):
            fault = f"extends: expected a recipe's name or file, found {name!r:.80}"
            raise written.error([fault], where=where)
        is_file = name.endswith(ENDINGS)
        try:
            parent, where, folder = _find(str(folder / name) if is_file else name, written)
        except ConfigError as error:
            raise written.error([f"extends: {error}"], where=where) from error
        if where in met:
            raise ConfigError(f"extends leads in a circle: {', '.join([*met, where])}")
        met.append(where)
        parent.pop("name", None)
        data = {**placed(parent, folder), **data}
    return data


def check_tasks(recipe: Recipe) -> None:
    """See that the recipe's tasks exist, and that methods fit them, before anything is run.

    Raises:
        ConfigError: one does not; names the field.
    """
    if not recipe.build_examples:
        return
    from model.tasks import find_task, task_of  # start-up: 300 ms, Arrow for the most part

    faults = []
    for name, examples in recipe.build_examples.items():
        try:
            find_task(examples.task)
        except ConfigError as error:
            faults.append(f"build_examples.{name}.task: {error}")
            continue
        try:
            task_of(examples)
        except ConfigError as error:
            faults.append(f"build_examples.{name}.{error}")
    if faults:
        raise RecipeError(faults)
    for name, entry in recipe.finetune.items():
        task = find_task(recipe.build_examples[entry.examples].task)
        if entry.method == "features" and task.type != "tagging":
            faults.append(
                f"finetune.{name}.method: features is for tasks that tag words, {task.name} is "
                f"{task.type}: leave it out, to fine-tune"
            )
    if faults:
        raise RecipeError(faults)


def _find(name: str, written: Written) -> tuple[dict[str, Any], str, Path]:
    """A recipe's raw data, how to call it, and the folder its paths are relative to."""
    file = Path(name)
    if file.is_file():
        text = read_yaml(file, where=name)
        data = parse_yaml(text, where=name)
        written.add_file(name, text)
        return data, name, file.parent.absolute()
    known = packaged_recipes()
    if name in known:
        where, text = f"recipe {name!r}", packaged_text(name)
        written.add_file(where, text)
        return parse_yaml(text, where=where), where, Path.cwd()
    if file.is_dir():
        raise ConfigError(f"{name}: is a folder: expected a YAML file")
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        raise ConfigError(
            f"no recipe {name!r} (did you mean {close[0]!r}?): expected a YAML file, or a name "
            "that `bertloom recipes` lists"
        )
    raise ConfigError(
        f"no recipe {name!r}: expected a YAML file, or one of {', '.join(known)}. "
        "`bertloom init FILE` writes one to edit"
    )


def parse_yaml(text: str, *, where: str) -> dict[str, Any]:
    """A YAML text that holds keys with values.

    Raises:
        ConfigError: it is not YAML, or no mapping, or gives a key twice.
    """
    data = load_yaml(text, where=where)
    if data is None:
        raise ConfigError(f"{where}: is empty: expected keys with values")
    if not isinstance(data, dict):
        found = "a list" if isinstance(data, list) else f"{data!r:.80}"
        raise ConfigError(f"{where}: expected keys with values, found {found}")
    return data


# Variables and paths


def _filled_in(value: Any, at: tuple[str, ...], *, folder: Path, faults: list[str]) -> Any:
    """A raw value with variables from the environment and with whole paths.

    Args:
        at: its keys, from the root of the recipe.
        folder: what its paths are relative to.
        faults: takes what is wrong, each with its path.
    """
    if isinstance(value, str) and _is_one_of(_LISTS_OF_PATHS, at):
        value = [value]
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        filled = {
            key: _filled_in(item, (*at, str(key)), folder=folder, faults=faults)
            for key, item in items
        }
        return filled if isinstance(value, dict) else list(filled.values())
    if not isinstance(value, str):
        return value
    path = ".".join(at)
    try:
        text = _expanded(value, path=path)
        if text and _is_one_of(_PATHS, at):
            return _resolve(text, value.folder if isinstance(value, Placed) else folder)
    except ConfigError as error:
        faults.append(f"{path}: {error}")
        return value
    return text


def _is_one_of(fields: Sequence[tuple[str, ...]], at: tuple[str, ...]) -> bool:
    return any(
        len(field) == len(at)
        and all(part in ("*", key) for part, key in zip(field, at, strict=True))
        for field in fields
    )


def _expanded(text: str, *, path: str) -> str:
    """`${NAME}` and `${NAME:-default}` become what the environment says; `$$` becomes `$`."""

    def replace(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        found = os.environ.get(match[1]) or match[2]
        if not found:
            raise ConfigError(
                f"the environment variable {match[1]} is not set. Set it, or give the "
                f"value itself: --set {path}=VALUE"
            )
        return found

    # Behind the last brace nothing ends, and looking for it from each `${` would take a square.
    end = text.rfind("}") + 1
    return _VARIABLE.sub(replace, text[:end]) + text[end:].replace("$$", "$")


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
