# SPDX-License-Identifier: BSD-3-Clause
"""Files that are bound over an image's scripts count as the image's own, as the environment files of shpc do."""

from __future__ import annotations

from tests.interop.conformance.case import IMAGES, Case, execute

OWN = "/.singularity.d"
SETUP = r"""
echo 'export BOUND=yes' > variables.sh
printf '#!/bin/sh\necho bound "$@"\n' > script
chmod +x script
mkdir -p own/env folder
echo 'export BOUND=folder' > folder/90-environment.sh
echo 'export BOUND=own' > own/env/95-more.sh
cp script own/runscript
"""
SEE = "env | grep BOUND; env | grep -c FROM_IMAGE; true"


def see(name: str, flags: str) -> Case:
    return Case(f"bound-{name}", execute("base.sif", SEE, flags), setup=SETUP)


def start(name: str, verb: str, image: str, *flags: str) -> Case:
    return Case(f"bound-{name}", (verb, *flags, image, "a", "b c"), setup=SETUP)


# Scripts of the image's environment that fail, end the start, or set what the runtime sets.
ENDINGS = {
    "fails": ("nosuchcommand 2>/dev/null; export BOUND=after; return 3", 0),
    "guarded": ("export SINGULARITY_CONTAINER=zz BOUND=$APPTAINER_NAME", 0),
    "exits": ("exit 3", 3),
    "stops": ("set -e; false", 1),
    "exits-well": ("exit 0", 0),
}
ENDING = ("-B", f"own.sh:{OWN}/env/90-environment.sh")


CASES = [
    *(
        Case(
            f"bound-environment-{name}",
            ("exec", *ENDING, f"{IMAGES}/base.sif", "sh", "-c", "echo $BOUND $SINGULARITY_CONTAINER"),
            setup=f"echo '{text}' > own.sh",
            status=status,
        )
        for name, (text, status) in ENDINGS.items()
    ),
    see("environment-new", f"-B variables.sh:{OWN}/env/99-shpc.sh"),
    see("environment-over", f"-B variables.sh:{OWN}/env/90-environment.sh"),
    see("environment-readonly", f"-B variables.sh:{OWN}/env/91-environment.sh:ro"),
    see("environment-dots", f"-B variables.sh:/data/..{OWN}/env/99-shpc.sh"),
    see("environment-mount", f"--mount type=bind,src=variables.sh,dst={OWN}/env/99-shpc.sh"),
    see("environment-folder", f"-B folder:{OWN}/env"),
    see("environment-all", f"-B own:{OWN}"),
    see("environment-contain", f"--containall -B variables.sh:{OWN}/env/99-shpc.sh"),
    start("runscript", "run", f"{IMAGES}/base.sif", "-B", f"script:{OWN}/runscript"),
    start("runscript-entrypoint", "run", f"{IMAGES}/both.sif", "-B", f"script:{OWN}/runscript"),
    start("runscript-all", "run", f"{IMAGES}/both.sif", "-B", f"own:{OWN}"),
    start("runscript-folder", "run", f"{IMAGES}/box", "-B", f"script:{OWN}/runscript"),
    start("runscript-layers", "run", f"docker-archive:{IMAGES}/base.docker.tar", "-B", f"script:{OWN}/runscript"),
    start("test", "test", f"{IMAGES}/base.sif", "-B", f"script:{OWN}/test"),
]
