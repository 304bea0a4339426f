"""The embedded model: a real llama.cpp server with the real model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import pytest

from routing.embedded import model_server
from stream_site.devstack.places import free_port

KEY = "a-key-for-this-test"
QUESTION = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 12}


@pytest.fixture(scope="module")
def model() -> Iterator[httpx.Client]:
    port = free_port()
    command = [sys.executable, "-m", "routing.embedded.model_server", "--port", str(port)]
    process = subprocess.Popen(
        command,
        env=os.environ | {model_server.KEY_VARIABLE: KEY},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    headers = {"Authorization": f"Bearer {KEY}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30) as client:
        wait_until_loaded(client, process)
        yield client
    process.terminate()
    assert process.wait(10) == 0


def wait_until_loaded(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            if client.get("/health").status_code == 200:
                return
        except httpx.ConnectError:
            pass
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_streams_tokens_and_usage(model: httpx.Client) -> None:
    body = QUESTION | {"stream": True, "stream_options": {"include_usage": True}}
    with model.stream("POST", "/v1/chat/completions", json=body) as answer:
        data = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    events = [json.loads(line) for line in data[:-1]]
    text = "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])
    assert text.strip()
    assert events[-1]["usage"]["completion_tokens"] > 0
    assert events[0]["model"] == model_server.MODEL_NAME


def test_refuses_a_caller_without_the_key(model: httpx.Client) -> None:
    answer = model.post("/v1/chat/completions", json=QUESTION, headers={"Authorization": "Bearer wrong"})
    assert answer.status_code == 401


def test_lets_no_other_page_read_its_answers(model: httpx.Client) -> None:
    answer = model.get("/v1/models", headers={"Origin": "http://other.example"})
    assert answer.headers.get("access-control-allow-origin") not in ("*", "http://other.example")


def test_does_not_start_without_a_key() -> None:
    environment = {name: value for name, value in os.environ.items() if name != model_server.KEY_VARIABLE}
    command = [sys.executable, "-m", "routing.embedded.model_server", "--port", str(free_port())]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20, check=False)
    assert ended.returncode == 2
    assert f"{model_server.KEY_VARIABLE} is not set" in ended.stderr
