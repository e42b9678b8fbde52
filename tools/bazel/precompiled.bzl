"""Headers that the compiler reads once for all sources, instead of once for each."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "ACTION_NAMES")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

# clang writes down where it read each header. What lies below $PWD is found below another directory later, which
# -isysroot names (.bazelrc).
RELOCATABLE = "-Xclang -relocatable-pch -Xclang -isysroot -Xclang $PWD"

def _precompiled_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    header = ctx.actions.declare_file(ctx.file.header.basename)

    # Where sources are compiled each by itself the header is empty, and so one that lacks an include does not compile.
    if ctx.var.get("weir_together") == "no":
        ctx.actions.write(header, "")
        return [DefaultInfo(files = depset([header]))]
    clang = toolchain.compiler == "clang"
    ctx.actions.symlink(output = header, target_file = ctx.file.header)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )

    # A compiler takes a precompiled header only where its own options are those of the source.
    output = ctx.actions.declare_file(header.basename + (".pch" if clang else ".gch"))
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = ctx.file.header.path,
        output_file = output.path,
        use_pic = True,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts +
                             ["-x", "c++-header"],
        quote_include_directories = depset([".", ctx.bin_dir.path]),
    )
    compiler = cc_common.get_tool_for_action(
        feature_configuration = features,
        action_name = ACTION_NAMES.cpp_compile,
    )
    arguments = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = ACTION_NAMES.cpp_compile,
        variables = variables,
    )
    ctx.actions.run_shell(
        command = 'exec "$@" ' + (RELOCATABLE if clang else ""),
        arguments = [compiler] + arguments,
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = ACTION_NAMES.cpp_compile,
            variables = variables,
        ),
        inputs = depset(
            [ctx.file.header] + ctx.files.includes,
            transitive = [toolchain.all_files] + [dep[CcInfo].compilation_context.headers for dep in ctx.attr.deps],
        ),
        outputs = [output],
        mnemonic = "PrecompileHeader",
    )
    return [DefaultInfo(files = depset([header, output, ctx.file.header] + ctx.files.includes))]

precompiled = rule(
    implementation = _precompiled_impl,
    attrs = {
        "header": attr.label(allow_single_file = [".h"], mandatory = True),
        "includes": attr.label_list(allow_files = [".h"], doc = "Headers of this folder that it includes."),
        "deps": attr.label_list(providers = [CcInfo], doc = "Libraries with other headers that it includes."),
        "copts": attr.string_list(doc = "The options of the sources that use it."),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
