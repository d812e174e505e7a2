# SPDX-License-Identifier: BSD-3-Clause
"""kedge does what the real Apptainer does, case by case, or does otherwise as docs/compatibility.md says.

What Apptainer did is recorded (`answers.py`). Where kedge differs on purpose the case names the section that says why,
and the test wants the difference to be there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.builders.docker_registry import docker_registry
from tests.interop.conformance.answers import IS_RECORDING, find_answer, write_answers
from tests.interop.conformance.case import Case
from tests.interop.conformance.cases import CASES
from tests.interop.conformance.cases.commands import LOGINS
from tests.interop.conformance.runner import Places, Result, open_places
from tests.requirements import REPOSITORY, require_program

pytestmark = [pytest.mark.peer, pytest.mark.root]
PAGE = REPOSITORY / "docs/compatibility.md"
# An image is usually unpacked; what lies above it must not notice when it is mounted instead. These are the ways that
# go through the mount: what it says to writers, files that are copied up, hidden and linked above it, an image over an
# image, places that are made in it with and without an overlay, a user it does not know, its owners in a namespace.
OVER_A_MOUNT = (
    *("layer-readonly-message", "layer-tmpfs-change", "layer-tmpfs-chmod", "layer-folder-kept"),
    *("layer-squashfs-writable", "layer-underlay-in-folder", "bind-missing-destination", "user-passwd-of-image"),
    "apart-fakeroot-ownership",
)
FOR_SQUASHFUSE = [
    pytest.param(case, id=case.name, marks=[] if case.name in OVER_A_MOUNT else [pytest.mark.long])
    for case in CASES
    if case.name.startswith(("layer-", "bind-missing", "user-", "apart-fakeroot"))
]
# With the ids of /etc/subuid fake root knows many users, without them itself alone; machines have them or not. What
# they change: who one is, the map, whose files are, and whom they can be given to.
BY_IDS = ("apart-fakeroot", "apart-fakeroot-map", "apart-fakeroot-ownership", "apart-fakeroot-chown")
FOR_FAKEROOT = [
    pytest.param(case, id=case.name, marks=[] if case.name in BY_IDS else [pytest.mark.long])
    for case in CASES
    if case.name.startswith("apart-fakeroot")
]


@pytest.fixture(scope="module")
def places() -> Iterator[Places]:
    with open_places() as opened:
        yield opened
        if IS_RECORDING:
            write_answers(opened.apptainer, {case.name: case for case in (*CASES, *LOGINS)}, opened.answers)


@pytest.fixture(scope="module")
def places_without_ids(places: Places) -> Iterator[Places]:
    with open_places(places.images, with_subordinates=False) as opened:
        yield opened


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_conformance_kedge_does_as_apptainer(places: Places, case: Case) -> None:
    judge(places, case)


@pytest.mark.parametrize("case", FOR_SQUASHFUSE)
def test_conformance_holds_with_squashfuse(places: Places, case: Case) -> None:
    require_program("squashfuse")
    judge(places.with_variables(KEDGE_ROOT_FROM="squashfuse"), case)


@pytest.mark.parametrize("case", FOR_FAKEROOT)
def test_conformance_holds_without_subordinate_ids(places_without_ids: Places, case: Case) -> None:
    judge(places_without_ids, case)


@pytest.fixture(scope="module")
def places_with_registry(places: Places, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    with docker_registry(tmp_path_factory.mktemp("registry"), htpasswd={"somebody": "secret"}) as registry:
        registry.copy_in(f"oci-archive:{places.images / 'base.oci.tar'}", "private/base:1")
        for place in (places.apptainer, places.kedge):
            (place.folder / "srv/registry").write_text(registry.host)
        yield places


@pytest.mark.parametrize("case", LOGINS, ids=lambda case: case.name)
def test_conformance_logins(places_with_registry: Places, case: Case) -> None:
    judge(places_with_registry, case)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_conformance_records_are_what_apptainer_does(places: Places, case: Case) -> None:
    recorded = find_answer(case)
    assert recorded is not None, "scripts/record-apptainer makes the record"
    assert places.ask(case)[0] == recorded[0]


def judge(places: Places, case: Case) -> None:
    """Run a case and compare, with the record first."""
    recorded = find_answer(case)
    if recorded is not None:
        try:
            compare(case, recorded, places.kedge.run(case))
        except AssertionError:
            pass  # this machine may differ from the one of the record
        else:
            return
    compare(case, *places.run_both(case))


def compare(case: Case, apptainer: tuple[Result, str], kedge: tuple[Result, str]) -> None:
    """Whether kedge did as it should, by what Apptainer did."""
    (theirs, said), (ours, message) = apptainer, kedge
    assert theirs.status == case.status, f"Apptainer does not do what the case expects of it: {theirs}\n{said}"
    assert case.prints in (None, theirs.stdout), f"Apptainer does not print what the case expects of it: {said}"
    assert "this is a bug" not in message
    assert "Traceback" not in message
    told = f"\nApptainer said: {said}\nkedge said: {message}"
    assert not [word for word in case.mentions if word not in said or word not in message], told
    if case.difference:
        judge_difference(case, theirs, ours, told)
    else:
        assert ours == theirs, told


def judge_difference(case: Case, theirs: Result, ours: Result, told: str) -> None:
    """A difference that is meant is there, and is the one that is meant."""
    assert ours != theirs, f"there is no difference any more: take 'difference' out of the case{told}"
    assert ours.status == (case.status if case.our_status is None else case.our_status), told
    assert case.ours is None or re.fullmatch(case.ours, ours.stdout), f"kedge printed {ours.stdout!r}{told}"


def list_sections() -> set[str]:
    """The names in the first column of the page's table that tests show."""
    return set(re.findall(r"^\| `([\w-]+)` \|", PAGE.read_text(), re.MULTILINE))


def test_conformance_page_lists_the_differences() -> None:
    named = {case.difference for case in (*CASES, *LOGINS) if case.difference}
    assert named == list_sections(), "docs/compatibility.md and the cases differ"


def test_conformance_cases_have_names_of_their_own() -> None:
    twice = [name for name, count in Counter(case.name for case in (*CASES, *LOGINS)).items() if count > 1]
    assert not twice
    assert len(CASES) > 350
    assert set(OVER_A_MOUNT) <= {parameters.id for parameters in FOR_SQUASHFUSE}
    assert set(BY_IDS) <= {parameters.id for parameters in FOR_FAKEROOT}
