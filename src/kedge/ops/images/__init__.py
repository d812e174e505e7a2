# SPDX-License-Identifier: BSD-3-Clause
"""Images as files: pulled, pushed, converted, unpacked, inspected."""
