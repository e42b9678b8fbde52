"""The rules that every BUILD file of Weir uses."""

load("@cuda//:defs.bzl", "HAVE_CUDA", "NVCC")

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
    # The other compiler's warnings above.
    "-Wno-unknown-warning-option",
    # a * b + c rounds twice on every machine; who wants a fused product says std::fma.
    "-ffp-contract=off",
]

# A test's own source compiles in four fifths of the time so, and what it tests is a library, compiled with -O2.
TEST_COPTS = COPTS + ["-O1"]

# Options to use a header of tools/bazel/precompiled.bzl. It lies beside its compiled form.
def _uses(prelude):
    return ["-include", "$(BINDIR)/tools/bazel/%s.h" % prelude]

def weir_cc_library(name, copts = [], deps = [], **kwargs):
    native.cc_library(
        name = name,
        copts = COPTS + _uses("prelude") + copts,
        deps = deps + ["//tools/bazel:prelude"],
        # Programs link our code statically; nobody needs a shared library of it.
        linkstatic = True,
        **kwargs
    )

# Without a prelude: programs are few, and a flag of theirs may have the name of one of glog's.
def weir_cc_binary(name, copts = [], **kwargs):
    native.cc_binary(
        name = name,
        copts = COPTS + copts,
        **kwargs
    )

def weir_cc_test(name, deps = [], copts = [], main = True, gtest = True, size = "small", **kwargs):
    """A GoogleTest program. Brings its own main() when main is False, and is none when gtest is."""
    if "tsan" in kwargs.get("tags", []):
        deps = deps + ["//tests/testing:tsan_suppressions"]
    native.cc_test(
        name = name,
        size = size,
        copts = TEST_COPTS + _uses("test_prelude") + copts,
        linkstatic = True,
        deps = deps + ["//tools/bazel:test_prelude"] +
               (["@googletest//:gtest_main" if main else "@googletest//:gtest"] if gtest else []),
        **kwargs
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
