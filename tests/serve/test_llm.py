"""`llm`, a command line for models that nobody here wrote, talks to the server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.running import Running

pytest.importorskip("llm", reason="pip install llm: the second client of OpenAI's API")
MODELS = """
- model_id: ours
  model_name: gpt
  api_base: {url}/v1
  api_key_name: none
- model_id: written
  model_name: gpt
  api_base: {url}/v1
  api_key_name: none
  completion: true
"""


def ask(served: Running, home: Path, *words: str) -> str:
    (home / "extra-openai-models.yaml").write_text(MODELS.format(url=served.url), encoding="utf-8")
    (home / "keys.json").write_text('{"none": "none"}', encoding="utf-8")
    command = [sys.executable, "-m", "llm", *words, "--key", "none", "--no-log"]
    environment = {"LLM_USER_PATH": str(home), "PATH": "", "PYTHONUTF8": "1"}
    answer = subprocess.run(command, capture_output=True, env=environment, timeout=120)
    assert answer.returncode == 0, answer.stderr.decode()
    return answer.stdout.decode().removesuffix("\n")


@pytest.mark.parametrize("stream", [True, False])
def test_chat(served: Running, tmp_path: Path, stream: bool) -> None:
    words = ["the film was", "-m", "ours", "-o", "max_tokens", "9", "-o", "seed", "3"]
    text = ask(served, tmp_path, *words, *([] if stream else ["--no-stream"]))
    talk = served.loaded("gpt").chat(max_new_tokens=9, seed=3)
    assert text == "".join(talk.say("the film was"))


def test_completion(served: Running, tmp_path: Path) -> None:
    words = ["the film was", "-m", "written", "-o", "max_tokens", "9", "-o", "temperature", "0"]
    expected = served.loaded("gpt").generate("the film was", max_new_tokens=9).text
    assert ask(served, tmp_path, *words) == expected
