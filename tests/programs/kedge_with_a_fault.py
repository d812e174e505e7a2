# SPDX-License-Identifier: BSD-3-Clause
"""kedge with a function of tests/builders/faulty_writer.py applied, which the first argument names."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from kedge.cli.main import main
from tests.builders import faulty_writer

getattr(faulty_writer, sys.argv[1])()
sys.exit(main(sys.argv[2:]))
