"""Redaction of secrets and escaping of control characters in shown text."""

from __future__ import annotations

import json
import logging
import pickle

import pytest
from support.cli_runner import Cli

from flows.cli import console
from schemas.errors import BertloomError, ConfigError, CorruptInputError
from schemas.redaction import RedactingFormatter, escape_control_characters, is_secret_key, redact

SECRETS = [
    "http://u:SECRET@host/a.bz2: HTTP 403",
    "https://SECRET@host/a",
    "https://u:p@SECRET@host/a",
    "s3://KEY:SECRET@bucket/a",
    "s3://KEY:a/SECRET/b+c@bucket/a",
    "simplecache::s3://KEY:SECRET@bucket/a",
    "https://b.s3.amazonaws.com/a?X-Amz-Signature=SECRET&X-Amz-Date=1",
    "https://b/a?X-Amz-Credential=SECRET%2F2026&x=1",
    "https://b/a?X-Amz-Security-Token=SECRET",
    "https://b/a?x-amz-signature%3DSECRET",
    "https://b/a?AWSAccessKeyId=SECRET&Expires=1",
    "https://b/a?GoogleAccessId=SECRET",
    "https://x.blob.core.windows.net/a?sv=1&sig=SECRET",
    "https://b/a?access_token=SECRET",
    "https://b/a?api_key=SECRET",
    "cannot connect: url='http://127.0.0.1:9/b.txt?zz=SECRET'",
    "https://host/a?SECRET",
    "GET https://host/a?b=1&c=SECRET).",
    "AccountKey=SECRET;EndpointSuffix=x",
    "--s3_secret_access_key=SECRET",
    "{'key': 'a', 'secret': 'SECRET'}",
    '{"password": "SECRET and more SECRET"}',
    "{'Authorization': 'Bearer SECRET'}",
    "Authorization: Basic SECRET",
    "<Error><AWSAccessKeyId>SECRET</AWSAccessKeyId><SignatureProvided>SECRET</SignatureProvided>",
]
HARMLESS = [
    "http://host:8080/a/b@c/d",
    "https://en.wikipedia.org/?curid=12, revision https://en.wikipedia.org/?oldid=345.",
    "432,409 tokens",
    "--set publish.limits.max_tokens_decrease=0.02",
    "batch.per_device_max_tokens=32768",
    "tokenizer=wordpiece",
    "design=plain",
    "the secret: a password is no signature",
    "a@b.org",
    "build_tokens: no such key here",
]
KEYS = ["AKIA" + "ABCDEFGHIJKLMNOP", "hf_" + "a1" * 17, "ghp_" + "b2" * 18]


@pytest.mark.parametrize("text", SECRETS)
def test_secret_is_redacted_in_text_and_errors(text: str) -> None:
    redacted = redact(text)
    assert "SECRET" not in redacted
    assert "***" in redacted
    for error in (ConfigError(text), CorruptInputError(text, file=text, offset=3)):
        copy = pickle.loads(pickle.dumps(error))
        assert str(error) == str(copy) == redacted
        assert vars(copy) == vars(error)
        assert "SECRET" not in str(vars(error))


@pytest.mark.parametrize("text", KEYS)
def test_key_with_known_prefix_is_redacted(text: str) -> None:
    assert redact(f"refused: {text}.") == "refused: ***."


@pytest.mark.parametrize("end", [": the server cannot be reached", ". Try again", ", (c)", "'"])
def test_punctuation_behind_query_stays(end: str) -> None:
    assert redact(f"http://host/b.txt?sig=SECRET:SECRET{end}") == f"http://host/b.txt?***{end}"


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_is_unchanged(text: str) -> None:
    assert redact(text) == text


def test_values_of_secret_names_and_options() -> None:
    values = {"api_key": "x", "seed": 1, "a": [{"password": "x"}], "keys": "y"}
    redacted = {"api_key": "***", "seed": 1, "a": [{"password": "***"}], "keys": "y"}
    assert redact(values) == redacted
    options = ["--s3_session_token", "x", "--region", "y"]
    assert redact(options) == ["--s3_session_token", "***", "--region", "y"]
    error = BertloomError("s3://a:SECRET@b")
    error.add_note("of http://u:SECRET@host")
    assert "SECRET" not in f"{error} {error.__notes__} {error!r}"
    assert is_secret_key("a.s3_access_key")
    assert not is_secret_key("max_tokens")


@pytest.mark.parametrize("sign", ["\x1b", "\x00", "\r", "\x9b", "\u202e", "\u200f", "\udcff"])
def test_control_characters_and_surrogates_are_escaped(sign: str) -> None:
    escaped = escape_control_characters(f"a{sign}b\tc\nd é 人 \u200d")
    assert escaped == f"a\\u{ord(sign):04x}b\tc\nd é 人 \u200d"


def test_logs_and_console_redact_and_escape(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("http://u:SECRET@h/\x1b[2J",)
    record = logging.LogRecord("x", logging.WARNING, "x", 1, "GET %s", arguments, None)
    assert RedactingFormatter("%(message)s").format(record) == "GET http://***@h/\\u001b[2J"
    console.echo("s3://a:SECRET@b/\x1b]0;title\x07")
    assert capsys.readouterr().out == "s3://***@b/\\u001b]0;title\\u0007\n"
    name = '\x1b\x9b\u202e"'
    console.print_json({"uri": "http://x?sig=SECRET", "name": name, "secret": "S"})
    out = capsys.readouterr().out
    assert json.loads(out) == {"uri": "http://x?***", "name": name, "secret": "***"}
    assert out.replace("\n", "").isprintable()


def test_error_of_command_and_traceback_are_redacted(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("http://u:SECRET@host/\x1b[31m")

    monkeypatch.setattr("flows.cli.plan.load_recipe", fail)
    for options in ((), ("--debug",)):
        result = cli(*options, "plan", "sample")
        assert result.code == 70
        assert "SECRET" not in result.err
        assert "http://***@host/\\u001b[31m" in result.err
