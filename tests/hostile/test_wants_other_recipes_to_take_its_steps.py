# SPDX-License-Identifier: BSD-3-Clause
"""A recipe wants other recipes to take the results of its steps: a proxy of its own decides what they fetched."""

from __future__ import annotations

import pytest

from tests.builders.builds import SHELL, Workshop

FETCH = "RUN echo from ${http_proxy:-the true host} > /fetched\n"  # as a program that heeds the variable
TRUE = "from the true host\n"


@pytest.mark.parametrize("name", ["http_proxy", "HTTPS_PROXY", "all_proxy", "No_Proxy"])
@pytest.mark.parametrize("way", ["ENV", "ARG"])
def test_proxy_of_a_recipe_counts(shop: Workshop, name: str, way: str) -> None:
    step = FETCH.replace("http_proxy", name)
    shop.write("evil", f"{SHELL}{way} {name}=http://evil:1\n{step}")
    shop.build("evil.sif", "evil")
    assert shop.exec("evil.sif", "/bin/busybox", "cat", "/fetched") == "from http://evil:1\n"
    shop.write("Dockerfile", f"{SHELL}{step}")
    assert shop.states("out.sif", "Dockerfile")[-1] == "done"
    assert shop.exec("out.sif", "/bin/busybox", "cat", "/fetched") == TRUE


def test_proxy_of_the_host_does_not_count(shop: Workshop) -> None:
    """Hosts that reach the network in different ways share what they have built."""
    shop.write("Dockerfile", f"{SHELL}{FETCH}")
    shop.build("out.sif", "Dockerfile", env={"http_proxy": "http://site:3128"})
    assert shop.exec("out.sif", "/bin/busybox", "cat", "/fetched") == "from http://site:3128\n"
    assert set(shop.states("--force", "out.sif", "Dockerfile")) == {"cached"}
    shop.write("x.def", f"Bootstrap: localimage\nFrom: {shop.make_base()}\n%post\necho $http_proxy > /fetched\n")
    shop.build("def.sif", "x.def", env={"http_proxy": "http://site:3128"})
    assert shop.exec("def.sif", "cat", "/fetched") == "http://site:3128\n"
    assert "done" not in shop.states("--force", "def.sif", "x.def")
