# SPDX-License-Identifier: BSD-3-Clause
# Each target does its own set-up on a fresh Debian or Ubuntu: as root it installs what is missing, otherwise it says so.

.PHONY: help venv setup demo fast test test-all clean-room check bench bundle reference tables site pictures format clean

help:
	@echo "make demo       build, explain, run, submit, launch, measure: two minutes; only its set-up needs a network"
	@echo "make fast       check, then the unit tests: minutes, as any user, without services"
	@echo "make test       check, then all tests"
	@echo "make test-all   the same, and the long ones: 20,000 generated trees through every writer and reader, an hour"
	@echo "make clean-room as root: demo and tests in a bare Debian root; ROOM='--suite trixie' and other options of scripts/clean-room"
	@echo "make check      format, lint, types, architecture, documents"
	@echo "make bench      pulls and starts, against the floor of the codecs and against other tools"
	@echo "make bundle     one executable file with all of kedge, in dist/"
	@echo "make venv       .venv with kedge and the developers' tools"
	@echo "make setup      as root: the programs that tests use"
	@echo "make reference  the man pages and the pages of all options, in build/reference"
	@echo "make tables     write the tables in the repository that are made from others again"
	@echo "make site       the documentation as web pages, in build/site"
	@echo "make pictures   record the terminal pictures of docs/pictures again"
	@echo "make format     format the code"

venv:
	@scripts/setup-venv

setup:
	@scripts/setup-system

demo: venv
	@scripts/demo

fast:
	@scripts/fast

test:
	@scripts/test

test-all:
	@scripts/test --all

clean-room:
	@scripts/clean-room $(ROOM)

check:
	@scripts/check

bench: setup venv
	@scripts/bench

bundle: venv
	@mkdir -p dist
	@.venv/bin/kedge bundle --force dist/kedge-$$(uname -m)

reference: venv
	@.venv/bin/python scripts/make-reference build/reference

tables: venv
	@.venv/bin/python scripts/make-tables

site: venv
	@scripts/build-site

pictures: venv
	@scripts/make-pictures

format: venv
	@.venv/bin/ruff format src tests bench
	@.venv/bin/ruff check --fix src tests bench

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build bench/.work
