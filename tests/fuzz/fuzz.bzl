"""Fuzz targets: NAME_fuzz.cc, seeds in seeds/NAME."""

load("//tools/bazel:weir.bzl", "weir_cc_test")

# Of each target under libFuzzer.
_SECONDS = 20

def weir_fuzz_test(name, runs, deps):
    """A test of NAME_fuzz.cc.

    Args:
      name: of the target and its seeds; the test is NAME_fuzz.
      runs: changed seeds to run where libFuzzer is not linked.
      deps: of NAME_fuzz.cc.
    """
    seeds = native.glob(["seeds/" + name + "/*"])
    weir_cc_test(
        name = name + "_fuzz",
        size = "medium",
        srcs = [name + "_fuzz.cc"],
        args = select({
            "//tests/fuzz:libfuzzer": [
                "-seed=1",
                "-max_total_time=%d" % _SECONDS,
                "-rss_limit_mb=4096",
                "tests/fuzz/seeds/" + name,
            ],
            "//conditions:default": ["--runs=%d" % runs, "tests/fuzz/seeds/" + name],
        }),
        linkopts = select({
            "//tests/fuzz:libfuzzer": ["-fsanitize=fuzzer"],
            "//conditions:default": [],
        }),
        data = seeds,
        gtest = False,
        main = False,
        deps = deps + select({
            "//tests/fuzz:libfuzzer": [],
            "//conditions:default": ["//tests/fuzz:replay"],
        }),
    )
