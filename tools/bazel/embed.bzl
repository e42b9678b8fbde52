"""Files that a program carries within itself."""

load("//tools/bazel:weir.bzl", "weir_cc_library")

def cc_embed(name, src, hdr, symbol, **kwargs):
    """A cc_library whose `std::string_view weir::<symbol>()` is the text of a file, byte for byte.

    The header declares the function and says what the text is. The text must not contain )embedded" and no byte 0.
    """
    native.genrule(
        name = name + "_source",
        srcs = [src],
        outs = [name + ".embedded.cc"],
        # Between R"embedded( and )embedded" a compiler changes nothing.
        cmd = """
            if grep -qF ')embedded"' $<; then echo '{name}: {src} contains )embedded"' >&2; exit 1; fi
            {{
              printf '#include "{package}/{hdr}"\\n\\nnamespace weir {{\\n'
              printf 'std::string_view {symbol}() {{\\n  static constexpr char kText[] = R"embedded('
              cat $<
              printf ')embedded";\\n  return {{kText, sizeof(kText) - 1}};\\n}}\\n}}  // namespace weir\\n'
            }} >$@""".format(name = name, src = src, package = native.package_name(), hdr = hdr, symbol = symbol),
    )
    weir_cc_library(
        name = name,
        srcs = [name + ".embedded.cc"],
        hdrs = [hdr],
        **kwargs
    )
