#!/usr/bin/env bash
# The programs of the package start where there is nothing but the package and glibc (scripts need bash and more).
#
#   package_test.sh TOOLS_PACKAGE PROGRAM...
#
# With launch among them, a small job trains there too.
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
# Everybody may use what is in the package, even if its maker shares nothing; a link leads to the tarball.
ln -sf real.tar.gz "$tarball"
(umask 077 && "$package" --output="$tarball" "$@")
{ [ -L "$tarball" ] && [ -f "$TEST_TMPDIR/real.tar.gz" ]; } || fail "the package replaces a link"
closed=$(tar -tvzf "$tarball" | grep -vE '^(drwxr-xr-x|-rwxr-xr-x|-rw-r--r--) ' || true)
[ -z "$closed" ] || fail "others cannot use all of the package: $closed"
mkdir -p "$TEST_TMPDIR/directory"
! "$package" --output="$TEST_TMPDIR/directory" "$1" > "$TEST_TMPDIR/out" 2>&1 || fail "a directory is taken for a file"
grep -q "directory is no regular file; name a file" "$TEST_TMPDIR/out" || fail "$(cat "$TEST_TMPDIR/out")"
tar -xzf "$tarball" -C "$root"
for file in LICENSE THIRD_PARTY.md README licenses; do
  [ -e "$root/weir/$file" ] || fail "the package has no $file"
done

# THIRD_PARTY.md has a row for the Debian package of each library.
rows=() patterns=()
while read -r pattern name; do
  rows[${#rows[@]}]=$name patterns[${#patterns[@]}]=$pattern
done <<'ROWS'
libabsl Abseil
libbrotli Brotli
libbz2 bzip2
libc-ares c-ares
libcpp-httplib cpp-httplib
libdnnl oneDNN
libgcc libgcc
libgflags gflags
libgloo Gloo
libgomp libgomp
libgoogle-glog glog
libgrpc gRPC
libhiredis hiredis
libibverbs libibverbs
libisal ISA-L
liblz4 lz4
liblzma liblzma
libnl- libnl
libprotobuf Protocol Buffers
libre2 RE2
librocksdb RocksDB
libsnappy snappy
libssl OpenSSL
libstdc++ libstdc++
libunwind libunwind
libzstd zstd
ocl-icd OpenCL loader
zlib zlib
ROWS
for licence in "$root"/weir/licenses/lib* "$root"/weir/licenses/ocl* "$root"/weir/licenses/zlib*; do
  [ -e "$licence" ] || continue
  listed=
  for i in "${!rows[@]}"; do
    [[ $(basename "$licence") != "${patterns[$i]}"* ]] || listed=${rows[$i]}
  done
  [ -n "$listed" ] || fail "$(basename "$licence") is packaged, and THIRD_PARTY.md has no row for it that is known here"
  grep -qF "$listed" "$root/weir/THIRD_PARTY.md" || fail "THIRD_PARTY.md does not name $listed"
done

# The loader's own account: every library is glibc's or lies in the package.
glibc=() programs=()
for program in "$root"/weir/bin/*; do
  [ "$(head -c 2 "$program")" = '#!' ] || programs+=("$program")
done
[ -x "$root/weir/bin/slurm_job" ] || fail "the package has no slurm_job"
for program in "${programs[@]}"; do
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
for program in "${programs[@]}"; do
  name=$(basename "$program")
  "${inside[@]}" "/weir/bin/$name" --help > "$TEST_TMPDIR/out" 2>&1 ||
    { status=$?; cat "$TEST_TMPDIR/out"; fail "$name --help exits $status"; }
done

[ -x "$root/weir/bin/launch" ] || exit 0
mkdir -p "$root/job" "$root/dev"
[ -e "$root/dev/null" ] || mknod -m 666 "$root/dev/null" c 1 3 2>/dev/null || touch "$root/dev/null"
awk 'BEGIN {
  for (i = 0; i < 2000; ++i) printf "%d\t%d\t%x\t%x\n", (i * 7 % 13) < 5, i % 50, i * 7 % 13, i % 101
}' > "$root/job/train.tsv"
cat > "$root/job/job.textproto" <<'JOB'
name: "package"
data { train { files: "train.tsv" } criteo { integers: 1 categoricals: 2 } batch_size: 64 }
model {
  layer { name: "fields" embedding { ids: "cat" table: "rows" } }
  layer { name: "input" concat { input: "fields" input: "dense" } }
  layer { name: "out" fc { input: "input" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "rows" width: 4 is_sparse: true is_distributed: true optimizer { adagrad { learning_rate: 0.1 } } }
optimizer { adam { learning_rate: 0.01 } }
checkpoint { dir: "checkpoints" }
JOB
"${inside[@]}" /weir/bin/launch --job=/job/job.textproto --servers=2 --trainers=2 --log_dir=/job/logs \
  > "$TEST_TMPDIR/out" 2>&1 || { cat "$TEST_TMPDIR/out"; fail "the package does not train"; }
grep -q '^done steps=' "$TEST_TMPDIR/out" || { cat "$TEST_TMPDIR/out"; fail "launch does not end with done"; }
"${inside[@]}" /weir/bin/checkpoint verify /job/checkpoints > "$TEST_TMPDIR/out" 2>&1 ||
  { cat "$TEST_TMPDIR/out"; fail "the checkpoint does not verify"; }
