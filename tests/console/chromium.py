"""A page in Chromium that fails its test if it logs an error."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TIME_LIMIT_MS = 60_000

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


@contextmanager
def watched_page(browser: Browser, errors: list[str]) -> Generator[Page]:
    """Fails if the page logs an error that is not taken from `errors`, or if what came from the cluster was run."""
    opened = browser.new_page(viewport={"width": 1280, "height": 860}, ignore_https_errors=True)
    opened.set_default_timeout(TIME_LIMIT_MS)
    expect.set_options(timeout=TIME_LIMIT_MS)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda message: _note(message, errors))
    yield opened
    assert opened.evaluate("window.broken") is None
    opened.close()
    assert errors == []


def _note(message: ConsoleMessage, errors: list[str]) -> None:
    if message.type == "error":
        errors.append(message.text)
