"""`pytest_tests`: one py_test for each test file, all run by run_pytest.py."""

def pytest_tests(name, srcs, support, data, deps):
    """Declares a test for each of `srcs`, and a test_suite `name` of them all.

    Args:
        name: name of the suite.
        srcs: test files; the test of `a/b_test.py` is named `a/b_test`.
        support: what any test may read in this folder: conftest.py, goldens, small data.
        data: targets of further files that tests read.
        deps: libraries under test.
    """
    for source in srcs:
        native.py_test(
            name = source[:-len(".py")],
            size = "large",
            srcs = [source, "run_pytest.py"],
            main = "run_pytest.py",
            args = ["$(location %s)" % source],
            data = support + data,
            imports = [".."],
            deps = deps,
        )
    native.test_suite(
        name = name,
        tests = [source[:-len(".py")] for source in srcs],
    )
