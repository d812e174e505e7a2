# SPDX-License-Identifier: BSD-3-Clause
"""Python functions that run elsewhere: packed here, called in a container by another Python, the result read here.

Functions travel as source or by the name of their module, never as bytecode: the image's Python may be another version.
"""
