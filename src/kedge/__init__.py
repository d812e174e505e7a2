# SPDX-License-Identifier: BSD-3-Clause
"""kedge: from the name of a GPU container image to a running job on a cluster.

`kedge.explain`, `kedge.pull`, `kedge.run` and their kind are the verbs as functions; see `kedge.api`.
"""

TYPE_CHECKING = False  # as typing has it, whose import would cost every start of a container
if TYPE_CHECKING:
    from kedge.api import (
        Advice,
        BuildOptions,
        BuildResult,
        Converted,
        Diagnosis,
        Explanation,
        Finished,
        Inspection,
        JobHandle,
        Pulled,
        Pushed,
        SearchResult,
        TagListing,
        TagQuery,
        Unpacked,
        build,
        convert,
        diagnose,
        explain,
        inspect,
        job,
        pull,
        push,
        recommend,
        run,
        search,
        submit,
        tags,
        unpack,
    )
    from kedge.base.release import VERSION as __version__  # noqa: N811 - its name outside
    from kedge.tools.executor import Executor

__all__ = [
    "Advice",
    "BuildOptions",
    "BuildResult",
    "Converted",
    "Diagnosis",
    "Executor",
    "Explanation",
    "Finished",
    "Inspection",
    "JobHandle",
    "Pulled",
    "Pushed",
    "SearchResult",
    "TagListing",
    "TagQuery",
    "Unpacked",
    "__version__",
    "build",
    "convert",
    "diagnose",
    "explain",
    "inspect",
    "job",
    "pull",
    "push",
    "recommend",
    "run",
    "search",
    "submit",
    "tags",
    "unpack",
]


def __getattr__(name: str) -> object:
    """Return one of the functions of `kedge.api`, imported when it is first used: the command line needs none."""
    if name == "__version__":
        from kedge.base.release import VERSION

        return VERSION
    if name not in __all__:
        raise AttributeError(f"module 'kedge' has no attribute '{name}'")
    from kedge import api
    from kedge.tools import executor

    return getattr(executor if name == "Executor" else api, name)


def __dir__() -> list[str]:
    return sorted(__all__)
