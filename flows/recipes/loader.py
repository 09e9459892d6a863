"""Loading of recipes: YAML or JSON files, packaged or the user's, with overrides and variables.

Paths are relative to the recipe's file; those of overrides and of packaged recipes to the working
directory. `extends: NAME` adds the top-level fields of another recipe that this one does not have.
The name of a step in place of the path of a checkpoint or vocabulary becomes the path of its
artifact (`flows.recipes.step_names`).
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.recipes.errors import (
    Problem,
    RecipeError,
    closest,
    find_problems,
    problems_at,
    quote,
    validator_problem,
)
from flows.recipes.overrides import RebasedText, apply_override, with_base_dir
from flows.recipes.packaged import packaged_recipes, packaged_text
from flows.recipes.safe_yaml import YamlDocument, parse_yaml, read_yaml
from flows.recipes.step_names import find_path, is_name
from flows.recipes.sweeps import expand_sweep
from flows.store.default_store import default_store
from model.tasks import TASKS, task_of
from schemas.errors import ConfigError, InputError
from schemas.recipe import Recipe

ENDINGS = (".yaml", ".yml", ".json")
"""Suffixes of recipe files."""

# A default has no braces, so that matching takes linear time.
_VARIABLE = re.compile(r"\$(?:\$|\{(?:(\w+)(?::-([^{}]*))?\})?)")

_LIST_OF_PATHS = re.compile(
    r"build_documents/sources/\d+/paths|build_examples/[^/]+/data_files/[^/]+"
)
"""Fields with a list of paths, which may also be a single path."""

_PATH_OR_NAME = re.compile(
    r"build_vocabulary/vocab_file|(?:pretrain|finetune)/[^/]+/init_checkpoint"
)
"""Fields with a path, the name of a step, or a URL of the Hugging Face Hub."""

_PATH = re.compile(
    rf"store|{_PATH_OR_NAME.pattern}"
    rf"|build_examples/[^/]+/data_dir|({_LIST_OF_PATHS.pattern})/\d+"
)
"""Fields with a path."""


def load_recipe(
    name: str, *, overrides: Sequence[str] = (), store: str | None = None, **execution: Any
) -> Recipe:
    """Load a recipe and expand its sweep.

    Args:
        name: Path of a recipe file, or name of a packaged recipe.
        overrides: `KEY=VALUE` texts. KEY is a dotted path such as
            `build_instances.length-128.seed`, with items of lists by number or `name`; VALUE is
            YAML.
        store: Replaces the recipe's `store`.
        **execution: Replace fields of the recipe's `execution`, except where None.

    Raises:
        RecipeError: The recipe does not exist or cannot be used; names each file, line and field.
    """
    return _resolve(_open(name), overrides, store, execution)


def recipe_from(
    data: dict[str, Any],
    *,
    where: str,
    folder: Path,
    overrides: Sequence[str] = (),
    store: str | None = None,
    **execution: Any,
) -> Recipe:
    """Return the recipe of raw data and expand its sweep; see `load_recipe`.

    Args:
        data: Data as a recipe file has them.
        where: Name of the data in errors.
        folder: Folder that paths are relative to.
        overrides, store, **execution: As for `load_recipe`.
    """
    return _resolve(YamlDocument(where, data, folder=folder), overrides, store, execution)


def _resolve(
    document: YamlDocument, overrides: Sequence[str], store: str | None, execution: dict[str, Any]
) -> Recipe:
    """Extend, override, expand and validate the data of a document."""
    documents: list[YamlDocument] = []
    data = _extend(document, documents)
    options = [apply_override(data, override) for override in overrides]
    if store is not None:
        # A shell has expanded the variables of an option.
        data["store"] = with_base_dir(store.replace("$", "$$"), Path.cwd())
        options.append(("store", "--store"))
    replaced = {key: value for key, value in execution.items() if value is not None}
    if replaced and isinstance(data.setdefault("execution", {}), dict):
        data["execution"] = {**data["execution"], **replaced}
    find_named = functools.cache(find_path)  # one answer for all variants
    try:
        return expand_sweep(data, read=lambda raw: _validate(raw, document.folder, find_named))
    except RecipeError as error:
        problems = [_locate(problem, documents, options) for problem in error.problems]
        raise RecipeError(*sorted(problems, key=lambda item: (item.path, item.line))) from error


def _locate(
    problem: Problem, documents: Sequence[YamlDocument], options: Sequence[tuple[str, str]]
) -> Problem:
    """Return a problem with the option, or the file and line, that its field comes from."""
    for field, option in reversed(options):
        if f"{problem.field}.".startswith(f"{field}."):
            return problem._replace(path=option)
    for document in documents[:1] if problem.field == "name" else documents:  # not inherited
        if line := document.find_line(problem.field):
            return problem._replace(path=document.where, line=line)
    return problem._replace(path=documents[0].where)


def _extend(document: YamlDocument, documents: list[YamlDocument]) -> dict[str, Any]:
    """Return a document's data with inherited fields; append it and its parents to `documents`."""
    documents.append(document)
    data = {**document.value}
    name = data.pop("extends", None)
    if name is None:
        return data
    is_file = str(name).endswith(ENDINGS)
    with problems_at("extends", document.where, document.find_line("extends")):
        parent = _open(str(document.folder / name) if is_file else str(name))
        if parent.where in [one.where for one in documents]:
            raise RecipeError(Problem(f"{name} extends this recipe"))
    inherited = with_base_dir(_extend(parent, documents), parent.folder)
    inherited.pop("name", None)
    if "build_documents" in data:
        inherited.pop("cards", None)  # the facts of other sources
    return {**inherited, **data}


def _open(name: str) -> YamlDocument:
    """Return the document of a recipe."""
    known = packaged_recipes()
    if os.path.isfile(name):  # noqa: PTH113 - False for a name that no file can have
        document = read_yaml(name, where=name)
    elif name in known:
        document = parse_yaml(packaged_text(name), where=f"recipe {name!r}")
    else:
        message = f"no recipe {name!r:.80}: expected a file, or a name of `bertloom recipes`"
        raise RecipeError(Problem(message, suggestion=closest(name, known)))
    if not isinstance(document.value, dict):
        message = f"expected a mapping of fields, got {quote(document.value)}"
        raise RecipeError(Problem(message, path=document.where))
    return document


def _validate(
    raw: dict[str, Any], folder: Path, find_named: Callable[[str, str, str], str]
) -> Recipe:
    """Return the recipe of raw data, whose sweep has been expanded."""
    expansion = _Expansion(folder, lambda text, path: find_named(text, path, str(store)))
    store = expansion.expand(raw["store"], "/store") if "store" in raw else default_store()
    data = expansion.expand({key: value for key, value in raw.items() if key != "store"})
    if expansion.problems:
        raise RecipeError(*expansion.problems)
    data["store"] = store
    try:
        recipe = Recipe.model_validate(data)
    except ValidationError as error:
        raise RecipeError(*find_problems(error, Recipe)) from error
    if recipe.build_examples and (problems := list(_task_problems(recipe))):
        raise RecipeError(*problems)
    return recipe


def _task_problems(recipe: Recipe) -> Iterator[Problem]:
    """Yield the entries whose task does not exist or does not fit its columns or method."""
    for name, examples in recipe.build_examples.items():
        try:
            task_of(examples)
        except ConfigError as error:
            below = "" if examples.task in TASKS else ".task"
            yield validator_problem(str(error), f"build_examples.{name}{below}", examples.task)
    for name, entry in recipe.finetune.items():
        task = TASKS.get(recipe.build_examples[entry.examples].task)
        if entry.method == "feature-based" and task is not None and task.type != "tagging":
            message = (
                f"feature-based is for tagging tasks, got {task.name} ({task.type}). Remove it"
            )
            yield Problem(message, f"finetune.{name}.method", value=quote(entry.method))


class _Expansion:
    """Expands the variables of raw data, and makes paths absolute."""

    def __init__(self, folder: Path, find_named: Callable[[str, str], str]) -> None:
        """Start without problems.

        Args:
            folder: Folder that paths are relative to.
            find_named: Returns the path of a step's artifact, or the URL of a commit of the Hub, by
                the text and its path.
        """
        self._folder, self._find_named = folder, find_named
        self.problems: list[Problem] = []

    def expand(self, value: Any, at: str = "") -> Any:
        """Return the expanded value of the raw value at a path."""
        if isinstance(value, str) and _LIST_OF_PATHS.fullmatch(at[1:]):
            value = [value]
        if isinstance(value, dict):
            return {key: self.expand(item, f"{at}/{key}") for key, item in value.items()}
        if isinstance(value, list):
            return [self.expand(item, f"{at}/{i}") for i, item in enumerate(value)]
        if not isinstance(value, str):
            return value
        try:
            return self._expand_text(value, at[1:])
        # RuntimeError: `~USER` without home directory. InputError: the Hub has no such checkpoint.
        except (ValueError, RuntimeError, InputError) as error:
            self.problems.append(Problem(str(error), at[1:].replace("/", ".")))
            return value

    def _expand_text(self, value: str, field: str) -> str:
        text = path = _expand_variables(value)
        if not text or not _PATH.fullmatch(field):
            return text
        if "://" not in text and "::" not in text:
            base_dir = value.base_dir if isinstance(value, RebasedText) else self._folder
            path = os.path.normpath(base_dir / Path(text).expanduser())
        is_named = _PATH_OR_NAME.fullmatch(field) and is_name(text)
        return self._find_named(text, path) if is_named else path


def _expand_variables(text: str) -> str:
    """Replace `${NAME}` and `${NAME:-default}` by environment variables, and `$$` by `$`."""

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        if match[1] is None:
            raise ValueError("expected ${NAME} or ${NAME:-DEFAULT} after `${`. Write `$$` for `$`")
        if value := os.environ.get(match[1]) or match[2]:
            return value
        message = f"environment variable {match[1]} is not set"
        raise ValueError(f"{message}. Set it, or override the field with --set")

    return _VARIABLE.sub(replace, text)
