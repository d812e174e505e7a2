# SPDX-License-Identifier: BSD-3-Clause
"""What a walk through a page demands: every command is typed or marked, and something is expected of each."""

from __future__ import annotations

from tests.tutorials.lessons import Expect
from tests.tutorials.site_pages import read_site_text
from tests.tutorials.walks import Walk, expect_job

PAGE = """\
Say `kedge config set site here`; `kedge run` and `--mpi` are words.

```console
$ kedge submit --gpus 1 \\
    image train
$ kedge status
```

_Not run by a test: a reason._

```console
$ kedge never
```

## More

```toml
[job]
```

| what | here |
|---|---|
| `kedge logs` | a verb |

| they type | you type |
|---|---|
| `sbatch x \\| y` | `kedge logs`, or `ibrun kedge run x` |
| `squeue` | `kedge jobs`: _Not run by a test: a reason._ |
"""
EXPECTED = {
    "kedge config": Expect(),
    "kedge submit": expect_job("trained"),
    "kedge status": Expect(says="done"),
    "kedge logs": Expect(),
    "ibrun": Expect(),
}


def list_faults(expected: dict[str, Expect]) -> list[str]:
    return Walk("page", expected).list_steps(read_site_text(PAGE))[1]


def test_walks_find_every_command_and_file() -> None:
    steps, faults = Walk("page", EXPECTED).list_steps(read_site_text(PAGE))
    assert faults == []
    assert [(step.found.line, step.text, step.found.host) for step in steps] == [
        (1, "kedge config set site here", ""),
        (5, "kedge submit --gpus 1 image train", ""),
        (6, "kedge status", ""),
        (18, "[job]\n", "More"),
        (27, "kedge logs", "More"),
        (27, "ibrun kedge run x", "More"),
    ]


def test_walks_demand_an_expectation_of_each_command() -> None:
    without = {key: value for key, value in EXPECTED.items() if key != "kedge status"}
    assert list_faults(without) == ["line 6: nothing is expected of: kedge status"]


def test_walks_demand_a_command_for_each_expectation() -> None:
    assert list_faults({**EXPECTED, "kedge cancel": Expect()}) == ["the page has no command that begins: kedge cancel"]


def test_walks_look_at_what_jobs_did() -> None:
    [fault] = list_faults({**EXPECTED, "kedge submit": Expect()})
    assert fault.startswith("line 5: nobody looks at what the job did")


def test_walks_do_not_take_a_command_for_its_output() -> None:
    assert list_faults({**EXPECTED, "kedge status": Expect(says="stat")}) == ["line 6: /stat/ is in the command itself"]


def test_walks_take_only_their_sections() -> None:
    steps, faults = Walk("page", {"kedge logs": Expect(), "ibrun": Expect()}, sections=("More",)).list_steps(
        read_site_text(PAGE)
    )
    assert (len(steps), faults) == (3, [])
