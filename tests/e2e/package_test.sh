#!/usr/bin/env bash
# The programs of the package start where there is nothing but the package and glibc.
#
#   package_test.sh TOOLS_PACKAGE PROGRAM...
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin  # chroot

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

package=$1
shift
tarball=$TEST_TMPDIR/weir.tar.gz
root=$TEST_TMPDIR/root
rm -rf "$root"
mkdir -p "$root/tmp"
"$package" --output="$tarball" "$@"
tar -xzf "$tarball" -C "$root"
for file in LICENSE THIRD_PARTY.md README licenses; do
  [ -e "$root/weir/$file" ] || fail "the package has no $file"
done

# The loader's own account: every library is glibc's or lies in the package.
glibc=()
for program in "$root"/weir/bin/*; do
  while read -r name arrow path _; do
    [ "$arrow" = "=>" ] || { [[ $name == */ld-linux* ]] && glibc+=("$name"); continue; }
    case "$path" in
      "$root"/weir/*) ;;
      not) fail "$program does not find $name" ;;
      *)
        [[ $name =~ ^lib(c|m|mvec|pthread|dl|rt|resolv|util|anl)\.so\. ]] ||
          fail "$program takes $name from $path"
        glibc+=("$path")
        ;;
    esac
  done < <(ldd "$program")
done

for path in $(printf '%s\n' "${glibc[@]}" | sort -u); do
  mkdir -p "$root$(dirname "$path")"
  cp -L "$path" "$root$path"
done

# The loader finds $ORIGIN through /proc, which is the kernel's.
mkdir -p "$root/proc"
readonly ENTER='mount --rbind /proc "$0/proc" && exec chroot "$0" "$@"'
if unshare --mount sh -c "$ENTER" / true 2>/dev/null; then
  inside=(unshare --mount sh -c "$ENTER" "$root")
elif unshare --map-root-user --mount sh -c "$ENTER" / true 2>/dev/null; then
  inside=(unshare --map-root-user --mount sh -c "$ENTER" "$root")
else
  echo "this machine allows no chroot; the loader's account above must do"
  exit 0
fi
for program in "$root"/weir/bin/*; do
  name=$(basename "$program")
  "${inside[@]}" "/weir/bin/$name" --help > "$TEST_TMPDIR/out" 2>&1 ||
    { status=$?; cat "$TEST_TMPDIR/out"; fail "$name --help exits $status"; }
done
