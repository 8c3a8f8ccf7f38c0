"""Answers of a bounded size, with both libraries."""

import asyncio
import gzip

import httpx
import httpx2
import pytest

from guerdon._http import MAX_ANSWER, hide_query, read_answer, shown_url


@pytest.fixture(params=[httpx, httpx2], ids=lambda library: library.__name__)
def library(request):
    return request.param


def read(library, content, encoding="identity", **options):
    async def main():
        headers = {"content-encoding": encoding, "content-type": "text/plain"}
        stream = library.ByteStream(content)
        answering = library.MockTransport(
            lambda request: library.Response(201, headers=headers, stream=stream)
        )
        async with library.AsyncClient(transport=answering) as client:
            sent = await client.send(client.build_request("GET", "http://host/"), stream=True)
            try:
                return await read_answer(sent, **options)
            finally:
                assert sent.is_closed

    return asyncio.run(main())


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_read_answer_returns_an_answer_of_the_largest_size(library, encoding):
    content = b"a" * MAX_ANSWER
    answer = read(library, gzip.compress(content) if encoding == "gzip" else content, encoding)
    assert (answer.status_code, answer.content) == (201, content)
    assert dict(answer.headers) == {"content-type": "text/plain", "content-length": "16777216"}
    assert str(answer.request.url) == "http://host/"


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_read_answer_rejects_a_larger_answer(library, encoding):
    content = b"a" * (MAX_ANSWER + 1)
    with pytest.raises(library.DecodingError, match="answered with more than 16777216 bytes"):
        read(library, gzip.compress(content) if encoding == "gzip" else content, encoding)


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip"])
def test_read_answer_rejects_what_decompresses_to_any_size(library, encoding):
    with pytest.raises(library.DecodingError, match=f"the content-encoding '{encoding}'"):
        read(library, gzip.compress(gzip.compress(b"{}")), encoding)


def test_read_answer_rejects_invalid_gzip(library):
    with pytest.raises(library.DecodingError, match="answered with invalid gzip"):
        read(library, b"{}", "gzip")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://host:8000/v1", "http://host:8000/v1"),
        ("https://me:secret@host/@v1?key=secret#secret", "https://host/@v1"),
        ("http://me:p@ss@[::1]/", "http://[::1]/"),
        ("postgresql://me:secret@host/db", "postgresql://host/db"),
        ("judge", "judge"),
        ("http://[::1?key=secret", "http://[::1"),
    ],
)
def test_shown_url_has_no_secrets(url, shown):
    assert shown_url(url) == shown


def test_hide_query_changes_only_what_is_shown(library, caplog):
    caplog.set_level("DEBUG")
    paths = []

    def answer(request):
        paths.append(request.url.raw_path)
        return library.Response(200)

    with library.Client(transport=library.MockTransport(answer)) as client:
        request = client.build_request("GET", "http://host/v1?key=s3cret")
        hide_query(request)
        client.send(request)
    assert paths == [b"/v1?key=s3cret"]
    assert "http://host/v1 " in caplog.text
    assert "s3cret" not in caplog.text
