"""The Python toolchain of the tests: the interpreter of the project's virtual environment.

`.venv` is made by `make environment`; the variable VENV names another one, as it does for make.
"""

def _python_environment(repository):
    root = repository.path(Label("//:WORKSPACE")).dirname
    venv = repository.os.environ.get("VENV", ".venv")
    python = repository.path(venv if venv.startswith("/") else "%s/%s" % (root, venv)).get_child("bin").get_child("python")
    if not python.exists:
        fail("There is no virtual environment at %s: run 'make environment' first." % python.dirname.dirname)
    repository.file("BUILD", """
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

py_runtime(
    name = "python",
    interpreter_path = "{python}",
    python_version = "PY3",
    stub_shebang = "#!{python}",
)

py_runtime_pair(
    name = "pair",
    py3_runtime = ":python",
)

toolchain(
    name = "toolchain",
    toolchain = ":pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
""".format(python = python))

python_environment = repository_rule(
    implementation = _python_environment,
    environ = ["VENV"],
    local = True,
)
