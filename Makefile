# The commands of a checkout; `make` alone lists them. All use the virtual environment .venv, which
# they make when it is missing or stale. PYTHON=python3.12 names the Python to make it with.

.DEFAULT_GOAL := help
.PHONY: help environment demo test bazel-test clean

help:
	@echo 'make demo         train a small multilingual model on a two-stage pipeline, then translate'
	@echo 'make test         ruff, mypy and all tests'
	@echo 'make environment  only the virtual environment .venv: . .venv/bin/activate; lingpipe --help'
	@echo 'make bazel-test   all tests through Bazel, offline (needs bazel: CONTRIBUTING.md)'
	@echo 'make clean        delete .venv and the caches; runs/ stays'

environment:
	@tools/environment.sh dev

demo:
	@tools/demo.sh

test:
	@tools/check.sh

bazel-test: environment
	@command -v bazel >/dev/null || { echo "error: there is no bazel on PATH;" \
	    "on Debian: apt-get install bazel-bootstrap bazel-rules-java bazel-rules-proto" >&2; exit 1; }
	bazel test //...

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find lingpipe tasks params tools tests -name __pycache__ -type d -prune -exec rm -rf {} +
