"""What it takes to build programs, as a file that a test reads.

    build_size_report(name = "sizes", programs = ["//tests/ops:tests", ...])

The file has a line "LABEL SOURCES ACTIONS" for each program: sources of the tree that it is made of, sources that are
compiled together counted one by one, and actions that build it from nothing.
"""

load("//tools/bazel:together.bzl", "TogetherInfo")

# Of what Bazel does by itself, at no cost to speak of.
_NO_WORK = [
    "CppModuleMap",
    "FileWrite",
    "Middleman",
    "RepoMappingManifest",
    "SourceSymlinkManifest",
    "Symlink",
    "SymlinkTree",
    "TemplateExpand",
    "UnresolvedSymlink",
]

_SizeInfo = provider(fields = {
    "sources": "depset of the files that are compiled",
    "actions": "depset of one output for each action",
})

def _aspect_impl(target, ctx):
    below = []
    for attribute in ["srcs", "deps", "textual_hdrs", "header"]:
        deps = getattr(ctx.rule.attr, attribute, None) or []
        below += [dep[_SizeInfo] for dep in (deps if type(deps) == type([]) else [deps]) if _SizeInfo in dep]
    own = []
    if TogetherInfo in target:
        own = target[TogetherInfo].sources
    elif ctx.rule.kind in ["cc_library", "cc_binary", "cc_test", "_cuda_objects"]:
        own = [f for f in getattr(ctx.rule.files, "srcs", []) if f.is_source and f.extension in ["cc", "c", "cu"]]
    return [_SizeInfo(
        sources = depset(own, transitive = [info.sources for info in below]),
        actions = depset(
            [action.outputs.to_list()[0] for action in target.actions if action.mnemonic not in _NO_WORK],
            transitive = [info.actions for info in below],
        ),
    )]

_aspect = aspect(implementation = _aspect_impl, attr_aspects = ["srcs", "deps", "textual_hdrs", "header"])

def _report_impl(ctx):
    report = ctx.actions.declare_file(ctx.label.name)
    lines = [
        "//%s:%s %d %d\n" % (
            program.label.package,
            program.label.name,
            len(program[_SizeInfo].sources.to_list()),
            len(program[_SizeInfo].actions.to_list()),
        )
        for program in ctx.attr.programs
    ]
    ctx.actions.write(report, "".join(lines))
    return [DefaultInfo(files = depset([report]), runfiles = ctx.runfiles(files = [report]))]

build_size_report = rule(
    implementation = _report_impl,
    attrs = {"programs": attr.label_list(aspects = [_aspect], mandatory = True)},
)
