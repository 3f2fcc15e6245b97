"""Chromium for the tests of the page."""

from collections.abc import Generator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.console.chromium import CHROMIUM, watched_page


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def errors() -> list[str]:
    """What the page logs as an error. A request that is refused is logged by the browser."""
    return []


@pytest.fixture
def page(browser: Browser, errors: list[str]) -> Generator[Page]:
    with watched_page(browser, errors) as opened:
        yield opened
