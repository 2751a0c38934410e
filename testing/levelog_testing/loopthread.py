"""An event loop in its own thread: a test may run in a loop already, and could not wait for this one."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, TypeVar

from levelog_base.errors import LevelogError

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for callers that wait; what fails in the background is raised to the next one that calls."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._note)
        self._failures: list[BaseException] = []
        self._has_ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end.

        Raises what it raises; LevelogError, from its cause, if something else failed in the thread meanwhile or before.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        either: list[Future[Any]] = [future, self._has_ended]
        try:
            wait(either, return_when=FIRST_COMPLETED)
        except BaseException:  # Ctrl-C: nobody waits for it any more
            future.cancel()
            raise
        if not future.done():
            self._raise_failure()
        try:
            result = future.result()
        except Exception as error:
            if self._failures:
                error.add_note(f"before that, {self._name} failed: {self._failures[0]!r}")
            raise
        except BaseException as error:  # SystemExit of a user's function would end the test run without a word
            raise LevelogError(f"{self._name} was ended by {error!r}") from error
        self._raise_failure()
        return result

    def end(self) -> None:
        """Stop the loop and wait for the thread. Raises as `call` for what failed and was not raised yet."""
        if not self._has_ended.done():
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._raise_failure()

    def _raise_failure(self) -> None:
        failures, self._failures = self._failures, []
        if failures:
            raise LevelogError(f"{self._name} failed: {failures[0]!r}") from failures[0]

    def _serve(self) -> None:
        try:
            while not self._is_stopped():
                pass
        except BaseException as error:  # noqa: BLE001 - raised to whoever calls next
            self._failures.append(error)
        finally:
            self._has_ended.set_result(None)

    def _is_stopped(self) -> bool:
        """Run the loop; tells whether it was stopped, and not ended by a task that raised SystemExit."""
        try:
            self._loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            return False  # the caller gets it with the task's result
        return True

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            self._failures.append(error)
        else:
            loop.default_exception_handler(context)
