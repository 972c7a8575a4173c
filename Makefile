# gb10.ring: every target installs what it needs (as root, from the package registries), and stops what it starts.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
WHEELS := $(VENV)/share/gb10-ring/wheels
export PATH := $(BIN):$(PATH)

.PHONY: help setup
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(VENV)/.done ## Virtual environment with everything pinned, this checkout linked into it as gb10.ring

$(VENV)/.done: requirements.txt requirements-dev.txt tools/setup-venv
	PYTHON=$(PYTHON) tools/setup-venv $(VENV) $(WHEELS)
	touch $@
