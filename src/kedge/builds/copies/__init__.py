# SPDX-License-Identifier: BSD-3-Clause
"""Files that go into a layer without a program: COPY, ADD, %files and what kedge writes itself."""
