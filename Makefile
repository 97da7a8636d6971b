# `make help` lists the targets. Needs Python >= 3.11 and make; everything else goes into .venv.

PYTHON        ?= python3
VENV          ?= .venv
TORCH_VERSION ?= 2.13.0
# Where to look for torch besides the configured package index, e.g. PyTorch's own index of CPU builds.
TORCH_INDEX   ?=
VARIANT       ?=
REMEDY        ?= suggest
PORT          ?= 8050
ARGS          ?=

PY  := $(VENV)/bin/python
PIP := $(PY) -m pip install --disable-pip-version-check -q
RUN := OMP_WAIT_POLICY=PASSIVE TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 $(PY)

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all lint bench screenshots lock clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'
	@echo "  variables: VARIANT=unstable REMEDY=off|suggest|approve|auto-safe|auto-full PORT=8050 TORCH_VERSION TORCH_INDEX PYTHON"

# torch first and pinned: the CPU build (+cpu) where the index offers one, else the index's own build.
$(VENV)/.torch-$(TORCH_VERSION):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python >= 3.11 is needed; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "setting up $(VENV): torch $(TORCH_VERSION), then the locked packages (once; some minutes)"
	$(PYTHON) -m venv $(VENV)
	@$(PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) 'torch==$(TORCH_VERSION)+cpu' -c requirements.lock 2>/dev/null \
	  || { echo "this index offers no CPU build of torch $(TORCH_VERSION); taking its default build, which may be large (TORCH_INDEX=URL names another index)"; \
	       $(PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) 'torch==$(TORCH_VERSION)' -c requirements.lock; }
	@touch $@

$(VENV)/.installed: $(VENV)/.torch-$(TORCH_VERSION) pyproject.toml requirements.lock
	@$(PIP) -e '.[train,dev]' -c requirements.lock
	@touch $@

install: $(VENV)/.installed ## create the environment (done by the other targets when needed)

demo: $(VENV)/.installed ## train the built-in task with the dashboard live: about two minutes
	@$(RUN) -m stabilizer demo --remedy $(REMEDY) --port $(PORT) $(if $(VARIANT),--variant $(VARIANT)) $(ARGS)

test: $(VENV)/.installed ## the test suite
	@$(RUN) -m pytest -m 'not slow' $(ARGS)

test-all: $(VENV)/.installed ## everything, the slow and the browser tests included
	@$(RUN) -m pytest --require-browser $(ARGS)

lint: $(VENV)/.installed ## ruff: rules and format
	@$(PY) -m ruff check . && $(PY) -m ruff format --check .

bench: $(VENV)/.installed ## measure what writing, watching and reading cost
	@$(RUN) -m stabilizer bench cost $(ARGS) && $(RUN) -m stabilizer bench read $(ARGS)

screenshots: $(VENV)/.installed ## the README's pictures, from a sample run (needs a Chromium)
	@$(RUN) tests/dashboards/screenshots.py sample_runs/addition-rescued dashboards/screenshots

lock: $(VENV)/.installed ## pin the newest versions anew into requirements.lock
	@$(PIP) uv && echo 'torch==$(TORCH_VERSION)' > $(VENV)/torch.txt
	@$(PY) -m uv pip compile -q --universal --python-version 3.11 --extra train --extra dev -c $(VENV)/torch.txt --upgrade \
	  --no-header --no-annotate --no-emit-index-url pyproject.toml | grep -vE '^(torch|triton|cuda|nvidia)' > requirements.lock

clean: ## remove the environment and build leftovers; runs/ stays
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
