"""Errors, signals and exit codes of the command, its help and shell completion."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import pytest
from support.cli_runner import Cli
from support.fake_stages import FakeStages
from support.paths import ROOT
from typer.testing import CliRunner

from flows.cli import app as command
from flows.cli import console, options, plan, run
from flows.cli.recipes import init
from flows.run import dependencies
from flows.run.stages import STAGES
from flows.store.artifacts import ArtifactStore
from flows.store.runs import read_run, run_ids
from pipelines.runners.registry import RUNNERS
from schemas.errors import VocabularyError
from schemas.recipe import Recipe


@pytest.fixture
def recipe(fakes: FakeStages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """Return a recipe of fake stages, which commands load by any name."""
    fake = fakes.recipe(str(tmp_path / "store"))
    for module in (plan, run):
        monkeypatch.setattr(module, "load_recipe", lambda *args, **kwargs: fake)
    return fake


def raise_when_loading(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Make `plan` raise an error."""

    def load(*args: object, **kwargs: object) -> Recipe:
        raise error

    monkeypatch.setattr(plan, "load_recipe", load)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (VocabularyError("too small"), 1, "error: too small\n"),
        (ZeroDivisionError("by nought"), 70, "ZeroDivisionError: by nought"),
        (OSError(errno.ENOSPC, "full"), 1, "error: full"),
        (FileNotFoundError(errno.ENOENT, "none", "a/b"), 1, "error: a/b: none"),
        (ModuleNotFoundError("no", name="torch.nn"), 1, "torch.nn is not installed: pip install"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_error_has_code_and_text_and_debug_adds_traceback(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, text: str
) -> None:
    raise_when_loading(monkeypatch, error)
    result = cli("plan", "sample")
    assert (result.code, text in result.err, "Traceback" in result.err) == (code, True, False)
    assert "Traceback" in cli("--debug", "plan", "sample").err


def start_command(
    *arguments: str | bytes, before: str = "", **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run the command in a new process; `before` is code that runs first."""
    code = f"{before}\nfrom flows.__main__ import main; main()"
    env = {**os.environ, "PYTHONPATH": str(ROOT), **more.pop("env", {})}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=env, capture_output=True, text=True, encoding="utf-8", check=False, **more,
    )  # fmt: skip


def test_argument_that_is_not_utf8_is_a_usage_error() -> None:
    done = start_command("fill", b"a \xff [MASK]")
    assert done.returncode == 2
    assert "a \\xff" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.network
@pytest.mark.parametrize(
    "arguments",
    [
        ["fill", "a [MASK]", "--model", "http://127.0.0.1:9/model"],
        ["predict", "nonsense://model", "text"],
        ["finetune", "cola", "--data-dir", "x", "--checkpoint", "http://127.0.0.1:9/model"],
    ],
)
def test_unreachable_checkpoint_is_named(cli: Cli, arguments: list[str]) -> None:
    result = cli(*arguments)
    assert result.code == 1
    assert next(word for word in arguments if "://" in word) in result.err


def test_interrupt_while_modules_load_ends_quietly() -> None:
    before = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "flows.cli.app":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
"""
    done = start_command("ls", before=before)
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "sample", "--runner", "dask"),
        ("run", "sample", "--engine", "airflow"),
        ("plan", "sample", "--set", "no_equals"),
        ("trace", "no-row"),
        ("publish",),
    ],
)
def test_usage_error_exits_with_2(cli: Cli, arguments: tuple[str, ...]) -> None:
    assert cli(*arguments).code == 2


def test_runner_option_lists_all_runners() -> None:
    literal, _ = get_args(get_args(options.Runner)[0])
    assert set(get_args(literal)) == set(RUNNERS)


def test_step_error_is_printed_once_with_report(
    cli: Cli, fakes: FakeStages, recipe: Recipe
) -> None:
    fakes.module.FAULTS["vocabulary"] = [VocabularyError("too small a corpus")]
    result = cli("run", "fake", "--engine", "local")
    assert result.code == 1
    assert (result.out + result.err).count("too small a corpus") == 1
    *_, error, report = result.err.splitlines()
    assert error.startswith("error: build-vocabulary failed")
    assert "too small a corpus" in Path(report.removeprefix("report: ")).read_text()


def test_run_and_plan_name_missing_packages(
    cli: Cli, fakes: FakeStages, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependencies, "_is_installed", lambda name: name != "pyarrow")
    result = cli("run", "fake", "--engine", "local")
    assert result.code == 1
    assert "not installed: pyarrow" in result.err
    assert not fakes.calls
    assert "not installed: pyarrow" in cli("plan", "fake").err


def test_extras_provide_what_stages_need() -> None:
    extras = {"torch.nn": "model", "prefect.flows": "flows", "s3fs": "s3"}
    for package, extra in extras.items():
        assert dependencies.install_hint(package) == f"pip install 'bertloom[{extra}]'"
    assert dependencies.install_hint("numpy") is None  # in no extra
    required = {"pyarrow", "numpy", "tokenizers", "sentencex", "chardet", "lxml", "rensa"}
    for stage in STAGES.values():
        for name in stage.libraries:
            assert dependencies.install_hint(name) or name in required, name


def test_command_names_missing_typer() -> None:
    done = start_command("--version", before="import sys; sys.modules['typer'] = None")
    assert done.returncode == 1
    assert "pip install 'bertloom[flows]'" in done.stderr


def test_help_lists_commands_and_exit_codes() -> None:
    runner = CliRunner()
    lines = runner.invoke(command.app, ["--help"], terminal_width=80).output.splitlines()
    assert command.EXIT_CODES in " ".join(" ".join(lines).split())
    for name, summary in command.COMMANDS.items():
        [line] = [line for line in lines if line.startswith(f"  {name} ")]
        assert line.endswith(summary)  # not cut in a terminal of 80 columns


def test_json_of_plan_and_run(cli: Cli, recipe: Recipe) -> None:
    planned = json.loads(cli("plan", "fake", "--json").out)
    assert [step["expected_seconds"] for step in planned["steps"]] == [None] * 5
    result = cli("run", "fake", "--engine", "local", "--json")
    steps = json.loads(result.out)["steps"]
    assert [step["was_cached"] for step in steps] == [False] * 5
    assert result.err.count("built in") == 5
    planned = json.loads(cli("plan", "fake", "--json").out)
    assert [step["state"] for step in planned["steps"]] == ["cached"] * 5
    assert [step["artifact_id"] for step in planned["steps"]] == [
        step["artifact_id"] for step in steps
    ]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_ends_run_and_is_recorded(tmp_path: Path, number: int, code: int) -> None:
    program = f"""
import sys, time, signal
sys.path.insert(0, {str(ROOT / "tests")!r})
signal.signal(signal.SIGINT, signal.default_int_handler)
import pytest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from support.fake_stages import installed
from flows.recipes import loader
from flows.cli.app import main
patch = pytest.MonkeyPatch()
with installed(Path({str(tmp_path / "code")!r}), patch) as fakes:
    recipe = fakes.recipe({str(tmp_path / "store")!r})
    loader.load_recipe = lambda *a, **k: recipe
    def tokens(*a, **k):
        print("started", flush=True)
        time.sleep(1_000)
    fakes.module.tokens = tokens
    main(["run", "fake", "--engine", "local"])
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    while "started" not in (line := process.stdout.readline()):
        assert line, process.stderr.read() if process.stderr else ""
    process.send_signal(number)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == code, errors
    assert "Completed steps are cached" in errors
    store = ArtifactStore(str(tmp_path / "store"))
    record = read_run(store, run_ids(store)[-1])
    assert record.state == "interrupted"
    assert [step.label for step in record.steps] == ["build-documents", "build-vocabulary"]


def test_closed_pipe_ends_quietly() -> None:
    code = "from flows.cli.app import main; main(['recipes'])"
    command = f'{sys.executable} -c "{code}" | true; echo ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_offers_commands_and_options(shell: str) -> None:
    """The command is asked as by the script that typer installs."""

    def complete(line: str) -> list[str]:
        words = f"bertloom {line}"
        env = {
            "_BERTLOOM_COMPLETE": f"complete_{shell}",
            "_TYPER_COMPLETE_ARGS": words,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        }
        done = CliRunner().invoke(command.app, [], env=env, prog_name="bertloom")
        assert (done.exit_code, done.stderr) == (0, "")
        return re.findall(r'"([^"]*)"', done.stdout) if shell == "zsh" else done.stdout.split()

    assert set(complete("re")) >= {"report", "rebuild", "recipes"}
    assert "--until" in complete("plan sample --un")


def test_noisy_log_messages_of_libraries_are_hidden(caplog: pytest.LogCaptureFixture) -> None:
    beam = logging.getLogger("apache_beam.runners.portability.fn_api_runner.fn_runner")
    with caplog.at_level(logging.WARNING):
        logging.warning("apitools not found, and bigquery client libraries are not available")
        logging.warning("said by apitools not found")
        beam.warning("If direct_num_workers is not equal to 1, direct_running_mode is ignored")
        beam.warning("a worker is gone")
    ours = [record for record in caplog.records if record.name in ("root", beam.name)]
    messages = [record.getMessage() for record in ours]
    assert messages == ["said by apitools not found", "a worker is gone"]


def test_file_of_command_is_whole_or_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "page.html"
    console.write_file(target, "old")

    def fail(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space left"):
            console.write_file(target, "new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]
    console.write_file(target, b"new")
    assert target.read_text() == "new"


def test_recipe_is_whole_or_missing_and_overwrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tmp_path / "new" / "recipe.yaml"

    def fail(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space left"):
            init(recipe)
    assert list(recipe.parent.iterdir()) == []
    recipe.symlink_to(tmp_path / "elsewhere.yaml")
    with pytest.raises(FileExistsError):
        init(recipe)
    assert recipe.is_symlink()
    recipe.unlink()
    init(recipe)
    assert recipe.read_text().endswith("\n")
    recipe.write_text("mine: yes\n")
    with pytest.raises(FileExistsError):
        init(recipe)
    assert recipe.read_text() == "mine: yes\n"


def test_recipe_is_written_to_a_disk_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    recipe = tmp_path / "recipe.yaml"
    init(recipe)
    assert recipe.stat().st_size
    with pytest.raises(FileExistsError):
        init(recipe)


def test_output_file_can_be_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        text = pool.submit(pipe.read_text)
        console.write_file(pipe, "page")
        assert text.result() == "page"
    assert pipe.is_fifo()
