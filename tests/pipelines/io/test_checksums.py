import hashlib

import pytest

from pipelines.io.checksums import is_checksum_list, published_checksums, verify_file
from schemas.errors import ChecksumError, InputError

pytestmark = pytest.mark.usefixtures("fresh_cache")


@pytest.fixture
def dump(tmp_path):
    (tmp_path / "raw").mkdir()
    path = tmp_path / "raw" / "xxwiki.xml.bz2"
    path.write_bytes(b"content")
    return path


def sha1(data):
    return hashlib.sha1(data).hexdigest()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sha1sums.txt", True),
        ("folder/enwiki-20250101-md5sums.txt", True),
        ("SHA256SUMS", True),
        ("enwiki-20250101-sha1sums-pages.txt", True),
        ("mysha1sums.xml", False),
        ("consums.txt", False),
    ],
)
def test_names_of_lists(name, expected):
    assert is_checksum_list(name) is expected


def test_intact_file_is_verified(dump):
    listing = dump.with_name("xxwiki-20250101-sha1sums.txt")
    listing.write_text(f"{'0' * 40}  other.xml\n{sha1(b'content').upper()} *{dump.name}\n\n")
    published = published_checksums([str(dump)])
    read, checksum = verify_file(str(dump), published[str(dump)])
    assert checksum == f"sha1:{sha1(b'content')}"
    assert read.digests["sha256"] == hashlib.sha256(b"content").hexdigest()


def test_damaged_file_is_refused_with_both_digests(dump):
    dump.with_name("sha1sums.txt").write_text(f"{'0' * 40}  {dump.name}\n")
    published = published_checksums([str(dump)])
    with pytest.raises(ChecksumError) as error:
        verify_file(str(dump), published[str(dump)])
    message = str(error.value)
    for part in (str(dump), "0" * 40, sha1(b"content"), "sha1sums.txt", "Download"):
        assert part in message


def test_file_that_no_list_names_is_not_verified(dump):
    dump.with_name("sha1sums.txt").write_text(f"{'0' * 40}  other.xml\n")
    assert published_checksums([str(dump)]) == {}
    assert verify_file(str(dump), None)[1] == ""


def test_of_two_lists_the_stronger_algorithm_is_used(dump):
    dump.with_name("md5sums.txt").write_text(f"{'0' * 32}  {dump.name}\n")
    dump.with_name("sha1sums.txt").write_text(f"{sha1(b'content')}  {dump.name}\n")
    assert published_checksums([str(dump)])[str(dump)].algorithm == "sha1"


@pytest.mark.parametrize("text", ["<html>not found</html>\n", f"{'0' * 39}  x.xml\n"])
def test_invalid_list_is_refused_with_its_line(dump, text):
    dump.with_name("sha1sums.txt").write_text(f"{'0' * 40}  y.xml\n{text}")
    with pytest.raises(InputError, match="line 2"):
        published_checksums([str(dump)])
