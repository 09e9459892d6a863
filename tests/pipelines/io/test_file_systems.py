from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pipelines.io.local_files import file_lock, write_atomic


def test_waiting_for_a_lock_is_reported_first(tmp_path: Path) -> None:
    waiting, order = threading.Event(), list[str]()

    def second() -> None:
        with file_lock(tmp_path / "below" / "lock", before_waiting=waiting.set):
            order.append("second")

    with file_lock(tmp_path / "below" / "lock", before_waiting=lambda: pytest.fail("it is free")):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(300)
        order.append("first")
    thread.join(300)
    assert order == ["first", "second"]


def test_atomic_write_replaces_the_whole_file(tmp_path: Path) -> None:
    target = tmp_path / "below" / "file"
    write_atomic(target, b"old")
    with target.open("rb") as reader:
        write_atomic(target, b"new")
        assert reader.read() == b"old"
    assert target.read_bytes() == b"new"
    assert list(target.parent.iterdir()) == [target]
