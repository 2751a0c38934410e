"""What a shell is answered that asks levelog how a line goes on."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LEVELOG = Path(sys.executable).with_name("levelog")


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_commands_and_options() -> None:
    ask = """
        source <("$1" --show-completion)
        complete -p levelog
        for line in 'levelog impo' 'levelog levels --stat'; do
            COMP_WORDS=($line) COMP_CWORD=$(($(wc -w <<<"$line") - 1))
            _levelog_completion levelog
            echo "${COMPREPLY[@]}"
        done
    """
    path = f"{LEVELOG.parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", ask, "bash", LEVELOG],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "PATH": path},
    )
    assert [line.split() for line in ended.stdout.splitlines()[-2:]] == [["import-crd"], ["--status"]], ended
