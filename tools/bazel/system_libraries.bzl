"""Libraries that the distribution installs, as Bazel repositories.

Their headers lie in /usr/include, which compilers search by themselves, so a library here is
little more than its linker options.
"""

def _system_library_impl(ctx):
    if not ctx.path(ctx.attr.header).exists:
        fail("%s is missing: tools/setup installs what Weir is built with" % ctx.attr.header)
    build = ['package(default_visibility = ["//visibility:public"])']
    for target, linkopts in ctx.attr.targets.items():
        build.append("cc_library(name = %r, linkopts = %r)" % (target, linkopts))
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)
    ctx.file("BUILD", "\n".join(build) + "\n")

_system_library = repository_rule(
    implementation = _system_library_impl,
    doc = "One cc_library per entry of targets (name to linker options).",
    attrs = {
        "header": attr.string(mandatory = True, doc = "Its absence means: not installed."),
        "targets": attr.string_list_dict(mandatory = True),
    },
    local = True,
)

# Abseil is some sixty shared libraries; the linker keeps those a program uses.
_ABSL = [
    "flags_parse",
    "flags_usage",
    "flags_usage_internal",
    "flags_internal",
    "flags_marshalling",
    "flags_reflection",
    "flags_private_handle_accessor",
    "flags_commandlineflag",
    "flags_commandlineflag_internal",
    "flags_config",
    "flags_program_name",
    "failure_signal_handler",
    "examine_stack",
    "statusor",
    "status",
    "cord",
    "cordz_info",
    "cord_internal",
    "cordz_functions",
    "cordz_handle",
    "random_distributions",
    "random_seed_sequences",
    "random_seed_gen_exception",
    "random_internal_pool_urbg",
    "random_internal_randen",
    "random_internal_randen_hwaes",
    "random_internal_randen_hwaes_impl",
    "random_internal_randen_slow",
    "random_internal_platform",
    "random_internal_seed_material",
    "raw_hash_set",
    "hashtablez_sampler",
    "exponential_biased",
    "hash",
    "city",
    "low_level_hash",
    "bad_optional_access",
    "bad_variant_access",
    "bad_any_cast_impl",
    "synchronization",
    "graphcycles_internal",
    "symbolize",
    "stacktrace",
    "debugging_internal",
    "demangle_internal",
    "malloc_internal",
    "time",
    "civil_time",
    "time_zone",
    "str_format_internal",
    "strings",
    "strings_internal",
    "strerror",
    "int128",
    "throw_delegate",
    "base",
    "spinlock_wait",
    "raw_logging_internal",
    "log_severity",
    "leak_check",
]

_AS_NEEDED = "-Wl,--as-needed"

def system_libraries():
    _system_library(
        name = "absl",
        header = "/usr/include/absl/base/config.h",
        targets = {"absl": [_AS_NEEDED] + ["-labsl_" + lib for lib in _ABSL] + ["-lpthread"]},
    )
    _system_library(
        name = "protobuf",
        header = "/usr/include/google/protobuf/message.h",
        targets = {"protobuf": [_AS_NEEDED, "-lprotobuf", "-lpthread"]},
    )
    _system_library(
        name = "grpc",
        header = "/usr/include/grpcpp/grpcpp.h",
        targets = {"grpc++": [_AS_NEEDED, "-lgrpc++", "-lgrpc", "-lgpr", "-lpthread"]},
    )
    _system_library(
        name = "glog",
        header = "/usr/include/glog/logging.h",
        targets = {"glog": [_AS_NEEDED, "-lglog"]},
    )
    _system_library(
        name = "re2",
        header = "/usr/include/re2/re2.h",
        targets = {"re2": [_AS_NEEDED, "-lre2"]},
    )
    _system_library(
        name = "xxhash",
        header = "/usr/include/xxhash.h",
        targets = {"xxhash": [_AS_NEEDED, "-lxxhash"]},
    )
    _system_library(
        name = "isal",
        header = "/usr/include/isa-l/igzip_lib.h",
        targets = {"isal": [_AS_NEEDED, "-lisal"]},
    )
    _system_library(
        name = "zlib",
        header = "/usr/include/zlib.h",
        targets = {"zlib": [_AS_NEEDED, "-lz"]},
    )
    _system_library(
        name = "zstd",
        header = "/usr/include/zstd.h",
        targets = {"zstd": [_AS_NEEDED, "-lzstd"]},
    )
    _system_library(
        name = "dnnl",
        header = "/usr/include/dnnl.hpp",
        # Its threads are OpenMP's, which callers turn off.
        targets = {"dnnl": [_AS_NEEDED, "-ldnnl", "-lgomp"]},
    )
    _system_library(
        name = "gloo",
        header = "/usr/include/gloo/context.h",
        targets = {"gloo": [_AS_NEEDED, "-lgloo"]},
    )
    _system_library(
        name = "httplib",
        header = "/usr/include/httplib.h",
        targets = {"httplib": [_AS_NEEDED, "-lcpp-httplib"]},
    )
    _system_library(
        name = "rocksdb",
        header = "/usr/include/rocksdb/db.h",
        targets = {"rocksdb": [_AS_NEEDED, "-lrocksdb"]},
    )
    _system_library(
        name = "googletest",
        header = "/usr/include/gmock/gmock.h",
        targets = {
            "gtest": ["-lgmock", "-lgtest", "-lpthread"],
            # gmock's main also sets up gtest.
            "gtest_main": ["-lgmock_main", "-lgmock", "-lgtest", "-lpthread"],
        },
    )
    _system_library(
        name = "benchmark",
        header = "/usr/include/benchmark/benchmark.h",
        targets = {"benchmark": [_AS_NEEDED, "-lbenchmark", "-lpthread"]},
    )
