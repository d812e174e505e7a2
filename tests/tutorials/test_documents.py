# SPDX-License-Identifier: BSD-3-Clause
"""Commands are found in documents of both kinds; the five tutorials give as many as were counted by hand."""

from __future__ import annotations

from collections import Counter

from tests.builders.rows import each_row
from tests.requirements import require_shared
from tests.tutorials.documents import Kind, read_document

MARKDOWN = """\
Type `$tool pull x` or `tool`, where `$HOME` is yours; `cat /etc/os-release` shows more.

```console
marie@login$ tool one   #why
output

[me@n1 ~]$ tool two
```

> Quoted:
> ```bash
> #!/bin/bash
> #SBATCH -n 1
>
> tool
> ```

```
registry.org/<name>
```
"""
RST = """\
See `tool <https://tool.org/>`_ or ``squeue -u [username]``.

.. code-block:: console

\tA remark
\t$ tool one
\toutput

.. literalinclude:: assets/file.sh
    :caption: file.sh

.. code-block:: shell

    # a comment
    first && \\
    \t\tsecond

    third

.. list-table:: Table
    :header-rows: 1

    * -
      - here
      - there
    * - Who?
      - whoami
      - id

.. code-block:: shell

    > printed
"""


def list_found(text: str) -> list[tuple[int, str, str, str]]:
    return [(each.line, each.kind.value, each.text, each.host) for each in read_document(text)]


def test_documents_markdown() -> None:
    assert list_found(MARKDOWN) == [
        (1, "command", "tool pull x", ""),
        (1, "command", "cat /etc/os-release", ""),
        (4, "command", "tool one   #why", "login"),
        (7, "command", "tool two", "n1"),
        (12, "script", "#!/bin/bash\n#SBATCH -n 1\n\ntool\n", ""),
        (19, "name", "registry.org/<name>", ""),
    ]


def test_documents_rst() -> None:
    assert list_found(RST) == [
        (1, "command", "squeue -u [username]", ""),
        (6, "command", "tool one", ""),
        (9, "file", "file.sh", ""),
        (15, "command", "first && second", ""),
        (18, "command", "third", ""),
        (27, "command", "whoami", "compute"),
        (28, "command", "id", "login"),
        (32, "output", "> printed", ""),
    ]


@each_row(
    "document, commands, scripts, files, others",
    [("000", 10, 0, 0, 0), ("001", 15, 1, 0, 0), ("002", 25, 2, 0, 4), ("003", 45, 0, 34, 1), ("004", 43, 1, 0, 0)],
)
def test_documents_all_commands_of_the_tutorials(
    document: str, commands: int, scripts: int, files: int, others: int
) -> None:
    [path] = require_shared("tutorials").glob(f"{document}_*")
    kinds = Counter(each.kind for each in read_document(path.read_text(encoding="utf-8")))
    assert (kinds[Kind.COMMAND], kinds[Kind.SCRIPT], kinds[Kind.FILE]) == (commands, scripts, files)
    assert kinds[Kind.NAME] + kinds[Kind.OUTPUT] == others
