# SPDX-License-Identifier: BSD-3-Clause
"""Ways to name an image, and flags before and after the verb."""

from __future__ import annotations

from tests.interop.conformance.case import IMAGES, Case

SEE = ("sh", "-c", "cat /data/file; echo $FROM_IMAGE; echo $APPTAINER_NAME $APPTAINER_CONTAINER $SINGULARITY_CONTAINER")
BASE = f"{IMAGES}/base.sif"
UNNAMED = ("sh", "-c", "cat /data/file; echo $FROM_IMAGE $BOTH; pwd")


def named(name: str, reference: str, program: tuple[str, ...] = SEE, **more: object) -> Case:
    return Case(f"reference-{name}", ("exec", reference, *program), **more)  # type: ignore[arg-type]


CASES = [
    named("absolute", BASE),
    named("dot-dot", "../reference-dot-dot/copy.sif", setup=f"cp {BASE} copy.sif"),
    named("link", "link", setup=f"ln -s {BASE} link"),
    named("space", f"{IMAGES}/name with space.sif"),
    named("colon", "with:colon.sif", setup=f"cp {BASE} with:colon.sif"),
    named("folder", f"{IMAGES}/box"),
    named("folder-relative", "box", setup=f"ln -s {IMAGES}/box box"),
    named("squashfs", f"{IMAGES}/base.sqsh"),
    named("oci-archive", f"oci-archive:{IMAGES}/base.oci.tar", UNNAMED),
    named("docker-archive", f"docker-archive:{IMAGES}/base.docker.tar", UNNAMED),
    named("archive-missing", "oci-archive:/no/such.tar", status=255, mentions=("/no/such.tar",)),
    named("unknown-scheme", "nonsense://x", status=255),
    named(
        "unreadable",
        "secret.sif",
        setup=f"cp {BASE} secret.sif; chmod 000 secret.sif",
        status=255,
        mentions=("secret.sif",),
    ),
    named("folder-empty", "empty", setup="mkdir empty", status=255),
    named("truncated", "cut.sif", setup=f"head -c 50000 {BASE} > cut.sif", status=255),
    Case("reference-run-folder", ("run", f"{IMAGES}/box", "echo", "ran")),
    Case("reference-run-docker-archive", ("run", f"docker-archive:{IMAGES}/base.docker.tar", "echo", "ran")),
    Case("reference-two-at-once", script=f"for i in 1 2 3 4; do $runtime exec {BASE} sh -c 'echo ran' & done; wait"),
    Case(
        "reference-nothing-left",
        script=f"$runtime exec {BASE} true; ls -A; ls /tmp | grep -ciE '^(rootfs|build-temp|sbuild)'; true",
    ),
    *(Case(f"reference-global{flag}", (flag, "exec", BASE, "echo", "ran")) for flag in ("-q", "--silent")),
    Case("reference-idle-flags", ("exec", "--nv", "--rocm", "--unsquash", BASE, "echo", "ran")),
    Case("reference-flags-together", ("exec", "-ce", "--pid", BASE, "sh", "-c", "pwd; env | grep -c HOST"), status=1),
    Case("reference-flag-after-image", ("exec", BASE, "--cleanenv", "true"), status=255),
    Case("reference-flag-false", ("exec", "--cleanenv=false", BASE, "sh", "-c", "echo $A"), env={"A": "host"}),
    Case("reference-variable-false", ("exec", BASE, "sh", "-c", "echo $A"), env={"A": "h", "APPTAINER_CLEANENV": "0"}),
]
