# SPDX-License-Identifier: BSD-3-Clause
"""A recipe wants other recipes to take the results of its steps: a proxy of its own decides what they fetched."""

from __future__ import annotations

from tests.builders.builds import SHELL, Workshop

FETCH = "RUN echo from ${http_proxy:-the true host} > /fetched\n"  # as a program that heeds the variable
TRUE = "from the true host\n"


NAMES = ("http_proxy", "HTTPS_PROXY", "all_proxy", "No_Proxy")


def write_stages(shop: Workshop, file: str, ways: tuple[str, ...]) -> list[str]:
    """A recipe in which each name has a stage for each way to set it, so that no step stands on another's."""
    text, places = SHELL, []
    for way in ways:
        for name in NAMES:
            setting = f"{way} {name}=http://evil:1\n" if way else ""
            place = f"{way}{name}".lower()
            text += f"FROM base AS {place}\n{setting}{FETCH.replace('http_proxy', name)}"
            places.append(place)
    text += "FROM base\n" + "".join(f"COPY --from={place} /fetched /{place}\n" for place in places)
    shop.write(file, text)
    return places


def test_proxy_of_a_recipe_counts(shop: Workshop) -> None:
    evil = write_stages(shop, "evil", ("ENV", "ARG"))
    shop.build("evil.sif", "evil")
    names = [f"/{place}" for place in evil]
    assert shop.exec("evil.sif", "/bin/busybox", "cat", *names) == "from http://evil:1\n" * len(names)
    true = write_stages(shop, "Dockerfile", ("",))
    shop.build("out.sif", "Dockerfile")
    names = [f"/{place}" for place in true]
    assert shop.exec("out.sif", "/bin/busybox", "cat", *names) == TRUE * len(names)


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
