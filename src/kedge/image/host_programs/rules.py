# SPDX-License-Identifier: BSD-3-Clause
"""What a program needs beyond what its ELF files say: objects opened by name at run time, and data files.

Each rule is a shared object that gives the need away, the objects it opens with dlopen, and the files it reads. Paths
are globs; what is not on this machine is left out. GPU driver objects are never packed: they must fit the kernel of the
machine where the image runs and are brought in there (`--nv`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PackRule:
    """If an object whose name begins with `trigger` is packed, then these too."""

    trigger: str
    objects: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


RULES = (
    # Name lookups go through NSS modules, thread cancellation opens libgcc_s, iconv opens gconv modules.
    PackRule(
        "libc.so",
        objects=("libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2", "libgcc_s.so.1"),
        files=(
            "/usr/lib/locale/C.utf8",
            "/usr/lib/locale/C.UTF-8",
            "/usr/share/locale/locale.alias",
            "/usr/lib*/gconv/gconv-modules*",
            "/usr/lib*/gconv/UTF-*.so",
            "/usr/lib*/gconv/UNICODE.so",
            "/usr/lib*/gconv/ISO8859-1*.so",
            "/usr/lib/*/gconv/gconv-modules*",
            "/usr/lib/*/gconv/UTF-*.so",
            "/usr/lib/*/gconv/UNICODE.so",
            "/usr/lib/*/gconv/ISO8859-1*.so",
            "/usr/share/zoneinfo/UTC",
            "/usr/share/zoneinfo/Etc/UTC",
            "/etc/protocols",
            "/etc/services",
        ),
    ),
    # Terminal descriptions of what people sit at.
    *(
        PackRule(
            trigger,
            files=tuple(
                f"{base}/{name}"
                for base in ("/lib/terminfo", "/usr/share/terminfo", "/etc/terminfo")
                for name in ("a/ansi", "d/dumb", "l/linux", "s/screen*", "t/tmux*", "v/vt100", "v/vt220", "x/xterm*")
            ),
        )
        for trigger in ("libtinfo", "libncurses")
    ),
    # Algorithms are loadable modules since OpenSSL 3; certificates of authorities make TLS useful.
    *(
        PackRule(
            trigger,
            files=(
                "/etc/ssl/openssl.cnf",
                "/etc/pki/tls/openssl.cnf",
                "/usr/lib/ssl/openssl.cnf",
                "/usr/lib*/ossl-modules/*.so",
                "/usr/lib/*/ossl-modules/*.so",
                "/etc/ssl/certs/ca-certificates.crt",
                "/etc/pki/tls/certs/ca-bundle.crt",
                "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
                "/usr/lib/ssl/certs",
                "/usr/lib/ssl/cert.pem",
                "/etc/ssl/cert.pem",
                "/etc/pki/tls/cert.pem",
            ),
        )
        for trigger in ("libcrypto", "libssl", "libgnutls")
    ),
    # MPI reaches other ranks through plug-ins: of Open MPI, of the PMIx that finds the ranks, and of UCX below MPICH.
    PackRule(
        "libopen-pal",
        files=(
            *(f"{base}/openmpi*/*.so" for base in ("/usr/lib/*/openmpi/lib", "/usr/lib*/openmpi/lib", "/usr/lib*")),
            *("/usr/share/openmpi/*.txt", "/etc/openmpi/*.conf", "/etc/openmpi-*/*.conf"),
        ),
    ),
    # the daemons of Open MPI 5; without its texts even a good start ends with an error
    PackRule("libprrte", files=("/usr/share/prte/*.txt", "/usr/share/prte/amca-param-sets/*", "/etc/prte-*.conf")),
    PackRule(
        "libpmix",
        files=tuple(
            f"{base}/{name}"
            for base in ("/usr/lib/*/pmix*", "/usr")
            for name in ("lib*/pmix/*.so", "share/pmix/help-*.txt", "etc/pmix-mca-params.conf")
        ),
    ),
    PackRule("libucs", files=("/usr/lib/*/ucx/*.so*", "/usr/lib*/ucx/*.so*", "/etc/ucx/ucx.conf")),
    PackRule("libmagic", files=("/usr/share/misc/magic.mgc", "/usr/lib/file/magic.mgc", "/usr/share/file/magic.mgc")),
)

# Programs written in Perl find their modules in these directories.
PERL_FOLDERS = (
    "/usr/lib/*/perl-base",
    "/usr/lib/*/perl/[0-9]*",
    "/usr/share/perl/[0-9]*",
    "/usr/share/perl5",
    "/usr/lib64/perl5",
    "/usr/lib/perl5",
)

# The Python standard library has parts that only its own developers use, or that need a display.
PYTHON_SKIPPED = re.compile(
    r"/(?:site-packages|dist-packages|test|tests|idlelib|tkinter|turtledemo|turtle\.py|idle_test"
    r"|config-[0-9][^/]*|_tkinter[^/]*\.so|_test[a-z]+\.[^/]*so|_xxtestfuzz[^/]*\.so)\Z"
)
PYTHON_FILES = ("/usr/share/zoneinfo/[A-Z]*", "/usr/share/zoneinfo/*.tab", "/usr/share/zoneinfo/tzdata.zi")
PYTHON_NAME = re.compile(r"(?:python|pypy)[0-9.]*\Z")
PERL_NAME = re.compile(r"perl[0-9.]*\Z")

_DRIVER = re.compile(
    r"lib(?:cuda|cudadebugger|nvcuvid|nvoptix|nvidia-[a-z0-9-]+|GLX_nvidia|EGL_nvidia|vdpau_nvidia"
    r"|GLESv[12]_[A-Z0-9]*_?nvidia)\.so(?:\..*)?\Z"
)


def is_driver_object(name: str) -> bool:
    """Whether a shared object belongs to the GPU driver of the machine where the image runs."""
    return bool(_DRIVER.match(name))


def rules_for(name: str) -> list[PackRule]:
    """The rules an object's file name sets off."""
    return [rule for rule in RULES if name.startswith(rule.trigger)]
