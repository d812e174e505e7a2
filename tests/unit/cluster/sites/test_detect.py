# SPDX-License-Identifier: BSD-3-Clause
"""Which site this is: by names, by variables, by the programs that are here."""

from __future__ import annotations

import re

from kedge.cluster.sites.detect import HostSigns, detect_scheduler, detect_site, is_other_text, list_names
from kedge.cluster.sites.profile import SHIPPED, ProfileDirectory, Sign, list_signs
from tests.builders.rows import each_row, with_rows
from tests.wording import assert_reads

SIGNS = list_signs((ProfileDirectory(SHIPPED, "shipped"),))


@with_rows(
    *(("tauruslogin4", "zih-taurus"), ("taurusi8003.taurus.hrsk.tu-dresden.de", "zih-taurus")),
    *(("login1.alpha.hpc.tu-dresden.de", "zih-alpha"), ("i8037.alpha.hpc.tu-dresden.de", "zih-alpha")),
    ("login2.capella.hpc.tu-dresden.de", "zih-capella"),
    *(("sdumont15", "sdumont"), ("sdumont2nd4", "sdumont2nd"), ("login.sdumont2nd.lncc.br", "sdumont2nd")),
    *(("es1.abci.local", "abci2"), ("g0001.abci.local", "abci2"), ("hnode001", "abci3")),
    *(("login2.frontera.tacc.utexas.edu", "tacc-frontera"), ("c401-064.frontera.tacc.utexas.edu", "tacc-frontera")),
    *(("login1.ls6.tacc.utexas.edu", "tacc-lonestar6"), ("login1.vista.tacc.utexas.edu", "tacc-vista")),
)
def test_detect_knows_machines_by_name(hostname: str, site: str) -> None:
    found = detect_site(HostSigns((hostname,)), SIGNS)
    assert found[0].site == site
    assert hostname in found[0].reason
    assert len(found) == 2  # and the generic one


@each_row("hostname", ["localhost", "login1", "alpha", "vm", "xlogin1.alpha.hpc.tu-dresden.de.evil.org"])
def test_detect_takes_no_stranger_for_a_site(hostname: str) -> None:
    assert [each.site for each in detect_site(HostSigns((hostname,)), SIGNS)] == ["local"]


def test_detect_patterns_are_unanimous() -> None:
    """No pattern is so wide that it catches another site's machines."""
    names = ["login1.alpha.hpc.tu-dresden.de", "sdumont15", "sdumont2nd4", "es1.abci.local", "hnode766"]
    for name in names:
        assert sum(any(re.fullmatch(each, name) for each in sign.hostnames) for sign in SIGNS) == 1


def test_detect_knows_sites_by_variables() -> None:
    found = detect_site(HostSigns(("c123",), {"TACC_SYSTEM": "vista"}, frozenset({"sbatch"})), SIGNS)
    assert [each.site for each in found] == ["tacc-vista", "generic-slurm"]
    assert_reads(found[0].reason, "site/is-set-for-it", "TACC_SYSTEM")
    sign = Sign("x", variables=(("A", "1"), ("B", ".+")))
    assert detect_site(HostSigns(environ={"A": "1"}), [sign])[0].site == "local"
    assert detect_site(HostSigns(environ={"A": "1", "B": "2"}), [sign])[0].site == "x"
    mine = Sign("mine", hostnames=("login1.vista.tacc.utexas.edu",))
    assert detect_site(HostSigns(("login1.vista.tacc.utexas.edu",)), [mine, *SIGNS])[0].site == "mine"


@with_rows(
    *(({}, "", "", "local"), ({}, "sbatch", "", "generic-slurm"), ({"SLURM_CONF": "/x"}, "", "", "generic-slurm")),
    *(({}, "qconf", "", "generic-gridengine"), ({"SGE_ROOT": "/x"}, "", "", "generic-gridengine")),
    *(({}, "pbsnodes", "", "generic-pbs"), ({}, "", "/etc/pbs.conf", "generic-pbs")),
    *(({"PBS_CONF_FILE": "/x"}, "", "", "generic-pbs"), ({}, "sbatch qconf pbsnodes", "", "generic-slurm")),
    ({"SGE_ROOT": "/x"}, "sbatch qconf", "", "generic-gridengine"),  # Slurm's programs, but nothing set up
    ({"SGE_ROOT": "/x"}, "sbatch qconf", "/etc/slurm/slurm.conf", "generic-slurm"),
    ({"SGE_ROOT": "/x", "SLURM_CONF": "/y"}, "sbatch qconf", "", "generic-slurm"),
    ({"SGE_ROOT": "/x"}, "pbsnodes", "/etc/pbs.conf", "generic-gridengine"),
    ({"PBS_CONF_FILE": "/x"}, "sbatch pbsnodes", "", "generic-pbs"),
    ({}, "qconf pbsnodes", "", "generic-gridengine"),
    ({"PBS_CONF_FILE": "/x"}, "sbatch qconf pbsnodes", "", "generic-pbs"),
)
def test_detect_tells_schedulers_apart(environ: dict[str, str], programs: str, files: str, site: str) -> None:
    machine = HostSigns(("x",), environ, frozenset(programs.split()), frozenset(files.split()))
    assert detect_scheduler(machine).site == site


def test_detect_lists_all_names_of_a_machine() -> None:
    hosts = "127.0.0.1 localhost\n10.0.0.1 login1.alpha.hpc.tu-dresden.de login1 # me\n10.0.0.2 login2.other login2\n"
    resolver = "nameserver 1.1.1.1\nsearch alpha.hpc.tu-dresden.de. example.org\n\n"
    assert list_names("login1", hosts, resolver) == ("login1", "login1.alpha.hpc.tu-dresden.de", "login1.example.org")
    assert list_names("LOGIN1.Example.org", "", resolver) == ("login1.example.org",)
    assert list_names("", "garbage\n\0\n", "search\n") == ()


@with_rows(
    (r"(es|g)\d+\.abci\.local", "es1.abci.local", False),
    (r"(es|g)\d+\.abci\.local", "login.example.org", True),
    (r".*\.example\.org", "abci.local", True),
    (r"foo|login\d+\.example\.org", "foo", False),  # the end of the last of several
    (r"((foo|bar)x|y)\.org", "foox.org", False),
    *((r"(?i:login)\.ORG", "login.ORG", False), (r"login\.orgs?", "login.org", False)),
    *((r"node\d+(\..*)?", "node1", False), (r"c[.|]\.org", "c..org", False), (r"node\d+(\..*)?", "login1", True)),
    *(("vista", "frontera", True), ("vista", "vista", False)),
    (r"ab*\d", "a1", False),  # what may be absent says nothing
    *((r"ab?", "a", False), (r"ab{0,2}", "a", False), (r"ab+", "b", True), (r"a|b", "b", False), ("", "a", False)),
)
def test_detect_plain_text_of_a_pattern_says_no_before_it_is_compiled(pattern: str, name: str, is_told: bool) -> None:
    assert is_other_text(pattern, name) is is_told
    assert not (is_told and re.fullmatch(pattern, name))
