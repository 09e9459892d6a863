"""What the command says when things go wrong, and the codes it ends with."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.cli_runner import Cli
from support.fake_stages import FakeStages
from support.paths import ROOT
from support.store_builder import published
from typer.testing import CliRunner

from flows.bert import stages
from flows.cli import app as command
from flows.cli import completion, plan, run
from flows.recipes import loader as recipe_files
from flows.recipes.errors import RecipeError
from flows.run import dependencies
from flows.store.artifacts import ArtifactStore
from flows.store.runs import read_run, run_ids
from schemas.errors import VocabularyError
from schemas.recipe import Recipe


@pytest.fixture
def recipe(fakes: FakeStages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """A recipe of fake stages, which every name leads to."""
    made = fakes.recipe(str(tmp_path / "store"))
    for module in (plan, run):
        monkeypatch.setattr(module, "load_recipe", lambda *arguments, **more: made)
    return made


def test_an_error_is_a_sentence_and_a_traceback_where_asked(cli: Cli) -> None:
    said = cli("run", "no-such-recipe")
    assert said.code == 1
    assert said.err.startswith("error: no recipe 'no-such-recipe'")
    assert "Traceback" not in said.err
    shown = cli("--debug", "run", "no-such-recipe")
    assert shown.code == 1
    assert "Traceback" in shown.err
    assert "RecipeError" in shown.err


def test_a_fault_of_ours_is_told_from_an_error(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*arguments: object, **more: object) -> Recipe:
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr(plan, "load_recipe", break_down)
    said = cli("plan", "sample")
    assert said.code == 70
    assert said.err.startswith("error: ZeroDivisionError: by nought")
    assert "--debug" in said.err
    assert "break_down" in cli("--debug", "plan", "sample").err


@pytest.mark.parametrize(
    ("code", "remedy"), [(errno.ENOSPC, "Free some space"), (errno.EFBIG, "ulimit -f")]
)
def test_error_of_the_disk_has_a_remedy(
    code: int, remedy: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **more: object) -> Recipe:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(plan, "load_recipe", fail)
    result = cli("plan", "sample")
    assert result.code == 1
    assert remedy in result.err


@pytest.mark.parametrize(
    "command",
    [
        ("init", "{file}/x.yaml"),
        ("init", f"{'a' * 300}.yaml"),
        ("plan", "a" * 300),
        ("sample", "{file}/x"),
        ("schema", "--output", "{file}/x"),
    ],
)
def test_impossible_path_is_named_with_a_remedy(
    command: tuple[str, ...], cli: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    arguments = [argument.format(file=file) for argument in command]
    result = cli(*arguments)
    assert result.code == 1
    assert next(one for one in arguments if "/x" in one or "aaa" in one)[:40] in result.err
    assert "bug in bertloom" not in result.err
    assert "Errno" not in result.err


def start_command(
    *arguments: str | bytes, before: str = "", **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own; `before` is code that runs first."""
    code = f"{before}\nfrom flows.__main__ import main; main()"
    given = {**os.environ, "PYTHONPATH": str(ROOT), **more.pop("env", {})}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=given, capture_output=True, text=True, encoding="utf-8", check=False, **more,
    )  # fmt: skip


@pytest.mark.parametrize("command", [["fill"], ["predict", "model"]])
def test_argument_that_is_not_utf8_is_wrong_usage(command: list[str]) -> None:
    done = start_command(*command, b"a \xff [MASK]")
    assert done.returncode == 2
    assert "a \\xff" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.network
@pytest.mark.parametrize("url", ["http://127.0.0.1:9/model", "nonsense://model"])
@pytest.mark.parametrize(
    "command", [["fill", "a [MASK]", "--model"], ["predict"], ["finetune", "cola", "--checkpoint"]]
)
def test_checkpoint_that_cannot_be_reached_is_an_error(
    cli: Cli, command: list[str], url: str
) -> None:
    said = cli(*command, url, *(["text"] if command == ["predict"] else []))
    assert said.code == 1
    assert url in said.err


@pytest.mark.parametrize("closed", [{1}, {0, 1, 2}])
@pytest.mark.parametrize("command", [["ls", "--store"], ["--version"]])
def test_closed_standard_streams_are_no_fault(
    store: ArtifactStore, command: list[str], closed: set[int]
) -> None:
    published(store)
    arguments = [*command, store.root] if "--store" in command else command
    done = start_command(*arguments, preexec_fn=lambda: [os.close(number) for number in closed])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_closed_standard_output_is_closed_for_no_file() -> None:
    """The first file that is opened must not become the standard output."""
    code = "import os, sys; sys.stderr.write(os.readlink('/proc/self/fd/1'))"
    before = f"import flows.cli.app as app; app.main = lambda: exec({code!r})"
    done = start_command(before=before, preexec_fn=lambda: os.close(1))
    assert done.stderr == os.devnull


def test_arguments_and_files_are_utf8_in_any_locale() -> None:
    code = "import locale, sys; print(ascii(sys.argv[1]), locale.getpreferredencoding())"
    before = f"import flows.cli.app as app; app.main = lambda: exec({code!r})"
    done = start_command("caf\u00e9", before=before, env={"LC_ALL": "C", "PYTHONUTF8": "0"})
    assert done.stdout.lower().split() == [ascii("caf\u00e9"), "utf-8"], done.stderr


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


def test_wrong_usage_has_a_code_of_its_own(cli: Cli) -> None:
    assert cli("run").code == 2
    assert cli("nonsense").code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "sample", "--runner", "dask"),
        ("run", "sample", "--engine", "airflow"),
        ("plan", "sample", "--set", "no_equals"),
        ("verify", "--sizes-only", "--rows"),
        ("trace", "no-row"),
        ("publish",),
    ],
)
def test_options_that_are_none_are_wrong_usage(cli: Cli, arguments: tuple[str, ...]) -> None:
    said = cli(*arguments)
    assert said.code == 2
    assert said.err.startswith("error: ")


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_an_error_of_a_step_is_said_once(
    cli: Cli, fakes: FakeStages, recipe: Recipe, arguments: tuple[str, ...]
) -> None:
    fakes.module.FAULTS["vocabulary"] = [VocabularyError("too small a corpus")]
    said = cli("run", "fake", "--engine", "local", *arguments)
    assert said.code == 1
    assert (said.out + said.err).count("too small a corpus") == 1
    assert "build-vocabulary  FAILED: too small a corpus" in said.err
    *_, error, report = said.err.splitlines()
    assert error.startswith("error: build-vocabulary failed")
    assert "too small a corpus" in Path(report.removeprefix("report: ")).read_text()


def test_a_package_that_is_not_installed_is_named_with_its_extra(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*arguments: object, **more: object) -> Recipe:
        raise ModuleNotFoundError("No module named 'torch'", name="torch.nn")

    monkeypatch.setattr(plan, "load_recipe", load)
    said = cli("plan", "sample")
    assert (said.code, said.err) == (
        1, "error: torch.nn is not installed: pip install 'bertloom[model]'\n"
    )  # fmt: skip


def test_a_run_and_a_plan_say_what_is_not_installed_before_anything_is_built(
    cli: Cli, fakes: FakeStages, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependencies, "_is_installed", lambda name: name != "pyarrow")
    said = cli("run", "fake", "--engine", "local")
    assert said.code == 1
    assert "not installed: pyarrow" in said.err
    assert "--until STAGE" in said.err
    assert not fakes.calls
    assert "note: not installed: pyarrow" in cli("plan", "fake").err


def test_extras_bring_what_stages_need() -> None:
    assert dependencies.install_hint("torch") == "pip install 'bertloom[model]'"
    assert dependencies.install_hint("sklearn.metrics") == "pip install 'bertloom[model]'"
    assert dependencies.install_hint("prefect.flows") == "pip install 'bertloom[flows]'"
    assert dependencies.install_hint("s3fs") == "pip install 'bertloom[s3]'"
    assert dependencies.install_hint("numpy") is None  # no extra: it is always there
    for stage in stages().values():
        for name in stage.libraries:
            assert dependencies.install_hint(name) or name in ALWAYS_THERE, name


ALWAYS_THERE = {"pyarrow", "numpy", "tokenizers", "sentencex", "charset-normalizer", "rensa"}


def test_without_a_command_line_the_command_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('no', name='typer')\n")
    done = subprocess.run(
        [sys.executable, "-m", "flows", "--version"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == (
        "error: typer is not installed, which the command needs: pip install 'bertloom[flows]'\n"
    )


def test_help_names_the_exit_codes_and_every_command_has_some() -> None:
    runner = CliRunner()
    lines = runner.invoke(command.app, ["--help"], terminal_width=80).output.splitlines()
    assert command.EXIT_CODES in " ".join(" ".join(lines).split())
    for name, (module, summary) in command.COMMANDS.items():
        [line] = [line for line in lines if line.startswith(f"  {name} ")]
        assert line.endswith(summary)  # whole, in a terminal of 80 columns
        shown = runner.invoke(command.app, [name, "--help"], terminal_width=80)
        assert shown.exit_code == 0
        assert shown.output.startswith(f"Usage: bertloom {name} "), module
        assert len(shown.output.split()) > 20, name


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["plan", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from flows.cli.app import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print('LOADED', *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    loaded = set(done.stdout.partition("LOADED")[2].split())
    assert "flows.cli.app" in loaded
    assert not loaded & {"apache_beam", "prefect", "torch"}
    if "plan" not in arguments:
        assert not loaded & {"pyarrow", "numpy", "pydantic", "yaml", "httpx", "flows.cli.run"}


def test_a_plan_and_a_run_can_be_read_by_scripts(cli: Cli, recipe: Recipe) -> None:
    planned = json.loads(cli("plan", "fake", "--json").out)
    assert [step["state"] for step in planned["steps"]] == ["build", *["unknown"] * 4]
    ran = cli("run", "fake", "--engine", "local", "--json")
    steps = json.loads(ran.out)["steps"]
    assert [step["was_cached"] for step in steps] == [False] * 5
    assert ran.err.count("built in") == 5  # progress is no part of the JSON
    planned = json.loads(cli("plan", "fake", "--json").out)
    assert [step["state"] for step in planned["steps"]] == ["cached"] * 5
    assert [step["artifact_id"] for step in planned["steps"]] == [
        step["artifact_id"] for step in steps
    ]


def test_a_plan_in_words(cli: Cli, recipe: Recipe) -> None:
    said = cli("plan", "fake")
    assert "build-documents" in said.out
    assert "5 steps, 5 to build" in said.out
    assert not Path(recipe.store).exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_run_and_is_recorded(tmp_path: Path, number: int, code: int) -> None:
    program = f"""
import sys, time, signal
sys.path.insert(0, {str(ROOT / "tests")!r})
signal.signal(signal.SIGINT, signal.default_int_handler)
import pytest
from pathlib import Path
from support.fake_stages import installed
from flows.run import dependencies
from flows.recipes import loader as recipe_files
from flows.cli.app import main
patch = pytest.MonkeyPatch()
with installed(Path({str(tmp_path / "code")!r}), patch) as fakes:
    recipe = fakes.recipe({str(tmp_path / "store")!r})
    recipe_files.load_recipe = lambda *a, **k: recipe
    def tokens(*a, **k):
        print("begun", flush=True)
        time.sleep(60)
    fakes.module.tokens = tokens
    main(["run", "fake", "--engine", "local"])
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    while "begun" not in (line := process.stdout.readline()):
        assert line, process.stderr.read() if process.stderr else ""
    time.sleep(0.1)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert "Completed steps are cached" in said
    store = ArtifactStore(str(tmp_path / "store"))
    record = read_run(store, run_ids(store)[-1])
    assert record.state == "interrupted"
    assert [step.label for step in record.steps] == ["build-documents", "build-vocabulary"]


def test_who_reads_our_lines_may_stop() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "from flows.cli.app import main; main(['plan', 'sample'])"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "BERTLOOM_SAMPLE": "/nowhere"},
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read()
    process.wait(60)
    assert "Traceback" not in said


def test_completion_offers_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: Recipe, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "samovar.yaml").write_text("name: x\n")
    assert completion.recipe_names("sam") == ["sample", "sample-full", "samovar.yaml"]
    assert completion.stage_names("build-t") == ["build-tokens"]
    assert offered("show fake/") == []  # no store here
    assert offered("report 2") == []
    assert cli("run", "fake", "--engine", "local").code == 0
    [run_id] = run_ids(ArtifactStore(recipe.store))
    assert offered(f"--verbose report --store {recipe.store} 2") == [run_id]
    assert offered(f"show --store {tmp_path / 'nowhere'} fake/") == []
    monkeypatch.setenv(recipe_files.STORE_VARIABLE, recipe.store)
    for shell in ("bash", "zsh", "fish"):
        assert "fake/build-tokens" in offered("show fake/", shell), shell
    pointer = ArtifactStore(recipe.store).ref("fake/build-tokens")
    assert pointer is not None
    assert offered(f"verify {pointer.artifact_id[:8]}") == [pointer.artifact_id]


def offered(line: str, shell: str = "bash") -> list[str]:
    """What a shell offers for the last word, as the script that typer installs asks for it."""
    words = f"bertloom {line}"
    asked = {
        "_BERTLOOM_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    done = CliRunner().invoke(command.app, [], env=asked, prog_name="bertloom")
    assert (done.exit_code, done.stderr) == (0, "")
    quoted = re.findall(r'"([^"]*)"', done.stdout)
    return quoted if shell == "zsh" else done.stdout.split()


def test_completion_reads_the_recipe_and_the_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert offered("plan sample --until finetune.mnli") == [
        "finetune.mnli",
        "finetune.mnli-scratch",
    ]
    assert offered("plan broken --until build-t") == ["build-tokens"]
    assert offered("finetune squad") == ["squad-1.1", "squad-2.0"]
    assert offered("run sample --runner d") == ["dataflow"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["bertloom", "ver"], ["verify"]),
        (["bertloom", "plan", "sample", "--until", "build-t"], ["build-tokens"]),
    ],
)
def test_the_shell_completes(words: list[str], offered: list[str], tmp_path: Path) -> None:
    asked = {
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
        "_BERTLOOM_COMPLETE": "complete_bash",
    }
    done = subprocess.run(
        [sys.executable, "-c", "from flows.__main__ import main; main()"],
        env={**os.environ, **asked, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == offered


def test_a_recipe_that_cannot_be_read_names_the_field(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("name: bad\npublish: {nam: x}\nbuild_documents: {sources: []}\n")
    with pytest.raises(RecipeError) as error:
        recipe_files.load_recipe(str(file))
    assert "publish.nam" in {problem.field for problem in error.value.problems}


def test_noise_of_libraries_is_left_out_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """For users of Python too: the filters are there when a package of ours is loaded."""
    beam = logging.getLogger("apache_beam.runners.portability.fn_api_runner.fn_runner")
    with caplog.at_level(logging.WARNING):
        logging.warning("apitools not found, and bigquery client libraries are not available")
        logging.warning("said by apitools not found")
        beam.warning("If direct_num_workers is not equal to 1, direct_running_mode is ignored")
        beam.warning("a worker is gone")
    assert caplog.messages == ["said by apitools not found", "a worker is gone"]
