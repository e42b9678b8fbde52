"""Hashes that determine the placement of rows and the meaning of stored bytes: framework/base/stable_hash.h in NumPy.

XXH3-64 is computed by the package xxhash where it is installed. Without it NumPy computes the same values, more slowly.
"""

from __future__ import annotations

from typing import Any, Sequence, Union

import numpy as np
import numpy.typing as npt

try:
    import xxhash as _xxhash  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    _xxhash = None  # type: ignore[assignment,unused-ignore]

__all__ = ["RunningHash", "hash_bytes", "hash_rows", "hash_texts", "logical_shards", "mix_ids"]

_U64 = np.dtype("<u8")
_MASK = (1 << 64) - 1
# Bytes that are hashed at a time: they and the intermediate results stay in a core's cache.
_RUN_BYTES = 1 << 18

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
_PRIME32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_PRIME64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)

UInts = npt.NDArray[np.uint64]


def hash_bytes(data: Union[bytes, bytearray, memoryview, npt.NDArray[np.uint8]], seed: int = 0) -> int:
    """Returns XXH3-64 of contiguous bytes."""
    if _xxhash is not None:
        buffer: Any = data  # Types of an array say that it is a buffer only where Python is new enough.
        return int(_xxhash.xxh3_64_intdigest(buffer, seed))
    return int(_hash_run(np.frombuffer(data, np.uint8).reshape(1, -1), seed)[0])


class RunningHash:
    """XXH3-64 of bytes that come in pieces, as hash_bytes of all of them together."""

    def __init__(self) -> None:
        self._package = None if _xxhash is None else _xxhash.xxh3_64()
        self._lanes = _Lanes(1)
        self._length = 0
        # The bytes behind the blocks that are in the lanes, at least one if there are any, and the 64 before them.
        self._rest = b""
        self._before = b""

    def update(self, data: Union[bytes, memoryview, npt.NDArray[np.uint8]]) -> None:
        """Adds contiguous bytes."""
        if self._package is not None:
            buffer: Any = data
            self._package.update(buffer)
            return
        added = np.frombuffer(data, np.uint8)
        self._length += len(added)
        if len(self._rest) + len(added) <= 1024:
            self._rest += added.tobytes()
            return
        if self._rest:
            need = 1024 - len(self._rest)
            self._add_blocks(np.frombuffer(self._rest + added[:need].tobytes(), np.uint8))
            added = added[need:]
        whole = (len(added) - 1) // 1024 * 1024
        self._add_blocks(added[:whole])
        self._rest = added[whole:].tobytes()

    def digest(self) -> int:
        """Returns the hash of all bytes so far."""
        if self._package is not None:
            return int(self._package.intdigest())
        if self._length <= 240:
            return hash_bytes(self._rest)
        rest = np.frombuffer(self._rest, np.uint8)[None, :]
        last = np.frombuffer((self._before + self._rest)[-64:], np.uint8)[None, :]
        return int(self._lanes.finish(rest, last, self._length)[0])

    def _add_blocks(self, data: npt.NDArray[np.uint8]) -> None:
        if len(data) > 0:
            self._lanes.add_blocks(data[None, :])
            self._before = data[-64:].tobytes()


def hash_texts(texts: Sequence[Union[str, bytes]], seed: int = 0) -> UInts:
    """Returns XXH3-64 of each text [n]; of a str its UTF-8 bytes are hashed."""
    raw = [text.encode() if isinstance(text, str) else bytes(text) for text in texts]
    if _xxhash is not None:
        digest = _xxhash.xxh3_64_intdigest
        return np.fromiter((digest(text, seed) for text in raw), np.uint64, len(raw))
    hashes = np.empty(len(raw), np.uint64)
    lengths = np.fromiter(map(len, raw), np.int64, len(raw))
    for length in np.unique(lengths):
        at = np.flatnonzero(lengths == length)
        rows = np.frombuffer(b"".join(raw[i] for i in at), np.uint8).reshape(len(at), int(length))
        hashes[at] = hash_rows(rows, seed)
    return hashes


def hash_rows(rows: npt.NDArray[Any], seed: int = 0) -> UInts:
    """Returns XXH3-64 of the bytes of each row of a matrix [n, columns], as an array [n]."""
    rows = np.ascontiguousarray(rows)
    length = rows.shape[1] * rows.itemsize
    data = rows.view(np.uint8).reshape(len(rows), length) if rows.size else np.empty((len(rows), length), np.uint8)
    hashes = np.empty(len(rows), np.uint64)
    run = max(1, _RUN_BYTES // max(16, length))
    for at in range(0, len(rows), run):
        hashes[at:at + run] = _hash_run(data[at:at + run], seed)
    return hashes


def mix_ids(ids: npt.NDArray[Any]) -> UInts:
    """Returns MixId of each 64-bit integer: the finaliser of splitmix64, a bijection."""
    x = np.asarray(ids).astype(np.uint64)  # a copy, which the lines below change
    x += np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def logical_shards(ids: npt.NDArray[Any], shards: int) -> npt.NDArray[np.int64]:
    """Returns the logical shard of each id (placement scheme 1). `shards` is that of the table, below 2^31."""
    mixed = mix_ids(ids)
    mixed >>= np.uint64(32)
    mixed *= np.uint64(shards)
    mixed >>= np.uint64(32)
    return mixed.astype(np.int64)


def _secret(offset: int) -> int:
    return int.from_bytes(_SECRET[offset:offset + 8], "little")


def _word(data: npt.NDArray[np.uint8], offset: int) -> UInts:
    """Returns the 8 bytes at `offset` of every row as numbers [n]."""
    return np.ascontiguousarray(data[:, offset:offset + 8]).view(_U64).reshape(-1)


def _half(data: npt.NDArray[np.uint8], offset: int) -> UInts:
    return np.ascontiguousarray(data[:, offset:offset + 4]).view("<u4").reshape(-1).astype(np.uint64)


def _u64(value: int) -> np.uint64:
    number: np.uint64 = np.uint64(value & _MASK)
    return number


def _fold(a: UInts, b: UInts) -> UInts:
    """Returns the halves of the 128-bit product of a and b, combined with xor."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    a_low, a_high, b_low, b_high = a & low, a >> shift, b & low, b >> shift
    low_low, high_low, low_high = a_low * b_low, a_high * b_low, a_low * b_high
    cross = (low_low >> shift) + (high_low & low) + low_high
    upper = (high_low >> shift) + (cross >> shift) + a_high * b_high
    lower: UInts = np.bitwise_or(cross << shift, low_low & low)
    result: UInts = np.bitwise_xor(upper, lower)
    return result


def _avalanche(h: UInts) -> UInts:
    h = h ^ (h >> np.uint64(37))
    h *= np.uint64(0x165667919E3779F9)
    h ^= h >> np.uint64(32)
    return h


def _avalanche_of_xxh64(h: UInts) -> UInts:
    h = h ^ (h >> np.uint64(33))
    h *= np.uint64(_PRIME64[1])
    h ^= h >> np.uint64(29)
    h *= np.uint64(_PRIME64[2])
    h ^= h >> np.uint64(32)
    return h


def _mix16(data: npt.NDArray[np.uint8], offset: int, secret: int, seed: int) -> UInts:
    return _fold(_word(data, offset) ^ _u64(_secret(secret) + seed),
                 _word(data, offset + 8) ^ _u64(_secret(secret + 8) - seed))


def _hash_run(data: npt.NDArray[np.uint8], seed: int) -> UInts:
    """Returns XXH3-64 of rows [n, length]. The algorithm has five ranges of lengths."""
    length = data.shape[1]
    if length > 240:
        return _hash_long(data, seed)
    if length > 128:
        return _hash_up_to_240(data, seed)
    if length > 16:
        total = np.full(len(data), _u64(length * _PRIME64[0]))
        for pair in range((length - 1) // 32, -1, -1):
            total += _mix16(data, 16 * pair, 32 * pair, seed)
            total += _mix16(data, length - 16 * (pair + 1), 32 * pair + 16, seed)
        return _avalanche(total)
    return _hash_up_to_16(data, seed)


def _hash_up_to_16(data: npt.NDArray[np.uint8], seed: int) -> UInts:
    count, length = data.shape
    if length > 8:
        low = _word(data, 0) ^ _u64((_secret(24) ^ _secret(32)) + seed)
        high = _word(data, length - 8) ^ _u64((_secret(40) ^ _secret(48)) - seed)
        return _avalanche(low.byteswap() + high + _fold(low, high) + _u64(length))
    if length > 3:
        seed ^= int.from_bytes((seed & 0xFFFFFFFF).to_bytes(4, "little"), "big") << 32
        h = _half(data, length - 4) + (_half(data, 0) << np.uint64(32))
        h ^= _u64((_secret(8) ^ _secret(16)) - seed)
        h ^= _rotate(h, 49) ^ _rotate(h, 24)
        h *= np.uint64(0x9FB21C651E98DF25)
        h ^= (h >> np.uint64(35)) + np.uint64(length)
        h *= np.uint64(0x9FB21C651E98DF25)
        mixed: UInts = h ^ (h >> np.uint64(28))
        return mixed
    if length > 0:
        first, middle, last = (data[:, i].astype(np.uint64) for i in (0, length >> 1, length - 1))
        h = (first << np.uint64(16)) | (middle << np.uint64(24)) | last | np.uint64(length << 8)
        return _avalanche_of_xxh64(h ^ _u64(((_secret(0) & 0xFFFFFFFF) ^ (_secret(4) & 0xFFFFFFFF)) + seed))
    return _avalanche_of_xxh64(np.full(count, _u64(seed ^ _secret(56) ^ _secret(64))))


def _rotate(h: UInts, bits: int) -> UInts:
    result: UInts = (h << np.uint64(bits)) | (h >> np.uint64(64 - bits))
    return result


def _hash_up_to_240(data: npt.NDArray[np.uint8], seed: int) -> UInts:
    count, length = data.shape
    total = np.full(count, _u64(length * _PRIME64[0]))
    for i in range(8):
        total += _mix16(data, 16 * i, 16 * i, seed)
    total = _avalanche(total)
    for i in range(8, length // 16):
        total += _mix16(data, 16 * i, 16 * (i - 8) + 3, seed)
    total += _mix16(data, length - 16, 136 - 17, seed)
    return _avalanche(total)


def _hash_long(data: npt.NDArray[np.uint8], seed: int) -> UInts:
    length = data.shape[1]
    lanes = _Lanes(len(data), seed)
    blocks = (length - 1) // 1024
    lanes.add_blocks(data[:, :blocks * 1024])
    return lanes.finish(data[:, blocks * 1024:], data[:, length - 64:], length)


class _Lanes:
    """Sums over the blocks of rows longer than 240 bytes: a block is 16 stripes of 64 bytes."""

    def __init__(self, count: int, seed: int = 0):
        self._secret = np.frombuffer(_SECRET, _U64).copy()
        self._secret[0::2] += _u64(seed)
        self._secret[1::2] -= _u64(seed)
        # Stripe s of a block uses the secret from word s on.
        self._keys = np.lib.stride_tricks.sliding_window_view(self._secret, 8)[:16]
        self._lanes = np.tile(np.array([_PRIME32[2], *_PRIME64[:4], _PRIME32[1], _PRIME64[4], _PRIME32[0]], np.uint64),
                              (count, 1))

    def add_blocks(self, data: npt.NDArray[np.uint8]) -> None:
        """Adds whole blocks [rows, n * 1024]; bytes must follow them."""
        count, lanes = len(data), self._lanes
        blocks = data.shape[1] // 1024
        run = max(1, _RUN_BYTES // (1024 * max(1, count)))
        scratch = np.empty_like(lanes)
        for begin in range(0, blocks, run):
            end = min(begin + run, blocks)
            words = np.ascontiguousarray(data[:, begin * 1024:end * 1024]).view(_U64)
            sums = _stripe_sums(words.reshape(count, end - begin, 16, 8), self._keys)
            for i in range(end - begin):
                lanes += sums[:, i]
                np.right_shift(lanes, np.uint64(47), out=scratch)
                lanes ^= scratch
                lanes ^= self._secret[16:24]
                lanes *= np.uint64(_PRIME32[0])

    def finish(self, rest: npt.NDArray[np.uint8], last: npt.NDArray[np.uint8], length: int) -> UInts:
        """Returns the hashes. `rest`: the 1 to 1024 bytes behind the blocks; `last`: the last 64 bytes of all."""
        lanes, count = self._lanes.copy(), len(rest)
        # The stripes of the last block, which may overlap with the last 64 bytes of all.
        stripes = (rest.shape[1] - 1) // 64
        if stripes > 0:
            words = np.ascontiguousarray(rest[:, :stripes * 64]).view(_U64)
            lanes += _stripe_sums(words.reshape(count, 1, stripes, 8), self._keys[:stripes])[:, 0]
        words = np.ascontiguousarray(last).view(_U64).reshape(count, 1, 1, 8)
        bytes_of_secret = self._secret.tobytes()
        lanes += _stripe_sums(words, np.frombuffer(bytes_of_secret, _U64, 8, 192 - 64 - 7).reshape(1, 8))[:, 0]
        merge = np.frombuffer(bytes_of_secret, _U64, 8, 11)
        total = np.full(count, _u64(length * _PRIME64[0]))
        for i in range(0, 8, 2):
            total += _fold(lanes[:, i] ^ merge[i], lanes[:, i + 1] ^ merge[i + 1])
        return _avalanche(total)


def _stripe_sums(words: UInts, keys: UInts) -> UInts:
    """Returns what the stripes of each block, words [n, blocks, stripes, 8], add to the lanes: [n, blocks, 8]."""
    keyed = words ^ keys
    products = keyed & np.uint64(0xFFFFFFFF)
    keyed >>= np.uint64(32)
    products *= keyed
    sums: UInts = products.sum(axis=2, dtype=np.uint64)
    # A word is added to the neighbour of its lane.
    plain = words.sum(axis=2, dtype=np.uint64)
    sums[..., 0::2] += plain[..., 1::2]
    sums[..., 1::2] += plain[..., 0::2]
    return sums
