"""Fixtures of the downloads."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fake_site import FakeSite


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSite]:
    """An http site without files."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("BERTLOOM_CONTACT", raising=False)
    with FakeSite() as served:
        monkeypatch.setenv("BERTLOOM_MIRROR", served.url)
        yield served


@pytest.fixture
def https_site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeSite]:
    """An https site without files, whose certificate clients trust."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj",
         "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out",
         str(certificate)],
        check=True,
        capture_output=True,
    )  # fmt: skip
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with FakeSite(tls=context) as served:
        yield served
