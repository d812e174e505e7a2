# SPDX-License-Identifier: BSD-3-Clause
"""Dockerfiles that can be built without a network, for kedge and for other builders.

All begin with an image of busybox made from nothing. `differs` says where another builder's config may differ, and why.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BASE = """FROM scratch AS base
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
RUN mkdir -p /etc && mkdir -m 1777 /tmp && echo 'root:x:0:' > /etc/group \\
    && echo 'root:x:0:0::/root:/bin/sh' > /etc/passwd && echo 'staff:x:1001:' >> /etc/group \\
    && echo 'alice:x:1000:1001::/home/alice:/bin/sh' >> /etc/passwd
"""
CONTEXT = {
    "greeting": "hello\n",
    "src/main.c": "int main;\n",
    "src/deep/er/file.txt": "deep\n",
    "src/skip.log": "log\n",
    "run.sh": "#!/bin/sh\necho ran\n",
    ".dockerignore": "*.log\n**/*.log\n!keep.log\n",
    "keep.log": "kept\n",
}


@dataclass(frozen=True, slots=True)
class DockerfileCase:
    """One file, what it is built with, and which keys of the config other builders write differently."""

    text: str
    arguments: dict[str, str] = field(default_factory=dict)
    target: str = ""
    differs: dict[str, str] = field(default_factory=dict)  # key of the config, or path: why


_VOLUME = "buildah makes the directories of volumes, BuildKit does not"
CASES = {
    "environment": DockerfileCase(
        "FROM base\nENV A=1 B=\"two words\" C='$A'\nENV D=$A-${B} E=${X:-x} F=${A:+set} PATH=/opt/bin:$PATH\n"
        "ENV legacy form $A\nRUN env | grep -E '^(A|B|C|D|E|F|PATH|legacy)=' | sort > /env\n"
    ),
    "arguments": DockerfileCase(
        "ARG TOP=top\nFROM base\nARG TOP\nARG A=1\nARG B=$A-$TOP\nARG GIVEN=no\nARG UNSET\n"
        "RUN echo $TOP $A $B $GIVEN ${UNSET-unset} > /arguments\nENV KEPT=$B\nLABEL given=$GIVEN\n",
        {"GIVEN": "yes"},
    ),
    "base by argument": DockerfileCase(
        "ARG STAGE=wrong\nFROM base AS one\nRUN echo 1 > /one\nFROM base AS two\nRUN echo 2 > /two\nFROM ${STAGE}\n"
        "RUN cat /two > /seen\n",
        {"STAGE": "two"},
    ),
    "labels": DockerfileCase(
        'FROM base\nLABEL a=1 "b c"="d e" f.g=h\\ i\nLABEL legacy form of it\nLABEL a=2\nLABEL multi="x \\\n  y"\n'
    ),
    "working directories": DockerfileCase(
        "FROM base\nWORKDIR /a\nWORKDIR b\nRUN pwd > where\nENV D=/d/$UNSET\nWORKDIR ${D}e\nRUN pwd > where\n"
        "WORKDIR ../f/./g\nCOPY greeting .\nCOPY greeting other\n"
    ),
    "shell and exec form": DockerfileCase(
        'FROM base\nRUN echo "$0" > /shell\nSHELL ["/bin/sh", "-ec"]\nRUN false || echo "$-" > /options\n'
        'RUN ["/bin/sh", "-c", "echo exec > /exec"]\nCMD echo "hi $USER"\nENTRYPOINT ["/bin/sh"]\n',
        differs={"Cmd": "buildah takes /bin/sh -c, whatever SHELL says"},
    ),
    "entrypoint and cmd": DockerfileCase(
        'FROM base AS first\nCMD ["first"]\nENTRYPOINT ["/entry"]\nFROM first\nENTRYPOINT ["/other"]\n'
    ),
    "cmd after entrypoint": DockerfileCase('FROM base\nENTRYPOINT ["/a", "-b"]\nCMD ["c", "d e"]\n'),
    "ports, volumes, user, signal": DockerfileCase(
        'FROM base\nENV P=90\nEXPOSE 80 81/udp $P 100-102\nVOLUME /data /more\nVOLUME ["/with space"]\n'
        "STOPSIGNAL SIGINT\nUSER alice\nRUN id -u > /tmp/id\nUSER 0:0\n",
        differs={
            "ExposedPorts": "buildah does not take a range apart",
            "/data": _VOLUME,
            "/more": _VOLUME,
            "/with space": _VOLUME,
            "/tmp/id": "without subordinate ids all that a step makes belongs to root",
        },
    ),
    "health": DockerfileCase(
        "FROM base\nHEALTHCHECK --interval=1m30s --timeout=5s --start-period=2s --retries=4 CMD test -e /ok\n"
    ),
    "no health": DockerfileCase('FROM base AS b\nHEALTHCHECK CMD ["/check"]\nFROM b\nHEALTHCHECK NONE\n'),
    "copies": DockerfileCase(
        "FROM base\nCOPY greeting run.sh /opt/\nCOPY src /src\nCOPY src/deep /src2/\nCOPY *.log /logs/\n"
        "COPY --chown=alice:staff greeting /owned\nCOPY --chown=12:34 src /ids/\nCOPY --chmod=700 run.sh /bin/mine\n"
        'COPY ["greeting", "/a name"]\nENV DEST=/by/variable/\nCOPY greeting $DEST\n'
    ),
    "stages": DockerfileCase(
        "FROM base AS build\nRUN mkdir /out && echo made > /out/made && ln -s made /out/link\nFROM base AS unused\n"
        'RUN false\nFROM scratch\nCOPY --from=build /out/ /result/\nCOPY --from=1 /out/made /again\nCMD ["/again"]\n'
    ),
    "target": DockerfileCase(
        "FROM base AS wanted\nRUN echo wanted > /wanted\nENV W=1\nFROM base\nRUN false\n", target="wanted"
    ),
    "deletions": DockerfileCase(
        "FROM base\nRUN mkdir -p /d/e && echo 1 > /d/one && echo 2 > /d/e/two && ln -s one /d/l\n"
        "RUN rm /d/one && mv /d/e /d/f\n"
        "RUN rm -r /d && mkdir /d && echo new > /d/new\nRUN chmod 0700 /d && chmod u+s /d/new\n"
    ),
    "continuation": DockerfileCase(
        "# escape=`\nFROM base\nRUN echo a `\n    # comment\n    b   `  \n\n"
        "    c > /words\nENV A=b`\n  C=d\nLABEL p=c:\\x\n",
        differs={"Labels": "buildah takes a backslash for the escape character here too"},
    ),
    "comments and blanks": DockerfileCase(
        "# a comment\n\n  FROM base\n\n   # indented\nrun echo one > /one\n"
        "\tRun echo two \\\n# inside\n  # inside too\n  > /two\n"
    ),
    "triggers": DockerfileCase(
        "FROM base AS parent\nONBUILD RUN echo triggered > /trigger\nONBUILD ENV T=1\n"
        "FROM parent\nRUN cat /trigger > /seen\n",
    ),
    "triggers kept": DockerfileCase("FROM base\nONBUILD RUN echo a \\\n  b\nONBUILD COPY --chown=1 x /y\n"),
    "mounts": DockerfileCase(
        "FROM base AS tools\nRUN echo tool > /tool\nFROM base\nRUN --mount=type=bind,from=tools,source=/tool,target=/t "
        "cat /t > /copy\nRUN --mount=type=tmpfs,target=/scratch echo x > /scratch/x\n"
        "RUN --mount=type=cache,target=/cache echo x > /cache/x\n"
        "RUN rmdir /scratch /cache 2>/dev/null; rm -f /t; ls -d /[cst]* > /list\n"
    ),
    "owners given by steps": DockerfileCase(
        "FROM base\nRUN mkdir -p /data/deep /home/alice && echo x > /data/deep/given && echo y > /data/own && "
        "chown -R alice:staff /data /home/alice && chown 12:34 /data/deep/given && chgrp 7 /etc/group\n"
        "USER alice\nWORKDIR /home/alice\n"
        "RUN echo mine > mine && mkdir -p dir/er && ln -s mine link && echo more >> /data/own\n"
        "USER 4321\nRUN echo number > /tmp/number\n"
        "USER root\nRUN echo root > /home/alice/roots && chown 0:0 /data/own\n"
        "COPY --chown=alice greeting /data/copied\nRUN echo again >> /data/copied && chmod 2750 /data/deep\n"
    ),
    "owners copied": DockerfileCase(
        "FROM base AS made\nRUN mkdir /data && echo x > /data/given && chown 12:34 /data /data/given\n"
        "FROM base\nUSER alice\nRUN umask 027 && mkdir /tmp/x && echo 1 > /tmp/x/y\nCOPY --from=made /data /data\n"
        "COPY --from=made --chown=5:6 /data /other\n"
    ),
    "modes and links": DockerfileCase(
        "FROM base\nRUN umask 077; touch /private; mkdir /closed /opt; chmod 4755 /bin/busybox; chmod 1777 /opt\n"
        "RUN echo x > /a && ln /a /b && mkfifo /pipe && touch -d '2020-01-01 00:00:00' /old\n"
    ),
    "overwritten": DockerfileCase(
        "FROM base\nCOPY greeting /etc/motd\nRUN echo again >> /etc/motd\nCOPY src/main.c /etc/motd\n"
        "RUN cp /etc/passwd /etc/passwd.new && mv /etc/passwd.new /etc/passwd\n"
    ),
    "links of the base": DockerfileCase(
        "FROM base AS linked\nRUN mkdir -p /usr/lib && ln -s usr/lib /lib\nFROM linked\nCOPY greeting /lib/one\n"
        "RUN echo two > /lib/two && mkdir /lib/deep\n"
    ),
    "exec form": DockerfileCase(
        'FROM base\nRUN ["/bin/touch", "/a b", "/$HOME"]\nRUN ["/bin/sh", "-c", "echo $0 > /zero"]\n'
    ),
    "author": DockerfileCase("FROM base\nMAINTAINER Me <me@example.org>\n"),
}
