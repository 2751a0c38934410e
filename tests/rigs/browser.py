"""A headless Chromium, driven by Selenium, as a person would use pages."""

import asyncio
import base64
import json
import os
import shutil
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from rigs.waiting import until

if TYPE_CHECKING:  # it takes longer to load than all tests of a folder
    from selenium import webdriver

T = TypeVar("T")
LOAD_SECONDS: Final = 30.0
_RUN_AXE: Final = "axe.run({resultTypes: ['violations']}).then(found => arguments[0](found.violations))"


class BrowserMissing(Exception):
    """There is no Chromium here: `apt-get install chromium chromium-driver`."""

    def __str__(self) -> str:
        return str(self.__doc__)


def chromium(folder: Path) -> "webdriver.Chrome":
    """Start one, which keeps its profile in a folder. Raises BrowserMissing."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        raise BrowserMissing
    options = Options()
    options.binary_location = program
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage")
    for flag in (*flags, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options, Service(driver))
    started.set_page_load_timeout(LOAD_SECONDS)
    return started


class Browser:
    """The one window of a Chromium, blank before and after. Selenium blocks, so each step is made in a thread."""

    def __init__(
        self, driver: "webdriver.Chrome", *, width: int = 1280, is_dark: bool = False, has_scripts: bool = True
    ) -> None:
        self.driver = driver
        """Selenium's own."""
        self._width, self._is_dark, self._has_scripts = width, is_dark, has_scripts

    async def __aenter__(self) -> Self:
        size = {"width": self._width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        colours = {"name": "prefers-color-scheme", "value": "dark" if self._is_dark else "light"}
        await self._tell("Emulation.setDeviceMetricsOverride", size)
        await self._tell("Emulation.setEmulatedMedia", {"features": [colours]})
        await self._tell("Emulation.setScriptExecutionDisabled", {"value": not self._has_scripts})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.open("about:blank")
        await self.complaints()

    async def _tell(self, command: str, values: dict[str, Any]) -> Any:
        return await asyncio.to_thread(self.driver.execute_cdp_cmd, command, values)

    async def open(self, url: str) -> None:
        """Go to an address."""
        await asyncio.to_thread(self.driver.get, url)

    async def back(self) -> None:
        """Go back to the page before."""
        await asyncio.to_thread(self.driver.back)

    async def texts(self, selector: str) -> list[str]:
        """What is read in each element, on one line."""
        read = "each => ((each.innerText ?? '').trim() || each.textContent).split(/\\s+/).filter(Boolean).join(' ')"
        found = await self.script(f"[...document.querySelectorAll({json.dumps(selector)})].map({read})")
        return [str(each) for each in found]

    async def click(self, selector: str) -> None:
        """Click the first such element."""
        await asyncio.to_thread(lambda: self.driver.find_element("css selector", selector).click())

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other."""

        def type_them() -> None:
            for key in keys:
                self.driver.switch_to.active_element.send_keys(key)

        await asyncio.to_thread(type_them)

    async def script(self, text: str) -> Any:
        """What JavaScript returns; works where pages may run none."""
        told = {"expression": text, "returnByValue": True}
        answer = await self._tell("Runtime.evaluate", told)
        return answer["result"].get("value")

    async def shows(self, selector: str, *texts: str, seconds: float = 90.0) -> str:
        """Wait for an element that reads so; returns its text."""

        async def find() -> str:
            return next((each for each in await self.texts(selector) if all(text in each for text in texts)), "")

        return await until(find, f"{' and '.join(texts)} in {selector}", seconds=seconds)

    async def complaints(self) -> list[str]:
        """What the console says: blocked scripts, errors, files that are missing."""
        return [str(each["message"]) for each in await asyncio.to_thread(self.driver.get_log, "browser")]

    async def barriers(self) -> list[str]:
        """What axe-core finds that keeps people out: contrast, headings, landmarks, labels, the keyboard.

        The page has to run scripts: axe-core waits by timers.
        """

        def look() -> Any:
            self.driver.set_script_timeout(60)
            self.driver.execute_script((files("axe_core_python") / "axe.min.js").read_text())
            return self.driver.execute_async_script(_RUN_AXE)

        found = await asyncio.to_thread(look)
        return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]

    async def picture(self, name: str, *, height: int = 900) -> None:
        """Write a PNG of what is seen, as far down as that, into LEVELOG_PICTURES, if somebody looks there."""
        if not (folder := os.environ.get("LEVELOG_PICTURES")):
            return
        clip = {"x": 0, "y": 0, "width": self._width, "height": height, "scale": 1}
        answer = await self._tell("Page.captureScreenshot", {"clip": clip})
        await asyncio.to_thread((Path(folder) / name).write_bytes, base64.b64decode(answer["data"]))


TAB, ENTER = "\ue004", "\ue007"  # as WebDriver names these keys
