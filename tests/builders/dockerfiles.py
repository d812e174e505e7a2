# SPDX-License-Identifier: BSD-3-Clause
"""Dockerfiles that any builder can build here, over a base that is busybox alone: for comparisons of trees and configs.

BASE stands for the reference of the base, `dir/` and `archive.tar.gz` are in the context.
"""

from __future__ import annotations

CONTEXT_FILES = {
    "dir/one": b"1\n",
    "dir/two.log": b"2\n",
    "dir/sub/three": b"3\n",
    "tool.sh": b"#!/bin/sh\necho tool\n",
    ".dockerignore": b"**/*.log\n",
}

DOCKERFILES = {
    "plain": """
FROM BASE
RUN echo hello > /greeting && mkdir -p /opt/a/b && ln -s b /opt/a/link
CMD ["cat", "/greeting"]
""",
    "arguments": """
ARG TAG=one
FROM BASE
ARG TAG
ARG OTHER="a b"
ENV X=${TAG:-none} Y=${OTHER:+set} Z="${MISSING:-fall back}" PATH=$PATH:/opt/bin
RUN echo "$TAG $OTHER $X $Y $Z" > /values
LABEL tag=$TAG words="$OTHER"
""",
    "stages": """
FROM BASE AS build
RUN mkdir /out && echo program > /out/program && echo rest > /out/rest
FROM BASE AS unused
RUN exit 1
FROM BASE
COPY --from=build /out/program /usr/local/bin/program
COPY --from=0 /out/ /all/
""",
    "stage as a base": """
FROM BASE AS first
ENV A=1
WORKDIR /work
RUN echo first > file
FROM first
RUN echo "$A" >> file && pwd > /where
ENTRYPOINT ["/bin/sh", "-c"]
""",
    "from nothing": """
FROM BASE AS build
RUN mkdir -p /root-to-be/etc && echo x > /root-to-be/etc/x
FROM scratch
COPY --from=build /root-to-be/ /
COPY tool.sh /tool
ENV ONLY=this
""",
    "deletions": """
FROM BASE
RUN rm /etc/group && rm -r /usr/share/doc && mkdir -p /usr/share/doc/new
RUN rm /etc/motd && mkdir /etc/motd && touch /etc/motd/inside
RUN rm -r /srv && echo file > /srv
""",
    "modes and links": """
FROM BASE
RUN umask 077; touch /private; mkdir /closed; chmod 4755 /bin/busybox; chmod 1777 /opt
RUN echo x > /a && ln /a /b && mkfifo /pipe && touch -d '2020-01-01 00:00:00' /old
""",
    "copies": """
FROM BASE
WORKDIR /app
COPY dir ./dir/
COPY --chown=12:34 dir/one tool.sh ./owned/
COPY --chmod=700 tool.sh /usr/bin/tool
RUN /usr/bin/tool > said
""",
    "additions": """
FROM BASE
ADD archive.tar.gz /unpacked/
ADD tool.sh /plain/
RUN cat /unpacked/inside > /seen
""",
    "settings": """
FROM BASE
MAINTAINER somebody
LABEL a=1 b="two words" \\
      c=3
EXPOSE 80 443/tcp 53/udp
VOLUME ["/data", "/more data"]
STOPSIGNAL SIGINT
USER nobody
WORKDIR /a
WORKDIR b
WORKDIR /c/../d
""",
    "entry point resets the command": """
FROM BASE
CMD ["from", "here"]
ENTRYPOINT ["/bin/sh"]
""",
    "command as text": """
FROM BASE
ENTRYPOINT exec top -b
CMD echo $HOME
""",
    "another shell": """
FROM BASE
SHELL ["/bin/busybox", "sh", "-ec"]
RUN false || echo recovered > /state
CMD echo hi
""",
    "continuations": """
# escape=`
FROM BASE
RUN echo one `
    # a comment in between
    && echo two > /two `

    && echo three > /three
""",
    "users": """
FROM BASE
RUN mkdir /home/nobody && chown 65534:65534 /home/nobody
USER 65534
RUN id -u > /home/nobody/id
USER 0
RUN id -u > /root-id
""",
    "mounts": """
FROM BASE AS other
RUN mkdir /x && echo from-stage > /x/file
FROM BASE
RUN --mount=type=bind,source=dir,target=/ctx cat /ctx/one > /copied
RUN --mount=type=bind,from=other,source=/x,target=/x cat /x/file > /from-stage
RUN --mount=type=tmpfs,target=/scratch touch /scratch/gone && ls /scratch > /listed
RUN --mount=type=cache,target=/var/cache/x touch /var/cache/x/y
""",
    "environment of steps": """
FROM BASE
ENV A="x y" B=$A C='$A' D=\\$A
RUN echo "$A|$B|$C|$D|$HOME|$PWD" > /env
ENV A=new E=${A}
""",
    "exec form": """
FROM BASE
RUN ["/bin/touch", "/a b", "/$HOME"]
RUN ["/bin/sh", "-c", "echo $0 > /zero"]
""",
    "overwritten": """
FROM BASE
COPY dir/one /etc/motd
RUN echo again >> /etc/motd
COPY dir/sub/three /etc/motd
RUN cp /etc/passwd /etc/passwd.new && mv /etc/passwd.new /etc/passwd
""",
    "links of the base": """
FROM BASE
COPY dir/one /lib/one
RUN echo two > /lib/two && mkdir /lib/deep
WORKDIR /lib/work
""",
    "from an image": """
FROM BASE
COPY --from=BASE /etc/motd /taken
RUN cat /taken > /seen
""",
}
