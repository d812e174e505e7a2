# SPDX-License-Identifier: BSD-3-Clause
"""Signatures over SIF objects: OpenPGP, DSSE, keyrings."""
