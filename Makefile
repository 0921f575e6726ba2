# From a fresh clone each target does all the set-up it needs: Python 3.11 or newer, make and git are enough.
PYTHON ?= python3
BIN := .venv/bin
# Only their files: to collect all tests takes each process many seconds more.
SLOW = $(shell grep -rlw --include='*.py' mark.slow tests)
STORIES = $(BIN)/pytest -q -m slow -rfEs -o cache_dir=.pytest_cache/stories  # what failed is theirs alone
CRASHES = $(BIN)/pytest -q -n 2 --dist worksteal -k "crash or any_reconcile or role_is_used"
UV_VERSION := 0.13.9
# Images often forbid Python to keep its bytecode, and the tests start hundreds of processes: each would compile
# every module again, seconds of CPU time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check slow stories samples chaos crashes deletable conformance mutants bench reference site lock clean

help:  ## these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile

demo: .venv/ready  ## a full local setup on this machine; REPO=PATH with your repository; FULL=1 with queues, profiles, and services; ONCE=1 runs one sweep and exits with its result
	@$(BIN)/python -m local demo $(if $(ONCE),--once) $(if $(FULL),--full) $(if $(REPO),--repo "$(REPO)")

test: .venv/ready  ## the fast tests, 5 minutes on two cores
	$(BIN)/pytest -q -n 2 --dist worksteal -m "not slow"

slow: stories samples  ## the tests that need minutes, a browser or Debian's servers; what is missing is skipped with a reason

# Six files at a time on two cores, because processes wait for each other during most of a story. What fails there
# has a second try alone: a story with real seconds in it can fail because others had the cores.
stories: .venv/ready
	$(STORIES) -n 6 --dist loadfile --no-loadscope-reorder --durations 15 $(SLOW) || \
	{ echo "Some stories failed beside others, see above. They run again, alone:"; \
	$(STORIES) --last-failed --last-failed-no-failures none $(SLOW); }

samples: .venv/ready
	CRASH_EVERY=24 $(CRASHES) tests/scenarios/test_any_crash.py tests/bot/workspaces/environments/test_any_crash.py

chaos: .venv/ready  ## 1,000 faults over 200 sweeps, then real processes; SEED=n replays a run
	$(BIN)/python -m tests.chaos $(if $(SEED),--seed $(SEED))

crashes: .venv/ready  ## minutes: kills a worker at every call of every scenario, not of a sample
	CRASH_EVERY=1 $(CRASHES) tests/scenarios tests/bot/workspaces/environments tests/bot/sweep/features/webhooks tests/deploy/test_rights.py

deletable: .venv/ready  ## delete the features and workspaces that the last commit touched, one at a time, and check the rest; ALL=1 takes each
	$(BIN)/python -m tests.deletable $(if $(ALL),--all) $(if $(FIRST),--first) $(NAMES)

conformance: .venv/ready  ## the Kubernetes client against a real cluster: CONFORMANCE_KUBECONFIG=FILE make conformance
	@test -n "$$CONFORMANCE_KUBECONFIG" || { echo "Name a cluster: CONFORMANCE_KUBECONFIG=FILE make conformance"; exit 2; }
	$(BIN)/pytest -q -rs tests/conformance

mutants: .venv/ready  ## break lines of the core one at a time: a test has to fail for 95% of them
	$(BIN)/python -m bench.mutants

bench: .venv/ready  ## measure Sweepbot beside what people would use instead; GROUP=queue runs one part
	$(BIN)/python -m bench $(GROUP)

check: .venv/ready  ## style, types, the shape of the imports, the locks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python requirements/check.py
	$(BIN)/python -m bench --outdated

reference: .venv/ready  ## write docs/configuration.md, docs/schemas/ and .env.example from the code
	$(BIN)/python -m docs.reference

site: build/site-venv/ready  ## the documents as a site in build/site; a broken link is an error
	@rm -rf build/site
	build/site-venv/bin/sphinx-build --quiet --fail-on-warning --keep-going -d build/site-venv/doctrees -E docs build/site

lock: .venv/ready  ## resolve pyproject.toml again into requirements/
	$(BIN)/python requirements/check.py --write

build/site-venv/ready: requirements/site.txt
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/site.txt
	@touch $@

.venv/ready: requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit("Sweepbot needs Python 3.11 or newer; this is %d.%d. Try: make PYTHON=python3.11" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing the locked packages into .venv ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@$(BIN)/uv pip sync --quiet --require-hashes --python $(BIN)/python requirements/dev.txt
	@printf '#!/bin/sh\nPYTHONPATH="%s" exec "%s/python" -m bot "$$@"\n' '$(CURDIR)' '$(CURDIR)/$(BIN)' > $(BIN)/sweepbot
	@chmod +x $(BIN)/sweepbot
	@touch $@

clean:  ## delete .venv, and what the demo, the benchmarks, and the site left
	rm -rf .venv .demo .bench-venv* build/site build/site-venv
