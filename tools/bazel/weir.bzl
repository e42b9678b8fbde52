"""The rules that every BUILD file of Weir uses."""

load("@cuda//:defs.bzl", "HAVE_CUDA", "NVCC")
load("//tools/bazel:together.bzl", "together")

COPTS = [
    "-std=c++20",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    # Options structs are initialized by name, the rest by default.
    "-Wno-missing-field-initializers",
    # Wrong about libstdc++ 12's own std::string and std::optional once they are inlined.
    "-Wno-restrict",
    "-Wno-maybe-uninitialized",
    "-Wno-stringop-overflow",
    "-Wno-array-bounds",
    # Takes sources that are compiled together for headers.
    "-Wno-subobject-linkage",
    # The other compiler's warnings above.
    "-Wno-unknown-warning-option",
    # a * b + c rounds twice on every machine; who wants a fused product says std::fma.
    "-ffp-contract=off",
    # gcc's garbage collection takes a twentieth of its time, to save a tenth of its memory. clang has none.
    "--param=ggc-min-expand=1000",
    "--param=ggc-min-heapsize=2000000",
    "-Wno-unused-command-line-argument",
]

# A test's own source compiles in four fifths of the time so, and what it tests is a library, compiled with -O2. -O0
# would take 28 % less, but tests of tables twice as long. It would also be a trap: of an inline function that several
# objects of a program have, the linker takes the first, which is the test's.
TEST_COPTS = COPTS + ["-O1"]

# Options to use a header of tools/bazel/precompiled.bzl. It lies beside its compiled form.
def _uses(prelude):
    return ["-include", "$(BINDIR)/tools/bazel/%s.h" % prelude]

def prelude_of(package):
    """The name of the precompiled header that a package's libraries use, and the analysis of their locks."""
    return "prelude" if package.split("/")[0] in ["framework", "ops"] else "job_prelude"

# At most so many sources are compiled as one: a change of one compiles its neighbours again.
_MOST_TOGETHER = 8

def weir_cc_library(name, srcs = [], copts = [], deps = [], most_together = _MOST_TOGETHER, testonly = None, **kwargs):
    """A cc_library. most_together: 1 where each source is to be compiled by itself."""
    prelude = prelude_of(native.package_name())

    # A header that was precompiled for one machine is none for another.
    machine = [copt for copt in copts if copt.startswith("-m")]
    native.cc_library(
        name = name,
        srcs = together(name, srcs, most_together, testonly = testonly),
        testonly = testonly,
        copts = COPTS + ([] if machine else _uses(prelude)) + copts,
        deps = deps + ([] if machine else ["//tools/bazel:" + prelude]),
        # Programs link our code statically; nobody needs a shared library of it.
        linkstatic = True,
        **kwargs
    )

def weir_cc_binary(name, copts = [], deps = [], prelude = True, **kwargs):
    """A cc_binary. prelude: False where it has a flag with the name of one of glog's, which the header declares."""
    native.cc_binary(
        name = name,
        copts = COPTS + (_uses("job_prelude") if prelude else []) + copts,
        deps = deps + (["//tools/bazel:job_prelude"] if prelude else []),
        **kwargs
    )

# Who may depend on a test program: the report of sizes that tests/build_size_test.py reads.
_SIZED = ["//tests:__pkg__"]

def weir_cc_test(name, deps = [], copts = [], main = True, gtest = True, size = "small", **kwargs):
    """A GoogleTest program. Brings its own main() when main is False, and is none when gtest is."""
    if "tsan" in kwargs.get("tags", []):
        deps = deps + ["//tests/testing:tsan_suppressions"]
    kwargs = dict({"visibility": _SIZED}, **kwargs)
    native.cc_test(
        name = name,
        size = size,
        copts = TEST_COPTS + _uses("test_prelude") + copts,
        linkstatic = True,
        deps = deps + ["//tools/bazel:test_prelude"] +
               (["@googletest//:gtest_main" if main else "@googletest//:gtest"] if gtest else []),
        **kwargs
    )

def _file_test_impl(ctx):
    test = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.write(
        test,
        '#!/bin/sh\nexec "$(dirname "$0")/%s" --file=%s "$@"\n' % (ctx.executable.program.basename, ctx.attr.file),
        is_executable = True,
    )
    runfiles = ctx.runfiles(files = ctx.files.data).merge(ctx.attr.program[DefaultInfo].default_runfiles)
    for each in ctx.attr.data:
        runfiles = runfiles.merge(each[DefaultInfo].default_runfiles)
    return [DefaultInfo(executable = test, runfiles = runfiles)]

_file_test = rule(
    implementation = _file_test_impl,
    attrs = {
        "program": attr.label(executable = True, cfg = "target", mandatory = True),
        "file": attr.string(mandatory = True),
        "data": attr.label_list(allow_files = True),
    },
    test = True,
)

def weir_cc_tests(name, tests, deps, srcs = [], copts = [], tags = [], most_together = _MOST_TOGETHER):
    """GoogleTest files that are one program, since compiling and linking take longer than most tests.

    Each file is a test by itself all the same, FILE_test, which runs the program with the cases of that file only.

    Args:
      name: of the program.
      tests: for each FILE_test.cc the name FILE_test, and its attributes: size ("small"), tags, data, shard_count.
      deps: of all files.
      srcs: further sources and headers of the program.
      copts: further options of the compiler.
      tags: of all tests.
      most_together: as in weir_cc_library.
    """
    files = [test + ".cc" for test in tests]
    tsan = ["//tests/testing:tsan_suppressions"] if "tsan" in tags else []
    native.cc_binary(
        name = name,
        testonly = True,
        visibility = _SIZED,
        srcs = together(name, files + srcs, most_together, apart = True, testonly = True),
        copts = TEST_COPTS + _uses("test_prelude") + copts,
        linkstatic = True,
        deps = deps + tsan + ["//tests/testing:files_main", "//tools/bazel:test_prelude"],
    )
    for test, attributes in tests.items():
        _file_test(
            name = test,
            program = name,
            file = native.package_name() + "/" + test + ".cc",
            **dict(dict(attributes, tags = tags + attributes.get("tags", [])), size = attributes.get("size", "small"))
        )

# Protocol buffers. protoc is the system's; a target name is a cc_library, name_files what
# protoc writes for it. Messages and stubs are apart, since few who know the messages need gRPC.

_ProtoInfo = provider(fields = {"sources": "depset of .proto files, dependencies included"})

def _proto_files_impl(ctx):
    sources = depset(
        ctx.files.srcs,
        transitive = [dep[_ProtoInfo].sources for dep in ctx.attr.deps],
    )
    endings = [".grpc.pb.h", ".grpc.pb.cc"] if ctx.attr.grpc else [".pb.h", ".pb.cc"]
    outputs = [
        ctx.actions.declare_file(src.basename[:-len(".proto")] + ending)
        for src in ctx.files.srcs
        for ending in endings
    ]
    args = ctx.actions.args()
    args.add("--proto_path=.")
    args.add("--proto_path=/usr/include")
    if ctx.attr.grpc:
        args.add("--plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin")
        args.add("--grpc_out=" + ctx.bin_dir.path)
    else:
        args.add("--cpp_out=" + ctx.bin_dir.path)
    args.add_all(ctx.files.srcs)
    ctx.actions.run(
        executable = "/usr/bin/protoc",
        arguments = [args],
        inputs = sources,
        outputs = outputs,
        mnemonic = "Protoc",
    )
    return [
        DefaultInfo(files = depset(outputs)),
        OutputGroupInfo(
            headers = depset([f for f in outputs if f.extension == "h"]),
            sources = depset([f for f in outputs if f.extension == "cc"]),
        ),
        _ProtoInfo(sources = sources),
    ]

_proto_files = rule(
    implementation = _proto_files_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".proto"], mandatory = True),
        "deps": attr.label_list(providers = [_ProtoInfo]),
        "grpc": attr.bool(),
    },
)

def _files_of(label):
    """The name_files target that belongs to a weir_proto_library."""
    if ":" in label:
        return label + "_files"
    return label + ":" + label.split("/")[-1] + "_files"

def _generated_library(name, srcs, proto_deps, grpc, deps, visibility, testonly):
    files = name + "_files"
    _proto_files(
        name = files,
        srcs = srcs,
        deps = [_files_of(dep) for dep in proto_deps],
        grpc = grpc,
        visibility = visibility,
        testonly = testonly,
    )
    native.filegroup(name = name + "_headers", srcs = [files], output_group = "headers", testonly = testonly)
    native.filegroup(name = name + "_sources", srcs = [files], output_group = "sources", testonly = testonly)
    native.cc_library(
        name = name,
        srcs = [name + "_sources"],
        hdrs = [name + "_headers"],
        copts = ["-std=c++20", "-O2", "-w"] + _uses("prelude"),
        linkstatic = True,
        visibility = visibility,
        testonly = testonly,
        deps = deps + ["//tools/bazel:prelude"],
    )

def weir_proto_library(name, srcs, deps = [], visibility = None, testonly = None):
    """A cc_library of messages, included as "package/file.pb.h"."""
    _generated_library(name, srcs, deps, False, deps + ["@protobuf"], visibility, testonly)

def weir_grpc_library(name, srcs, deps, visibility = None, testonly = None):
    """A cc_library of a service's stubs, "package/file.grpc.pb.h". deps: its messages, a weir_proto_library."""
    _generated_library(name, srcs, deps, True, deps + ["@grpc//:grpc++"], visibility, testonly)

# CUDA. nvcc compiles to one object per file; a cc_library around them carries the runtime and
# WEIR_HAVE_CUDA to those who depend on it.

_ARCHITECTURES = [
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90,code=sm_90",
    # Later devices compile this one when they load it.
    "-gencode=arch=compute_90,code=compute_90",
]

def _cuda_objects_impl(ctx):
    contexts = [dep[CcInfo].compilation_context for dep in ctx.attr.deps]
    objects = []
    for src in ctx.files.srcs:
        # .pic.o: good for programs and for shared libraries.
        obj = ctx.actions.declare_file("%s_objects/%s.pic.o" % (ctx.attr.library, src.basename))
        args = ctx.actions.args()
        args.add_all(["-c", "-std=c++20", "-O2", "-ccbin=g++", "-Werror=all-warnings"])
        args.add_all(["-Xcompiler=-fPIC,-Wall,-ffp-contract=off", "-DWEIR_HAVE_CUDA=1"])
        args.add_all(_ARCHITECTURES)
        args.add_all(ctx.attr.copts)
        args.add_all([".", ctx.bin_dir.path], before_each = "-I")
        args.add(src)
        args.add("-o", obj)
        ctx.actions.run(
            executable = NVCC,
            arguments = [args],
            env = {"PATH": "/usr/local/bin:/usr/bin:/bin"},
            inputs = depset(
                ctx.files.srcs + ctx.files.hdrs,
                transitive = [context.headers for context in contexts],
            ),
            outputs = [obj],
            mnemonic = "Nvcc",
            progress_message = "Compiling %s for CUDA" % src.short_path,
        )
        objects.append(obj)
    return [DefaultInfo(files = depset(objects))]

_cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"], mandatory = True),
        "hdrs": attr.label_list(allow_files = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "copts": attr.string_list(),
        "library": attr.string(mandatory = True),
    },
)

def weir_cuda_library(name, srcs, hdrs = [], deps = [], copts = [], testonly = None, **kwargs):
    """A cc_library of .cu files: empty, with WEIR_HAVE_CUDA=0, where there is no nvcc."""
    if HAVE_CUDA:
        _cuda_objects(
            name = name + "_objects",
            srcs = srcs,
            hdrs = hdrs,
            deps = deps,
            copts = copts,
            library = name,
            testonly = testonly,
        )
    native.cc_library(
        name = name,
        srcs = [name + "_objects"] if HAVE_CUDA else [],
        hdrs = hdrs,
        deps = deps + ["@cuda//:cudart"],
        linkstatic = True,
        testonly = testonly,
        **kwargs
    )
