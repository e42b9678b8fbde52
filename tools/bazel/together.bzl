"""Sources that are compiled as one, since most of what a compiler does for a source it does for its neighbours, too."""

TogetherInfo = provider(
    doc = "A source that is several.",
    fields = {"sources": "list of files: the sources, in order"},
)

def _together_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name + ".cc")
    ctx.actions.run(
        executable = ctx.file._script,
        arguments = ["apart" if ctx.attr.apart else "open", out.path] + [f.path for f in ctx.files.srcs],
        inputs = ctx.files.srcs,
        tools = [ctx.file._script],
        outputs = [out],
        mnemonic = "Together",
    )
    return [DefaultInfo(files = depset([out])), TogetherInfo(sources = ctx.files.srcs)]

_together = rule(
    implementation = _together_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cc"], mandatory = True),
        "apart": attr.bool(doc = "All that uses a nameless namespace stands in it, as in tests."),
        "_script": attr.label(default = "//tools/bazel:together.sh", allow_single_file = True),
    },
)

def together(name, srcs, most, apart = False, testonly = None):
    """Divides sources into groups of at most `most`, as even as can be. Returns what cc_library has as srcs.

    With --define=weir_together=no it is the sources themselves, so that each shows what it does not include.
    """
    code = [src for src in srcs if src.endswith(".cc")]
    others = [src for src in srcs if not src.endswith(".cc")]
    count = (len(code) + most - 1) // most
    if count == len(code):
        return srcs
    groups = []
    for i in range(count):
        group = "%s_together_%d" % (name, i)
        _together(
            name = group,
            srcs = code[i * len(code) // count:(i + 1) * len(code) // count],
            apart = apart,
            testonly = testonly,
        )
        groups.append(":" + group)
    return others + select({
        "//tools/bazel:apart": code,
        "//conditions:default": groups,
    })
