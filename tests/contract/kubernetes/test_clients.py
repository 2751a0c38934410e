"""Other programs on the sandbox and on kube-apiserver: each does the same on both, and is answered the same."""

import asyncio
import secrets
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from levelog_sandbox import Sandbox
from rigs.controlplane import ControlPlane

Steps = list[tuple[str, Any]]
Compare = Callable[[Callable[[Path, str], Awaitable[Steps]]], Awaitable[None]]


@pytest_asyncio.fixture
async def compare(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Compare]:
    """Run a story on both servers, without controllers, and compare it step by step."""
    async with Sandbox(collects_garbage=False) as sandbox:

        async def compared(story: Callable[[Path, str], Awaitable[Steps]]) -> None:
            namespace = f"c-{secrets.token_hex(4)}"
            ours = await story(sandbox.kubeconfig(tmp_path / "sandbox"), namespace)
            theirs = await story(control_plane.kubeconfig, namespace)
            assert [step for step, _ in ours] == [step for step, _ in theirs]
            for (step, answer), (_, expected) in zip(ours, theirs, strict=True):
                assert answer == expected, step

        yield compared


async def test_the_official_client_is_answered_the_same(compare: Compare) -> None:
    from rigs.clients import official

    await compare(lambda kubeconfig, namespace: asyncio.to_thread(official.story, kubeconfig, namespace))


@pytest.mark.long
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl not found: put it on the PATH")
async def test_kubectl_is_answered_the_same(compare: Compare, tmp_path: Path) -> None:
    from rigs.clients import kubectl

    async def story(kubeconfig: Path, namespace: str) -> Steps:
        return await asyncio.to_thread(kubectl.story, kubeconfig, namespace, tmp_path / f"files-{kubeconfig.stem}")

    await compare(story)
