from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stream_site.devstack.local_model import embedded, find_ollama, ollama_url, smallest_chat_model

TAGS = {
    "models": [
        {"name": "nomic-embed-text:latest", "size": 1, "details": {"family": "nomic-bert"}},
        {"name": "llama3.1:8b", "size": 4_900_000_000, "details": {"family": "llama"}},
        {"name": "llama3.2:3b", "size": 2_000_000_000, "details": {"family": "llama"}},
    ]
}


@pytest.mark.parametrize(
    ("value", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        (":8080", "http://127.0.0.1:8080"),
        ("gpu.campus.example", "http://gpu.campus.example:11434"),
        ("https://gpu.campus.example", "https://gpu.campus.example:443"),
        ("http://gpu.campus.example", "http://gpu.campus.example:80"),
        ("[::1]:9000", "http://[::1]:9000"),
    ],
)
def test_ollama_host_is_read_as_ollama_reads_it(value: str, url: str) -> None:
    assert ollama_url(value) == url


def test_the_smallest_model_that_chats_is_chosen() -> None:
    assert smallest_chat_model(TAGS) == "llama3.2:3b"


@pytest.mark.parametrize("tags", [None, [], {}, {"models": None}, {"models": [None, {"size": 1}]}, {"models": []}])
def test_an_answer_without_models_gives_none(tags: Any) -> None:
    assert smallest_chat_model(tags) == ""


def test_the_embedded_model_is_spoken_to_as_openai() -> None:
    assert embedded(8081, "key").environment() == {
        "LOCAL_KIND": "openai",
        "LOCAL_BASE_URL": "http://127.0.0.1:8081/v1",
        "LOCAL_MODEL": "smollm2-135m-instruct",
        "LOCAL_API_KEY": "key",
    }


@asynccontextmanager
async def answering(body: bytes | None, status: bytes = b"200 OK") -> AsyncIterator[str]:
    """Yield host:port of an HTTP server that answers a request with `body`, or (None) says nothing until it is left."""
    handlers: list[asyncio.Task[Any] | None] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.current_task())
        await reader.readuntil(b"\r\n\r\n")
        if body is None:
            await reader.read()
        else:
            writer.write(
                b"HTTP/1.1 %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (status, len(body), body)
            )
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"
    await asyncio.gather(*(task for task in handlers if task))


async def test_an_ollama_with_a_model_is_used() -> None:
    async with answering(json.dumps(TAGS).encode()) as host:
        found = await find_ollama({"OLLAMA_HOST": host})
    assert found is not None
    assert found.environment()["LOCAL_KIND"] == "ollama"
    assert found.environment()["LOCAL_BASE_URL"] == f"http://{host}"
    assert found.name == "llama3.2:3b"
    assert "llama3.2:3b by Ollama at" in found.words


async def test_the_model_that_the_administrator_names_is_used() -> None:
    async with answering(json.dumps(TAGS).encode()) as host:
        found = await find_ollama({"OLLAMA_HOST": host, "LOCAL_MODEL": "llama3.1:8b"})
    assert found is not None
    assert found.name == "llama3.1:8b"


@pytest.mark.parametrize("body", [b"<html>", b'{"models": []}', b"[]"])
async def test_something_else_on_the_port_is_not_an_ollama(body: bytes) -> None:
    async with answering(body) as host:
        assert await find_ollama({"OLLAMA_HOST": host}) is None


async def test_a_silent_port_costs_a_second_and_no_more() -> None:
    async with answering(None) as host, asyncio.timeout(3):
        assert await find_ollama({"OLLAMA_HOST": host}) is None


async def test_an_address_that_is_none_is_no_ollama() -> None:
    assert await find_ollama({"OLLAMA_HOST": "host:port:more"}) is None
