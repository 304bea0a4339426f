"""Fixtures: the running site, answered by the scripted upstream."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.fixtures_upstream import UpstreamControl
from tests.site import Page, Site, running_site


def upstream_env(upstream: UpstreamControl) -> dict[str, str]:
    """Return the settings of a site whose local and cloud tiers are the scripted upstream."""
    return {
        "LOCAL_BASE_URL": upstream.openai_url,
        "LOCAL_MODEL": "local-model",
        "CLOUD_BASE_URL": upstream.openai_url,
        "CLOUD_API_KEY": "key-of-the-tests",
    }


@pytest.fixture(scope="session")
def site_process(upstream_process: UpstreamControl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Start the site once, with the embedded runner."""
    with running_site(tmp_path_factory.mktemp("site"), **upstream_env(upstream_process)) as site:
        site.start_web()
        yield site


@pytest.fixture(scope="session")
def alice_http(site_process: Site) -> Iterator[httpx.Client]:
    http = site_process.sign_in("alice")
    yield http
    http.close()


@pytest.fixture(scope="session")
def bob_http(site_process: Site) -> Iterator[httpx.Client]:
    http = site_process.sign_in("bob")
    yield http
    http.close()


@pytest.fixture
def site(site_process: Site, upstream: UpstreamControl) -> Site:
    """Return the running site; the upstream has no scripts and an empty log."""
    return site_process


@pytest.fixture
def page_of(site: Site) -> Iterator[Callable[..., Page]]:
    """Return a maker of open pages; all are closed at the end."""
    pages: list[Page] = []

    def make(http: httpx.Client, **kwargs: object) -> Page:
        page = Page(site, http, **kwargs).open()  # type: ignore[arg-type]
        pages.append(page)
        return page

    yield make
    for page in pages:
        page.close()


@pytest.fixture
def alice(page_of: Callable[..., Page], alice_http: httpx.Client) -> Page:
    """Return an open page of alice, on a new conversation."""
    return page_of(alice_http)
