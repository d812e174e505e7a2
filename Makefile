# SPDX-License-Identifier: BSD-3-Clause
# Each target does its own set-up on a fresh Debian or Ubuntu: as root it installs what is missing, otherwise it says so.

.PHONY: help venv setup demo test check bench reference format clean

help:
	@echo "make demo       an image made of this machine's programs, and containers from it"
	@echo "make test       check, then all tests"
	@echo "make check      format, lint, types, architecture, documents"
	@echo "make bench      pulls and starts, against the floor of the codecs and against other tools"
	@echo "make venv       .venv with kedge and the developers' tools"
	@echo "make setup      as root: the programs that tests use"
	@echo "make reference  write the generated pages of docs/ again"
	@echo "make format     format the code"

venv:
	@scripts/setup-venv

setup:
	@scripts/setup-system

demo: venv
	@scripts/demo

test:
	@scripts/test

check:
	@scripts/check

bench: setup venv
	@scripts/bench

reference: venv
	@.venv/bin/python scripts/make-reference
	@.venv/bin/python scripts/make-threat-table

format: venv
	@.venv/bin/ruff format src tests bench
	@.venv/bin/ruff check --fix src tests bench

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build bench/.work
